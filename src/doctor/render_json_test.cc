#include "doctor/render_json.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "doctor/report_samples.h"

namespace bedplate::doctor {
namespace {

using Json = nlohmann::ordered_json;

bool is_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  return type == "null" && value.is_null();
}

// The part of JSON Schema 2020-12 that docs/report.schema.json uses; a keyword it does not know
// fails the test, so that nothing in the schema is silently unchecked.
class Schema {
 public:
  explicit Schema(Json root) : root_(std::move(root)) {}
  std::vector<std::string> breaches(const Json& value) const {
    std::vector<std::string> found;
    check(root_, value, "$", found);
    return found;
  }

 private:
  void check(const Json& schema, const Json& value, const std::string& at,
             std::vector<std::string>& found) const {
    for (const auto& [keyword, rule] : schema.items()) {
      if (keyword == "$ref") {
        check(root_.at("$defs").at(rule.get<std::string>().substr(8)), value, at, found);
      } else if (keyword == "type") {
        const Json types = rule.is_array() ? rule : Json::array({rule});
        const bool any = std::any_of(types.begin(), types.end(),
                                     [&](const Json& type) { return is_type(value, type); });
        if (!any) found.push_back(at + " is not " + rule.dump() + ": " + value.dump());
      } else if (keyword == "const") {
        if (value != rule) found.push_back(at + " is not " + rule.dump());
      } else if (keyword == "enum") {
        if (std::find(rule.begin(), rule.end(), value) == rule.end())
          found.push_back(at + " is none of " + rule.dump());
      } else if (keyword == "minimum") {
        if (value.is_number() && value < rule) found.push_back(at + " is below " + rule.dump());
      } else if (keyword == "items") {
        for (std::size_t i = 0; value.is_array() && i < value.size(); ++i)
          check(rule, value[i], at + "[" + std::to_string(i) + "]", found);
      } else if (keyword == "required") {
        for (const std::string name : rule) {
          if (value.is_object() && !value.contains(name)) found.push_back(at + " has no " + name);
        }
      } else if (keyword == "properties") {
        for (const auto& [name, inner] : rule.items()) {
          if (value.is_object() && value.contains(name))
            check(inner, value[name], at + "." + name, found);
        }
      } else if (keyword == "additionalProperties") {
        for (const auto& [name, inner] : value.items()) {
          if (!schema.contains("properties") || !schema["properties"].contains(name))
            check(rule, inner, at + "." + name, found);
        }
      } else if (keyword != "description" && keyword != "title" && keyword != "$schema" &&
                 keyword != "$defs") {
        found.push_back("keyword " + keyword + " is not checked by this test");
      }
    }
  }
  Json root_;
};

class ReportSchema : public ::testing::Test {
 protected:
  Schema schema_{Json::parse(std::ifstream(BEDPLATE_SOURCE_DIR "/docs/report.schema.json"))};
};

TEST_F(ReportSchema, HoldsForEverySample) {
  for (const auto& [name, report] : sample_reports()) {
    EXPECT_THAT(schema_.breaches(Json::parse(render_json(report))), ::testing::IsEmpty()) << name;
  }
}

TEST_F(ReportSchema, EveryKeyThatIsWrittenIsDescribed) {
  const Json written = Json::parse(render_json(sample_report("full")));
  const Json schema = Json::parse(std::ifstream(BEDPLATE_SOURCE_DIR "/docs/report.schema.json"));
  const auto described = [](const Json& value, const Json& at) {
    for (const auto& [key, unused] : value.items())
      EXPECT_TRUE(at.at("properties").contains(key)) << key;
  };
  const Json& top = schema.at("properties");
  described(written, schema);
  for (const auto name : {"run", "own_cost", "steps", "verdict"})
    described(written.at(name), top.at(name));
  described(written.at("findings")[0], top.at("findings").at("items"));
  described(written.at("resources")[0], top.at("resources").at("items"));
  const Json& data = top.at("data").at("items");
  described(written.at("data")[0], data);
  for (const auto name : {"threads", "cache", "remote"})
    described(written.at("data")[0].at(name), data.at("properties").at(name));
}

TEST_F(ReportSchema, IsBrokenByWhatItForbids) {
  Json report = Json::parse(render_json(sample_report("full")));
  report["steps"]["count"] = "1204";
  report["verdict"]["status"] = "bad";
  report["findings"][0].erase("fix");
  report["run"]["hooks"]["1"] = 3;
  EXPECT_EQ(schema_.breaches(report).size(), 4U);
}

TEST(RenderJson, SaysWhatTheReportHolds) {
  const Json json = Json::parse(render_json(sample_report("full")));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["run"]["command"][4], "/data/my set");
  EXPECT_EQ(json["run"]["exit_code"], 0);
  EXPECT_EQ(json["run"]["signal"], nullptr);
  EXPECT_EQ(json["run"]["started"], "2026-07-02T09:41:03Z");
  EXPECT_EQ(json["run"]["duration_s"], 72.4);
  EXPECT_EQ(json["run"]["hooks"]["4242"], "active");
  EXPECT_EQ(json["steps"]["median_ms"], 48.2);
  EXPECT_EQ(json["steps"]["phases"]["input_wait"], 0.4137);
  EXPECT_EQ(json["verdict"]["rule"], "cpu_quota");
  EXPECT_EQ(json["verdict"]["status"], "established");
  EXPECT_EQ(json["findings"][0]["gain_ceiling"], 0.4137);  // from 0.41372
  EXPECT_EQ(json["findings"][0]["role"], "root");
  EXPECT_EQ(json["findings"][1]["role"], "consequence");
  EXPECT_EQ(json["findings"][1]["because_of"], "cpu_quota");
  EXPECT_EQ(json["not_seen"][2]["missing"][0], "bpf.reclaim: not permitted: needs CAP_BPF");
  EXPECT_EQ(json["resources"][1]["rank"], 1);
}

TEST(RenderJson, KeysComeInTheOrderOfTheContract) {
  const Json json = Json::parse(render_json(sample_report("full")));
  std::vector<std::string> keys;
  for (const auto& [key, unused] : json.items()) keys.push_back(key);
  keys.resize(9);
  EXPECT_THAT(keys, ::testing::ElementsAre("schema", "version", "run", "own_cost", "steps",
                                           "verdict", "findings", "not_fired", "not_seen"));
  EXPECT_EQ(json["steps"]["phases"].begin().key(), "input_wait");
}

TEST(RenderJson, WhatIsNotKnownIsNullNotZero) {
  const Json json = Json::parse(render_json({}));
  EXPECT_EQ(json["run"]["exit_code"], nullptr);
  EXPECT_EQ(json["run"]["started"], nullptr);
  EXPECT_EQ(json["steps"]["median_ms"], nullptr);
  EXPECT_TRUE(json["steps"]["phases"].empty());
  EXPECT_EQ(json["verdict"]["status"], "unknown");
  Report odd = sample_report("full");
  odd.steps.median_ms = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Json::parse(render_json(odd))["steps"]["median_ms"], nullptr);
}

TEST(RenderJson, HealthyAndUnknownNameNoRule) {
  EXPECT_EQ(Json::parse(render_json(sample_report("healthy")))["verdict"]["status"], "healthy");
  EXPECT_EQ(Json::parse(render_json(sample_report("unknown")))["verdict"]["status"], "unknown");
  EXPECT_EQ(Json::parse(render_json(sample_report("unknown")))["verdict"]["rule"], nullptr);
}

}  // namespace
}  // namespace bedplate::doctor
