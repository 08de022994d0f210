#include "data/order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "base/error.h"

namespace bedplate::data {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> all_of(const Order& order, std::int64_t samples) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < samples; ++i) out.push_back(order.at(i));
  return out;
}

TEST(Order, TakesEachSampleOnce) {
  for (const std::int64_t samples : {1, 2, 16, 17, 100, 1003}) {
    for (const std::int64_t block : {1, 4, 10, 2000}) {
      for (const std::int64_t window : {1, 7, 64, 5000}) {
        for (const std::int64_t lanes : {1, 2, 3, 8}) {
          const Order order({samples, 7, block, window, lanes}, 3);
          std::vector<std::int64_t> seen = all_of(order, samples);
          std::ranges::sort(seen);
          std::vector<std::int64_t> each(static_cast<std::size_t>(samples));
          std::iota(each.begin(), each.end(), 0);
          ASSERT_EQ(seen, each) << samples << " " << block << " " << window << " " << lanes;
        }
      }
    }
  }
}

TEST(Order, BlocksStayTogetherWithoutWindows) {
  const Order order({.samples = 10, .seed = 1, .block = 3}, 0);
  const auto all = all_of(order, 10);
  for (std::size_t i = 1; i < all.size(); ++i)
    EXPECT_TRUE(all[i] == all[i - 1] + 1 || all[i] % 3 == 0) << i;
}

