#include "data/mix.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"

namespace bedplate::data {
namespace {

using ::testing::HasSubstr;

TEST(Mix, DrawsInTheSharesOfTheWeightsFromTheFirstThousandOn) {
  const Mix mix({{1'000'000, 0.7}, {1'000'000, 0.2}, {1'000'000, 0.1}}, 7);
  for (const std::int64_t positions : {1024, 10'240, 1'000'000}) {
    EXPECT_NEAR(static_cast<double>(mix.drawn(0, positions)) / static_cast<double>(positions), 0.7,
                0.001);
    EXPECT_NEAR(static_cast<double>(mix.drawn(1, positions)) / static_cast<double>(positions), 0.2,
                0.001);
  }
}

TEST(Mix, EachSourceComesInItsOwnOrderAndBeginsAnew) {
  const Mix mix({{1000, 3}, {7, 1}}, 1);
  std::int64_t next[2] = {0, 0};
  for (std::int64_t position = 0; position < 5000; ++position) {
    ASSERT_EQ(mix.drawn(0, position), next[0]);
    ASSERT_EQ(mix.drawn(1, position), next[1]);
    const Mix::Draw draw = mix.at(position);
    const std::int64_t samples = draw.source == 0 ? 1000 : 7;
    ASSERT_EQ(draw.epoch * samples + draw.position, next[draw.source]++);
    ASSERT_LT(draw.position, samples);
  }
}

TEST(Mix, OneSourceIsThatSource) {
  const Mix mix({{10, 0.001}}, 1);
  for (std::int64_t i = 0; i < 30; ++i) {
    EXPECT_EQ(mix.at(i).source, 0u);
    EXPECT_EQ(mix.at(i).epoch, i / 10);
    EXPECT_EQ(mix.at(i).position, i % 10);
  }
}

TEST(Mix, RefusesWhatIsNoMix) {
  const auto refusal = [](std::vector<MixSource> sources) -> std::string {
    try {
      Mix(std::move(sources), 0);
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  };
  EXPECT_THAT(refusal({}), HasSubstr("not 0"));
  EXPECT_THAT(refusal({{1, -1}}), HasSubstr("weight -1"));
  EXPECT_THAT(refusal({{1, NAN}}), HasSubstr("nan"));
  EXPECT_THAT(refusal({{1, 0}}), HasSubstr("add up to 0"));
  EXPECT_THAT(refusal({{0, 1}}), HasSubstr("no samples"));
  EXPECT_THAT(refusal({{1, 1}, {1, 1e-5}}), HasSubstr("never come"));
  EXPECT_EQ(refusal({{1, 1}, {0, 0}}), "taken");
}

}  // namespace
}  // namespace bedplate::data
