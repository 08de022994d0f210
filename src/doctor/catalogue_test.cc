#include "doctor/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "doctor/rule.h"

namespace bedplate::doctor {
namespace {

TEST(Catalogue, HoldsEveryRuleThresholdAndSymptom) {
  const std::string page = catalogue_markdown();
  for (const Rule* rule : all_rules()) {
    EXPECT_THAT(page, testing::HasSubstr(fmt::format("### {}\n", rule->id)));
    for (const Threshold& t : rule->thresholds)
      EXPECT_THAT(page, testing::HasSubstr(std::string(t.key)));
    for (const std::string_view s : rule->symptoms)
      EXPECT_THAT(page, testing::HasSubstr(fmt::format("| {} | ", s)));
  }
}

TEST(Catalogue, LookAlikesAndConsequencesAreRules) {
  const auto known = [](std::string_view id) {
    return std::any_of(all_rules().begin(), all_rules().end(),
                       [&](const Rule* r) { return r->id == id; });
  };
  for (const Rule* rule : all_rules()) {
    for (const std::string_view id : rule->look_alikes)
      EXPECT_TRUE(known(id)) << rule->id << ": " << id;
    for (const Brings& brings : rule->brings)
      EXPECT_TRUE(known(brings.rule)) << rule->id << ": " << brings.rule;
  }
}

TEST(Catalogue, JsonHasTheSameRules) {
  const auto all = nlohmann::json::parse(catalogue_json());
  ASSERT_EQ(all["rules"].size(), all_rules().size());
  EXPECT_EQ(all["rules"][0]["id"], "cpu_quota");
  EXPECT_EQ(all["rules"][0]["thresholds"][0]["value"], 0.25);
}

TEST(Catalogue, OneRuleByItsName) {
  EXPECT_THAT(catalogue_text("crash"),
              testing::StartsWith("crash: a process of the job died (coordination)"));
  EXPECT_THAT(catalogue_text(),
              testing::HasSubstr("straggler                the other ranks wait for one\n"));
  try {
    catalogue_text("stragler");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kNotFound);
    EXPECT_THAT(e.what(), testing::HasSubstr("did you mean straggler?"));
  }
}

// docs/doctor.md holds the catalogue between two markers; `tools/update_docs` or this message say
// how to renew it.
TEST(Catalogue, TheDocumentHoldsTheRulesAsTheyAre) {
  std::ifstream file(std::string(BEDPLATE_SOURCE_DIR) + "/docs/doctor.md");
  if (!file) GTEST_SKIP() << "docs/doctor.md is not there";
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const std::string begin = "<!-- bedplate rules --markdown -->\n";
  const std::string end = "<!-- end of bedplate rules -->\n";
  const auto from = page.find(begin);
  const auto to = page.find(end);
  ASSERT_NE(from, std::string::npos) << "docs/doctor.md lacks the marker " << begin;
  ASSERT_NE(to, std::string::npos) << "docs/doctor.md lacks the marker " << end;
  const auto start = from + begin.size();
  EXPECT_EQ(page.substr(start, to - start), catalogue_markdown())
      << "put the output of `bedplate rules --markdown` between the markers of docs/doctor.md";
}

}  // namespace
}  // namespace bedplate::doctor