TEST(Order, AWindowTouchesFewBlocks) {
  constexpr std::int64_t kBlock = 100;
  constexpr std::int64_t kWindow = 1000;
  const Order order({.samples = 100'050, .seed = 5, .block = kBlock, .window = kWindow}, 0);
  for (std::int64_t begin = 0; begin < 100'000; begin += kWindow) {
    std::set<std::int64_t> blocks;
    for (std::int64_t i = 0; i < kWindow; ++i) blocks.insert(order.at(begin + i) / kBlock);
    ASSERT_LE(blocks.size(), kWindow / kBlock + 2u);
  }
}

TEST(Order, LanesHaveBlocksOfTheirOwn) {
  constexpr std::int64_t kLanes = 4;
  constexpr std::int64_t kSamples = 40'000;
  const Order order({kSamples, 5, 100, 1000, kLanes}, 0);
  std::vector<std::set<std::int64_t>> blocks(kLanes);
  for (std::int64_t i = 0; i < kSamples; ++i) blocks[i % kLanes].insert(order.at(i) / 100);
  std::size_t sum = 0;
  for (const auto& one : blocks) sum += one.size();
  EXPECT_LE(sum, 400u + kLanes);  // only those at the seams are read twice
}

TEST(Order, EpochsAndSeedsDiffer) {
  const OrderOptions options{1000, 7, 10, 100, 1};
  const auto first = all_of(Order(options, 0), 1000);
  EXPECT_EQ(all_of(Order(options, 0), 1000), first);
  EXPECT_NE(all_of(Order(options, 1), 1000), first);
  EXPECT_NE(all_of(Order({1000, 8, 10, 100, 1}, 0), 1000), first);
}

TEST(Order, RefusesWhatIsNoOrder) {
  for (const OrderOptions& bad : {OrderOptions{-1, 0, 1, 1, 1}, OrderOptions{1, 0, 0, 1, 1},
                                  OrderOptions{1, 0, 1, 0, 1}, OrderOptions{1, 0, 1, 1, 0}})
    EXPECT_THROW(Order(bad, 0), Error);
  EXPECT_NO_THROW(Order({}, 0));
}

// What each rank gets until the epoch ends.
std::vector<std::vector<std::int64_t>> epoch_of(ShareOptions options,
                                                std::int64_t* consumed = nullptr,
                                                int steps = 1 << 30) {
  std::vector<std::vector<std::int64_t>> ranks(static_cast<std::size_t>(options.world_size));
  for (int step = 0; step < steps; ++step) {
    std::int64_t next = options.consumed;
    for (options.rank = 0; options.rank < options.world_size; ++options.rank) {
      const Share share = share_of(options);
      for (std::int64_t i = 0; i < share.count; ++i)
        ranks[static_cast<std::size_t>(options.rank)].push_back(share.position(i));
      next = share.next_consumed;
    }
    if (next == options.consumed) break;
    options.consumed = next;
  }
  if (consumed != nullptr) *consumed = options.consumed;
  return ranks;
}

TEST(ShareOf, TheTailIsPaddedDroppedOrUneven) {
  const ShareOptions options{.samples = 11, .world_size = 2, .batch_size = 2};
  auto padded = options;
  padded.tail = Tail::kPad;
  EXPECT_THAT(epoch_of(padded),
              ElementsAre(ElementsAre(0, 2, 4, 6, 8, 10), ElementsAre(1, 3, 5, 7, 9, 0)));
  auto dropped = options;
  dropped.tail = Tail::kDrop;
  EXPECT_THAT(epoch_of(dropped), ElementsAre(ElementsAre(0, 2, 4, 6), ElementsAre(1, 3, 5, 7)));
  auto uneven = options;
  uneven.tail = Tail::kUneven;
  EXPECT_THAT(epoch_of(uneven),
              ElementsAre(ElementsAre(0, 2, 4, 6, 8, 10), ElementsAre(1, 3, 5, 7, 9)));
  EXPECT_EQ(steps_of_epoch(padded), 3);
  EXPECT_EQ(steps_of_epoch(dropped), 2);
  EXPECT_EQ(steps_of_epoch(uneven), 3);
}

TEST(ShareOf, EveryRankGetsEquallyMany) {
  for (const std::int64_t samples : {0, 1, 2, 3, 16, 1003}) {
    for (std::int64_t world = 1; world <= 5; ++world) {
      for (const Tail tail : {Tail::kPad, Tail::kDrop, Tail::kUneven}) {
        const auto ranks = epoch_of({samples, 0, world, 0, 3, tail});
        const auto [least, most] =
            std::ranges::minmax_element(ranks, {}, [](const auto& one) { return one.size(); });
        ASSERT_LE(most->size() - least->size(), tail == Tail::kUneven ? 1u : 0u);
      }
    }
  }
}

TEST(ShareOf, AnyNumberOfRanksGoesOnWhereAnyOtherStopped) {
  for (const std::int64_t samples : {16, 1003}) {
    for (const std::int64_t stop_after : {0, 1, 2, 5}) {
      for (std::int64_t before = 1; before <= 4; ++before) {
        for (std::int64_t after = 1; after <= 4; ++after) {
          std::int64_t consumed = 0;
          auto positions = epoch_of({samples, 0, before, 0, 2, Tail::kUneven}, &consumed,
                                    static_cast<int>(stop_after));
          const auto rest = epoch_of({samples, consumed, after, 0, 3, Tail::kUneven});
          positions.insert(positions.end(), rest.begin(), rest.end());
          std::vector<std::int64_t> all;
          for (const auto& one : positions) all.insert(all.end(), one.begin(), one.end());
          std::ranges::sort(all);
          std::vector<std::int64_t> each(static_cast<std::size_t>(samples));
          std::iota(each.begin(), each.end(), 0);
          ASSERT_EQ(all, each);
        }
      }
    }
  }
}

TEST(ShareOf, ContradictionsAreNamed) {
  for (const ShareOptions& bad :
       {ShareOptions{.samples = 10, .consumed = 11}, ShareOptions{.samples = 10, .world_size = 0},
        ShareOptions{.samples = 10, .world_size = 2, .rank = 2},
        ShareOptions{.samples = 10, .rank = -1}, ShareOptions{.samples = 10, .batch_size = 0},
        ShareOptions{.samples = -1},
        ShareOptions{.samples = 10, .world_size = 1 << 20, .batch_size = INT64_MAX / 2}})
    EXPECT_THROW(share_of(bad), Error);
}

TEST(Order, PositionOfIsTheInverse) {
  for (const std::int64_t samples : {1, 7, 100, 1003}) {
    for (const std::int64_t block : {1, 3, 64, 2000}) {
      for (const std::int64_t window : {1, 10, 5000}) {
        for (const std::int64_t lanes : {1, 3}) {
          const Order order(
              {.samples = samples, .seed = 5, .block = block, .window = window, .lanes = lanes}, 2);
          for (std::int64_t i = 0; i < samples; ++i) ASSERT_EQ(order.position_of(order.at(i)), i);
        }
      }
    }
  }
}

}  // namespace
TEST(Order, PreparingChangesNothing) {
  for (const std::int64_t samples : {0, 1, 5, 1000, 12'345}) {
    for (const std::int64_t block : {1, 3, 64, 20'000}) {
      const OrderOptions options{.samples = samples, .seed = 9, .block = block, .window = 100};
      const Order order(options, 4);
      Order prepared(options, 4);
      prepared.prepare();
      for (std::int64_t i = 0; i < samples; ++i) ASSERT_EQ(prepared.at(i), order.at(i));
    }
  }
}

}  // namespace bedplate::data
