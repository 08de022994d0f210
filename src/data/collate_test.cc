// From fields to columns: what fits, what is converted, what is refused and how.
#include "data/collate.h"

#include <gmock/gmock.h>

#include <cstring>

#include "base/error.h"
#include "data/test_bytes.h"

namespace bedplate::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
Field numbers(std::string name, Dtype dtype, const std::vector<T>& values) {
  return {std::move(name), dtype, {std::ssize(values)}, std::as_bytes(std::span(values))};
}
Field text(std::string name, std::string_view value) {
  return {std::move(name), Dtype::kBytes, {std::ssize(value)}, bytes_of(value)};
}
Sample sample_of(std::vector<Field> fields) {
  Sample out;
  out.fields = std::move(fields);
  return out;
}

// One batch of these samples.
Batch collated(const std::vector<FieldSpec>& specs, const std::vector<Sample>& samples) {
  const Collator collator(specs, samples.at(0));
  const auto rows = std::ssize(samples);
  Batch batch;
  collator.lay_out(rows, std::make_shared<Slab>(collator.slab_bytes(rows)), batch);
  for (std::int64_t i = 0; i < rows; ++i)
    collator.put(samples[static_cast<std::size_t>(i)], i, 0, batch);
  collator.finish(batch);
  return batch;
}

template <typename T>
std::vector<T> values(const BatchColumn& column) {
  std::vector<T> out(column.data.size() / sizeof(T));
  std::memcpy(out.data(), column.data.data(), column.data.size());
  return out;
}

std::string refusal(const std::vector<FieldSpec>& specs, const std::vector<Sample>& samples) {
  try {
    collated(specs, samples);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Collate, TakesAllFieldsAsTheyAre) {
  const std::vector<std::int32_t> a = {1, 2};
  const std::vector<std::int32_t> b = {3, 4};
  const Batch batch = collated({}, {sample_of({numbers("x", Dtype::kI32, a), text("t", "one")}),
                                    sample_of({numbers("x", Dtype::kI32, b), text("t", "")})});
  ASSERT_EQ(batch.columns.size(), 2U);
  EXPECT_EQ(batch.columns[0].name, "x");
  EXPECT_THAT(batch.columns[0].shape, ElementsAre(2));
  EXPECT_THAT(values<std::int32_t>(batch.columns[0]), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(batch.columns[1].variable());
  EXPECT_EQ(text_of(batch.columns[1].row(0)), "one");
  EXPECT_EQ(text_of(batch.columns[1].row(1)), "");
}

TEST(Collate, ColumnsBeginAtCacheLines) {
  const std::vector<std::uint8_t> one = {7};
  const Batch batch =
      collated({}, {sample_of({numbers("a", Dtype::kU8, one), numbers("b", Dtype::kU8, one)})});
  for (const BatchColumn& column : batch.columns)
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(column.data.data()) % 64, 0U);
}

TEST(Collate, NumbersComeFromTextAndFromOtherTypes) {
  const FieldSpec spec{.name = "n", .kind = FieldKind::kNumber, .dtype = Dtype::kI32};
  EXPECT_THAT(values<std::int32_t>(
                  collated({spec}, {sample_of({text("n", " 12\n")}), sample_of({text("n", "-3")})})
                      .columns[0]),
              ElementsAre(12, -3));
  EXPECT_THAT(refusal({spec}, {sample_of({text("n", "3.5")})}), HasSubstr("\"3.5\" is no number"));
  EXPECT_THAT(refusal({spec}, {sample_of({text("n", "4000000000")})}), HasSubstr("range"));
  EXPECT_THAT(refusal({spec}, {sample_of({text("n", "")})}), HasSubstr("no number"));
  const std::vector<std::int64_t> large = {1LL << 40};
  EXPECT_THAT(refusal({spec}, {sample_of({numbers("n", Dtype::kI64, large)})}),
              HasSubstr("does not fit i32"));
  const std::vector<double> whole = {5};
  EXPECT_THAT(values<std::int32_t>(
                  collated({spec}, {sample_of({numbers("n", Dtype::kF64, whole)})}).columns[0]),
              ElementsAre(5));
  const FieldSpec real{.name = "n", .kind = FieldKind::kNumber, .dtype = Dtype::kF32};
  EXPECT_THAT(values<float>(collated({real}, {sample_of({text("n", "1e-3")})}).columns[0]),
              ElementsAre(1e-3F));
}

TEST(Collate, RowsOfDifferentLengthArePaddedCutOrRagged) {
  const std::vector<std::int16_t> a = {1, 2, 3};
  const std::vector<std::int16_t> b = {4};
  const std::vector<Sample> samples = {sample_of({numbers("x", Dtype::kI16, a)}),
                                       sample_of({numbers("x", Dtype::kI16, b)})};
  EXPECT_THAT(refusal({{.name = "x"}}, samples), HasSubstr("pad() or ragged()"));
  const FieldSpec padded{.name = "x", .kind = FieldKind::kPadded, .length = 2, .fill = -100};
  EXPECT_THAT(values<std::int16_t>(collated({padded}, samples).columns[0]),
              ElementsAre(1, 2, 4, -100));
  const FieldSpec ragged{.name = "x", .kind = FieldKind::kRagged};
  const Batch batch = collated({ragged}, samples);
  EXPECT_THAT(batch.columns[0].offsets, ElementsAre(0, 6, 8));
  EXPECT_THAT(values<std::int16_t>(batch.columns[0]), ElementsAre(1, 2, 3, 4));
  const FieldSpec wrong{.name = "x", .kind = FieldKind::kPadded, .length = 2, .fill = 1e9};
  EXPECT_THAT(refusal({wrong}, samples), HasSubstr("no i16"));
}

TEST(Collate, TakesTheFirstNameThatIsThere) {
  const Batch batch = collated({{.name = "jpg|png", .as = "picture"}},
                               {sample_of({text("jpg", "j")}), sample_of({text("png", "p")})});
  EXPECT_EQ(batch.columns[0].name, "picture");
  EXPECT_EQ(text_of(batch.columns[0].row(1)), "p");
  EXPECT_THAT(refusal({{.name = "jpg|png"}}, {sample_of({text("gif", "g")})}),
              HasSubstr("no field jpg or png; the sample has gif"));
  EXPECT_THAT(refusal({{.name = "a", .as = "c"}, {.name = "b", .as = "c"}},
                      {sample_of({text("a", ""), text("b", "")})}),
              HasSubstr("two fields"));
}

TEST(Collate, ARowCanBeRepeated) {
  const std::vector<std::int64_t> one = {1};
  const Sample sample = sample_of({numbers("x", Dtype::kI64, one), text("t", "abc")});
  const Collator collator({}, sample);
  Batch batch;
  collator.lay_out(3, std::make_shared<Slab>(collator.slab_bytes(3)), batch);
  collator.put(sample, 0, 0, batch);
  collator.repeat(0, 1, batch);
  collator.repeat(1, 2, batch);
  collator.finish(batch);
  EXPECT_THAT(values<std::int64_t>(batch.columns[0]), ElementsAre(1, 1, 1));
  EXPECT_EQ(text_of(batch.columns[1].row(2)), "abc");
}

}  // namespace
}  // namespace bedplate::data
