// What is said about shards is so.
#include "data/look.h"

#include "data/pack_fixture.h"

namespace bedplate::data {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

class Look : public PackTest {};

TEST_F(Look, ShardsAreListedWithTheirSamples) {
  write_pictures("in", 25);
  pack_all({"in"}, "out", {.shard_samples = 10});
  const std::string urls[] = {path("out") + "/"};
  const auto shards = list_shards(urls, {}, watch_);
  ASSERT_EQ(shards.size(), 3u);
  EXPECT_EQ(shards[2].samples, 5);
  EXPECT_EQ(shards[0].format, "packed");
  EXPECT_EQ(shards[0].bytes, static_cast<std::int64_t>(files("out").at("000000.shard").size()));
}

TEST_F(Look, FieldsAndSizesAreThoseOfTheSamples) {
  write("in.jsonl",
        "{\"v\": [1, 2], \"t\": \"a\"}\n{\"v\": [1], \"t\": \"abc\"}\n{\"v\": [], \"t\": \"\"}\n");
  pack_all({"in.jsonl"}, "out", {});
  const std::string urls[] = {path("out") + "/"};
  const DataFacts facts = describe(urls, {}, 1000, watch_);
  EXPECT_EQ(facts.samples, 3);
  EXPECT_EQ(facts.looked_at, 3);
  EXPECT_THAT(facts.formats, ElementsAre("packed"));
  ASSERT_EQ(facts.fields.size(), 2u);
  EXPECT_EQ(facts.fields[0].name, "t");
  EXPECT_EQ(facts.fields[0].most_bytes, 3);
  EXPECT_DOUBLE_EQ(facts.fields[0].mean_bytes, 4.0 / 3);
  EXPECT_EQ(facts.fields[1].dtype, Dtype::kI64);
  EXPECT_THAT(facts.fields[1].shape, ElementsAre(kAny));
  // Records: two lengths of u32, then 8 bytes a number, then the text.
  EXPECT_THAT(facts.by_size, ElementsAre(Pair(3, 1), Pair(4, 2)));
  EXPECT_EQ(facts.least, 8);
  EXPECT_EQ(facts.most, 8 + 16 + 1);
  EXPECT_EQ(describe(urls, {}, 2, watch_).looked_at, 2);
}

TEST_F(Look, SamplesComeInTheirOrderAcrossShards) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += fmt::format("{}\n", i);
  write("in.txt", lines);
  pack_all({"in.txt"}, "out", {.shard_samples = 300});
  int next = 250;
  for_each_sample(
      *open("out"), 250, 750,
      [&](std::int64_t number, const Sample& sample) {
        EXPECT_EQ(number, next);
        EXPECT_EQ(text_of(sample.fields[0].bytes), fmt::format("{}", next++));
      },
      watch_);
  EXPECT_EQ(next, 750);
  const auto nothing = [](std::int64_t, const Sample&) {};
  EXPECT_THROW(for_each_sample(*open("out"), 0, 1001, nothing, watch_), Error);
}

}  // namespace
}  // namespace bedplate::data
