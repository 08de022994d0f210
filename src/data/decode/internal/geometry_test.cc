// Which part of a picture is taken.
#include "data/decode/internal/geometry.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

namespace bedplate::data {
namespace {

using ::testing::ElementsAre;

Region random_region(int width, int height, const ImageSpec& spec, std::uint64_t seed) {
  return plan_of({.width = width, .height = height, .channels = 3}, spec, seed).within;
}

const ImageSpec kRandom{.fit = Fit::kRandomResizedCrop, .flip = 0.5};

TEST(RandomResizedCrop, LiesInsideAndKeepsItsRanges) {
  double area = 0;
  double ratio = 0;
  int mirrored = 0;
  constexpr int kDraws = 20'000;
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    const Plan plan = plan_of({.width = 500, .height = 375, .channels = 3}, kRandom, seed);
    const Region& r = plan.within;
    ASSERT_GE(r.left, 0);
    ASSERT_GE(r.top, 0);
    ASSERT_LE(r.left + r.width, 500);
    ASSERT_LE(r.top + r.height, 375);
    const double share = r.width * r.height / (500.0 * 375.0);
    ASSERT_GT(share, 0.078);
    ASSERT_NEAR(r.width / static_cast<double>(r.height), 1.0, 0.36);
    area += share;
    ratio += std::log(r.width / static_cast<double>(r.height));
    mirrored += plan.flip_x;
  }
  // torchvision 0.28's get_params of the same picture: 0.4341 and 0.0313 on average over 60,000.
  EXPECT_NEAR(area / kDraws, 0.4341, 0.006);
  EXPECT_NEAR(ratio / kDraws, 0.0313, 0.006);
  EXPECT_NEAR(mirrored / static_cast<double>(kDraws), 0.5, 0.02);
}

TEST(RandomResizedCrop, TakesTheMiddleWhereNoDrawFits) {
  EXPECT_EQ(random_region(1000, 10, kRandom, 3), (Region{493, 0, 13, 10}));
  EXPECT_EQ(random_region(10, 1000, kRandom, 3), (Region{0, 493, 10, 13}));
  EXPECT_EQ(random_region(1, 1, kRandom, 3), (Region{0, 0, 1, 1}));
}

TEST(RandomResizedCrop, IsTheSameForEver) {
  std::vector<std::vector<int>> got;
  for (const std::uint64_t seed : {0ULL, 1ULL, 0xffffffffffffffffULL}) {
    const Region r = random_region(500, 375, kRandom, seed);
    got.push_back({r.left, r.top, r.width, r.height});
  }
  EXPECT_THAT(got, ElementsAre(ElementsAre(68, 68, 337, 305), ElementsAre(35, 15, 377, 350),
                               ElementsAre(36, 95, 140, 128)));
}

TEST(CentreCrop, IsThatOfResizeAndCenterCrop) {
  // torchvision: 500 x 375 → Resize(256) → 341 x 256 → CenterCrop(224) at left 58, top 16.
  const Plan plan = plan_of({.width = 500, .height = 375, .channels = 3},
                            {.fit = Fit::kCenterCrop, .resize = 256}, 0);
  EXPECT_NEAR(plan.box.left, 58 * 500.0 / 341, 1e-9);
  EXPECT_NEAR(plan.box.top, 16 * 375.0 / 256, 1e-9);
  EXPECT_NEAR(plan.box.width, 224 * 500.0 / 341, 1e-9);
  EXPECT_NEAR(plan.box.height, 224 * 375.0 / 256, 1e-9);
}

TEST(CentreCrop, WithoutASizeCoversTheOutput) {
  const Plan plan = plan_of({.width = 500, .height = 375, .channels = 3},
                            {.height = 100, .width = 100, .fit = Fit::kCenterCrop}, 0);
  EXPECT_NEAR(plan.box.height, 375, 1e-9);
  EXPECT_NEAR(plan.box.width, 375, 1e-9);
  EXPECT_NEAR(plan.box.left, 62.5, 2);
}

}  // namespace
}  // namespace bedplate::data
