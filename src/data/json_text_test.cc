// JSON of others: what cannot be kept as it is ends in an error, whoever reads it.
#include "data/json_text.h"

#include <gmock/gmock.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "data/loader.h"
#include "data/pack_record.h"
#include "data/schema.h"

namespace bedplate::data {
namespace {

using ::testing::HasSubstr;

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

std::string arrays(int depth) { return repeated("[", depth) + repeated("]", depth); }
std::string objects(int depth) { return repeated(R"({"a":)", depth) + "1" + repeated("}", depth); }

std::string refusal(const std::function<void()>& what, Code code = Code::kInvalid) {
  try {
    what();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "taken";
}

TEST(JsonText, IsWhatItSays) {
  for (const char* text :
       {"null", "true", "-3", "18446744073709551615", "-9223372036854775808", "0.5", "1e300",
        "\"ä\"", "[]", "{}", R"({"b":[1,{"a":null},[]],"a":{"c":[[2],{}]},"d":"\u0000"})"}) {
    EXPECT_EQ(parse_json(text), nlohmann::ordered_json::parse(text)) << text;
    EXPECT_EQ(parse_json(text).dump(), nlohmann::ordered_json::parse(text).dump()) << text;
    check_json(text);
  }
}

TEST(JsonText, WhatIsNoJsonIsRefusedWithItsPlace) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":}", "nul", "1 2", "\"\xFF\"", "01", "1e999"}) {
    EXPECT_THAT(refusal([&] { parse_json(text); }), HasSubstr("it is no JSON: ")) << text;
    EXPECT_THAT(refusal([&] { check_json(text); }), HasSubstr("it is no JSON: ")) << text;
  }
  EXPECT_THAT(refusal([] { parse_json("[1,\n2,}"); }), HasSubstr("line 2"));
}

TEST(JsonText, DepthHasAnEnd) {
  for (const auto& nested : {arrays, objects}) {
    EXPECT_EQ(parse_json(nested(kMostJsonDepth)).dump(), nested(kMostJsonDepth));
    check_json(nested(kMostJsonDepth));
    for (const int depth : {kMostJsonDepth + 1, 100'000, 1'000'000}) {
      const std::string deep = nested(depth);
      EXPECT_THAT(refusal([&] { parse_json(deep); }), HasSubstr("more than 200"));
      EXPECT_THAT(refusal([&] { check_json(deep); }), HasSubstr("more than 200"));
    }
  }
  // Of those that are open at once: a thousand beside each other are no depth.
  EXPECT_EQ(parse_json("[" + repeated("[[{}]],", 1000) + "0]").size(), 1001u);
}

TEST(JsonText, AnIntegerThatSixtyFourBitsDoNotHoldIsNotRounded) {
  for (const char* text : {"18446744073709551616", "-9223372036854775809",
                           "100000000000000000000000000000000000000000000000000000000"}) {
    for (const char* around : {"{}", "[1,{}]", R"({{"a":{{"b":{}}}}})"}) {
      const std::string json = fmt::format(fmt::runtime(around), text);
      EXPECT_THAT(refusal([&] { parse_json(json); }),
                  HasSubstr(fmt::format("integer {}", std::string_view(text).substr(0, 19))));
      check_json(json);  // is kept as it is
    }
  }
  EXPECT_EQ(parse_json("18446744073709551616.0"), 18446744073709551616.0);
  EXPECT_EQ(parse_json("1E20"), 1e20);
}

TEST(JsonText, ANameThatComesTwiceIsRefused) {
  EXPECT_THAT(refusal([] { parse_json(R"({"a":1,"b":2,"a":3})"); }), HasSubstr("has a twice"));
  EXPECT_THAT(refusal([] { parse_json(R"([{"x":{"y":{},"y":[]}}])"); }), HasSubstr("has y twice"));
  EXPECT_EQ(parse_json(R"([{"a":1},{"a":{"a":2}}])").size(), 2u);
  check_json(R"({"a":1,"a":2})");
}

// All who read JSON in this room: hostile text ends in their own error.
TEST(JsonText, EveryReaderSetsTheLimits) {
  const std::string record_begin =
      R"({"bedplate_pack":1,"state":"packing","options":{},"planned_samples":[1],)"
      R"("source":{"objects":1,"bytes":1,"fingerprint":"0"},"schema":)";
  const std::string state_begin =
      R"({"version":1,"epoch":0,"consumed":0,"data":"0000000000000000","more":)";
  const std::string schema_begin = R"({"columns":[{"name":"a","dtype":"u8"}],"more":)";
  EXPECT_NO_THROW(parse_pack_record(record_begin + "1}"));
  EXPECT_NO_THROW(LoaderState::from_json(state_begin + "1}"));
  EXPECT_NO_THROW(Schema::from_json(schema_begin + "1}"));
  for (const std::string& bad :
       {arrays(200'000), objects(200'000), std::string("1,\"more\":2,\"more\":3"),
        std::string("18446744073709551616")}) {
    const std::string end = bad + "}";
    EXPECT_NE(refusal([&] { parse_pack_record(record_begin + end); }, Code::kCorrupt), "taken");
    EXPECT_NE(refusal([&] { LoaderState::from_json(state_begin + end); }, Code::kCorrupt), "taken");
    EXPECT_NE(refusal([&] { Schema::from_json(schema_begin + end); }, Code::kCorrupt), "taken");
  }
}

}  // namespace
}  // namespace bedplate::data
