#include "doctor/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

}  // namespace
}  // namespace bedplate::doctor
