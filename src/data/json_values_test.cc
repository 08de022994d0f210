// Samples as JSON: what is written can be read again, what cannot be held is refused.
#include "data/json_values.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/numbers.h"
#include "data/pack_source.h"
#include "data/test_bytes.h"

namespace bedplate::data {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

// `object` into a schema's columns and out again.
std::string through(std::string_view schema_text, std::string_view object) {
  const Schema schema = parse_schema(schema_text);
  std::vector<std::string> columns;
  encode_object(Json::parse(object), schema, columns);
  Sample sample;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Column& column = schema.columns()[i];
    sample.fields.push_back({column.name, column.dtype, Schema::shape_of(column, columns[i].size()),
                             bytes_of(columns[i])});
  }
  std::string line;
  append_json(sample, line);
  return line;
}

std::string refusal(std::string_view schema, std::string_view object) {
  try {
    through(schema, object);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JsonValues, EveryTypeComesBack) {
  EXPECT_EQ(through("a:i8,b:u64,c:bool", R"({"a":-128,"b":18446744073709551615,"c":true})"),
            R"({"a":-128,"b":18446744073709551615,"c":true})");
  EXPECT_EQ(through("m:u16[-1,2]", R"({"m":[[1,2],[3,65535]]})"), R"({"m":[[1,2],[3,65535]]})");
  EXPECT_EQ(through("m:u16[-1,2]", R"({"m":[]})"), R"({"m":[]})");
  EXPECT_EQ(through("h:f16,b:bf16,f:f32", R"({"h":0.5,"b":-3.0,"f":"NaN"})"),
            R"({"h":0.5,"b":-3.0,"f":"NaN"})");
  EXPECT_EQ(through("x:f64", R"({"x":"-Infinity"})"), R"({"x":"-Infinity"})");
  EXPECT_EQ(through("t:utf8,b:bytes", R"({"t":"ä\n\u0000","b":{"base64":"/wA="}})"),
            R"({"t":"ä\n\u0000","b":{"base64":"/wA="}})");
  EXPECT_EQ(through("t:utf8", R"({"t":{"a":[1]}})"), R"({"t":"{\"a\":[1]}"})");
}

TEST(JsonValues, WhatAColumnCannotHoldIsRefused) {
  EXPECT_THAT(refusal("a:u8", R"({"a":-1})"), HasSubstr("cannot hold -1"));
  EXPECT_THAT(refusal("a:u8", R"({"a":256})"), HasSubstr("cannot hold 256"));
  EXPECT_THAT(refusal("a:i64", R"({"a":9223372036854775808})"), HasSubstr("cannot hold"));
  EXPECT_THAT(refusal("a:i32", R"({"a":1.5})"), HasSubstr("cannot hold 1.5"));
  EXPECT_THAT(refusal("a:bool", R"({"a":1})"), HasSubstr("cannot hold 1"));
  EXPECT_THAT(refusal("a:u8[2]", R"({"a":[1]})"), HasSubstr("cannot hold [1]"));
  EXPECT_THAT(refusal("a:u8[2]", R"({"a":[1,[2]]})"), HasSubstr("cannot hold"));
  EXPECT_THAT(refusal("a:utf8", R"({"a":1})"), HasSubstr("cannot hold 1"));
  EXPECT_THAT(refusal("a:bytes", R"({"a":{"base64":"?"}})"), HasSubstr("cannot hold"));
  EXPECT_THAT(refusal("a:f16", R"({"a":65520})"), HasSubstr("cannot hold 65520"));
  EXPECT_THAT(refusal("a:f16[1]", R"({"a":[-1e6]})"), HasSubstr("cannot hold -1000000"));
  EXPECT_THAT(refusal("a:bf16", R"({"a":3.4e38})"), HasSubstr("cannot hold"));
  EXPECT_THAT(refusal("a:f32", R"({"a":1e39})"), HasSubstr("cannot hold 1e+39"));
  EXPECT_EQ(refusal("a:f16,b:bf16,c:f32", R"({"a":65504,"b":3.3e38,"c":3.4e38})"), "");
  EXPECT_EQ(refusal("a:f16,b:bf16,c:f32", R"({"a":"Infinity","b":"-Infinity","c":"NaN"})"), "");
  EXPECT_THAT(refusal("a:u8", R"({})"), HasSubstr("has no a"));
  EXPECT_THAT(refusal("a:u8", R"({"a":1,"b":2})"), HasSubstr("has a b"));
  EXPECT_THAT(refusal("a:u8", R"([1])"), HasSubstr("no object"));
}

TEST(JsonValues, Base64IsThatOfTheRfc) {
  EXPECT_EQ(to_base64(""), "");
  EXPECT_EQ(to_base64("f"), "Zg==");
  EXPECT_EQ(to_base64("fo"), "Zm8=");
  EXPECT_EQ(to_base64("foobar"), "Zm9vYmFy");
}

std::string typed(std::vector<std::string> lines) {
  JsonTyping typing;
  int number = 0;
  for (const std::string& line : lines)
    typing.add(Json::parse(line), fmt::format("line {}", ++number));
  std::string out;
  const Schema schema = typing.schema();
  for (const Column& column : schema.columns())
    out += fmt::format("{}{}:{}[{}]", out.empty() ? "" : " ", column.name, name(column.dtype),
                       fmt::join(column.shape, ","));
  return out;
}

TEST(JsonTyping, IsTheNarrowestThatHoldsAll) {
  EXPECT_EQ(typed({R"({"a":1})", R"({"a":-2})"}), "a:i64[]");
  EXPECT_EQ(typed({R"({"a":1})", R"({"a":18446744073709551615})"}), "a:u64[]");
  EXPECT_EQ(typed({R"({"a":1})", R"({"a":0.5})"}), "a:f64[]");
  EXPECT_EQ(typed({R"({"a":[1,2]})", R"({"a":[3,4]})"}), "a:i64[2]");
  EXPECT_EQ(typed({R"({"a":[1,2]})", R"({"a":[]})"}), "a:i64[-1]");
  EXPECT_EQ(typed({R"({"a":[]})", R"({"a":[[1,2]]})"}), "a:i64[-1,2]");
  EXPECT_EQ(typed({R"({"a":[[1],[2]]})", R"({"a":[[1,2]]})"}), "a:utf8[]");
  EXPECT_EQ(typed({R"({"a":["x"]})", R"({"a":{"b":1}})"}), "a:utf8[]");
  EXPECT_EQ(typed({R"({"b":true,"a":"x"})", R"({"a":"y","b":false})"}), "b:bool[] a:utf8[]");
}

TEST(JsonTyping, WhatDoesNotGoTogetherIsRefusedWithBothPlaces) {
  const auto refused = [](std::vector<std::string> lines) -> std::string {
    try {
      return typed(std::move(lines));
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refused({R"({"a":1})", R"({"a":"x"})"}),
              ::testing::AllOf(HasSubstr("line 2: a is text"), HasSubstr("line 1 it is a number")));
  EXPECT_THAT(refused({R"({"a":1})", R"({"a":null})"}), HasSubstr("line 2: a is null"));
  EXPECT_THAT(refused({R"({"a":1})", R"({"b":1})"}), HasSubstr("line 2 has no a"));
  EXPECT_THAT(refused({R"({"a":1})", R"({"a":1,"b":1})"}), HasSubstr("line 1 has no b"));
  EXPECT_THAT(refused({R"({"a":9007199254740993})", R"({"a":0.5})"}), HasSubstr("too large"));
  EXPECT_THAT(refused({R"({"a":18446744073709551615})", R"({"a":-1})"}), HasSubstr("too large"));
}

// Every f16 there is, and every midpoint between two of them, against the definition.
TEST(Numbers, HalvesRoundToTheNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = from_f16(half);
    ASSERT_EQ(to_f16(value), half);
    ASSERT_EQ(to_f16(-value), half | 0x8000);
    if (bits + 1 == 0x7C00) break;
    const float next = from_f16(static_cast<std::uint16_t>(bits + 1));
    const float middle = value + (next - value) / 2;
    ASSERT_EQ(to_f16(middle), bits % 2 == 0 ? half : half + 1) << bits;
    ASSERT_EQ(to_f16(std::nextafterf(middle, 0)), half) << bits;
    ASSERT_EQ(to_f16(std::nextafterf(middle, 1e9F)), half + 1) << bits;
  }
  EXPECT_EQ(from_f16(to_f16(1e9F)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(to_f16(65519.996F), 0x7BFF);
  EXPECT_TRUE(std::isnan(from_f16(to_f16(NAN))));
  EXPECT_EQ(to_bf16(1.0F), 0x3F80);
  EXPECT_EQ(to_bf16(1.00390625F), 0x3F80);  // a tie
  EXPECT_EQ(to_bf16(1.01171875F), 0x3F82);
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(NAN))));
}

TEST(ParseSchema, TakesWhatPeopleWriteAndSaysWhatIsWrong) {
  EXPECT_EQ(parse_schema("tokens:u16[2048], text : utf8"),
            Schema({{.name = "tokens", .dtype = Dtype::kU16, .shape = {2048}},
                    {.name = "text", .dtype = Dtype::kUtf8}}));
  EXPECT_EQ(parse_schema("m:f32[-1,3]").columns()[0].shape, (std::vector<std::int64_t>{-1, 3}));
  EXPECT_EQ(parse_schema(parse_schema("a:u8").to_json()), parse_schema("a:u8"));
  for (const char* wrong : {"", "a", "a:u7", "a:u8[", "a:u8[x]", "a:u8,,b:u8", "{\"columns\":3}"})
    EXPECT_THROW(parse_schema(wrong), Error) << wrong;
}

}  // namespace
}  // namespace bedplate::data
