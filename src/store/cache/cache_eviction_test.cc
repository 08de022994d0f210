// What stays and what leaves.

#include "store/cache/cache_fixture.h"

namespace bedplate::store {
namespace {

// An order in which `blocks` of an object are read one after the other, epoch after epoch.
class Cyclic : public NextUse {
 public:
  explicit Cyclic(std::int64_t blocks) : blocks_(blocks) {}
  std::uint64_t order() const override { return 17; }
  std::int64_t position() const override { return position_; }
  std::optional<std::int64_t> next_use(std::string_view, std::string_view, std::int64_t offset,
                                       std::int64_t) const override {
    const std::int64_t now = position_;
    const std::int64_t next = now / blocks_ * blocks_ + offset / kBlock;
    return next > now ? next : next + blocks_;
  }
  void at(std::int64_t position) { position_ = position; }

 private:
  std::int64_t blocks_;
  std::atomic<std::int64_t> position_{0};
};

TEST_F(CacheTest, ACyclicScanOverTwiceTheCacheHitsWhenTheOrderIsKnown) {
  constexpr std::int64_t kBlocks = 128;
  const std::string bytes = pattern(kBlocks * kBlock);
  put(*inner_, "a", bytes);
  const std::string version = version_of("a");
  for (const bool known : {true, false}) {
    CacheOptions half = options(kBlocks / 2 * kBlock);
    half.folder = folder_.path() / (known ? "known" : "unknown");
    const auto cache = Cache::open(half);
    const auto store = cache->over(origin());
    const auto order = std::make_shared<Cyclic>(kBlocks);
    if (known) cache->follow(order);
    for (std::int64_t i = 0; i < 3 * kBlocks; ++i) {
      if (i == kBlocks || i == 2 * kBlocks) shared_->reads = 0;
      order->at(i);
      const std::int64_t at = i % kBlocks * kBlock;
      ASSERT_EQ(part(*store, "a", at, 1000, version),
                bytes.substr(static_cast<std::size_t>(at), 1000));
      if (i % kBlocks < kBlocks - 1 || i < kBlocks) continue;
      const double hits = 1 - static_cast<double>(shared_->reads) / kBlocks;
      if (known)
        EXPECT_GE(hits, 0.45) << i;
      else
        EXPECT_LE(hits, 0.1) << i;
      RecordProperty(known ? "known" : "unknown", fmt::format("{:.3f}", hits));
    }
  }
}

class Soon : public Cyclic {
 public:
  Soon(std::int64_t blocks, std::int64_t ahead) : Cyclic(blocks), ahead_(ahead) {}
  std::int64_t fetch_ahead() const override { return ahead_; }

 private:
  std::int64_t ahead_;
};

// Nine blocks and a bit, in parts of four: [0, 4) and all the rest.
TEST_F(CacheTest, WhatAnOrderUsesSoonIsFetchedInOneRequestWithWhatLiesBesideIt) {
  const std::string bytes = pattern(9 * kBlock + 100);
  put(*inner_, "a", bytes);
  const std::string version = version_of("a");
  const auto cache = Cache::open(options(70 * kBlock));
  const auto store = cache->over(origin());
  const auto order = std::make_shared<Soon>(10, 20);
  cache->follow(order);
  const auto read = [&](std::int64_t block) {
    ASSERT_EQ(part(*store, "a", block * kBlock, 50, version),
              bytes.substr(static_cast<std::size_t>(block * kBlock), 50));
  };
  read(2);
  EXPECT_EQ(shared_->reads, 1);
  EXPECT_EQ(shared_->bytes, 4 * kBlock);
  for (const std::int64_t there : {0, 1, 3}) read(there);
  EXPECT_EQ(shared_->reads, 1);
  read(9);
  EXPECT_EQ(shared_->reads, 2);
  EXPECT_EQ(shared_->bytes, std::ssize(bytes)) << "nothing twice, the short end with the others";
  for (std::int64_t block = 0; block < 10; ++block) read(block);
  EXPECT_EQ(shared_->reads, 2);
  EXPECT_EQ(cache->counters().misses, 10);
  EXPECT_EQ(cache->counters().origin_reads, 2);
}

TEST_F(CacheTest, WhatIsUsedLaterOrWhatMayNotStayIsNotFetchedBesideOthers) {
  struct Case {
    std::int64_t ahead;
    std::int64_t room;  // blocks
    std::int64_t fetched;
  };
  const std::string bytes = pattern(8 * kBlock);
  put(*inner_, "a", bytes);
  for (const Case& one : {Case{0, 70, 1}, Case{1, 70, 2}, Case{20, 70, 4}, Case{20, 10, 1}}) {
    CacheOptions given = options(one.room * kBlock);
    given.folder = folder_.path() / fmt::format("{}-{}", one.ahead, one.room);
    const auto cache = Cache::open(given);
    const auto store = cache->over(origin());
    const auto order = std::make_shared<Soon>(8, one.ahead);
    order->at(-1);
    cache->follow(order);
    shared_->bytes = 0;
    part(*store, "a", kBlock, 10, version_of("a"));
    EXPECT_EQ(shared_->bytes, one.fetched * kBlock) << one.ahead << " in " << one.room;
  }
}

// Objects 0, 1, … that are read one after the other, epoch after epoch.
class CyclicObjects : public NextUse {
 public:
  explicit CyclicObjects(std::int64_t objects) : objects_(objects) {}
  std::uint64_t order() const override { return 18; }
  std::int64_t position() const override { return position_; }
  std::optional<std::int64_t> next_use(std::string_view, std::string_view key, std::int64_t,
                                       std::int64_t) const override {
    const std::int64_t next = position_ / objects_ * objects_ + std::stoll(std::string(key));
    return next > position_ ? next : next + objects_;
  }
  void at(std::int64_t position) { position_ = position; }

 private:
  std::int64_t objects_;
  std::atomic<std::int64_t> position_{0};
};

// So many that they are not looked at for each choice, and small: slots are short before bytes are.
TEST_F(CacheTest, AmongThousandsOfBlocksTheChoiceIsNearlyAsGood) {
  constexpr std::int64_t kObjects = 10'000;
  std::vector<std::string> versions;
  for (std::int64_t i = 0; i < kObjects; ++i)
    versions.push_back(put(*inner_, std::to_string(i), fmt::format("object {}", i)).version);
  const auto cache = Cache::open(options(kObjects / 2 * kBlock / 8));
  const auto store = cache->over(origin());
  const auto order = std::make_shared<CyclicObjects>(kObjects);
  cache->follow(order);
  for (std::int64_t i = 0; i < 2 * kObjects; ++i) {
    if (i == kObjects) shared_->reads = 0;
    order->at(i);
    const std::int64_t at = i % kObjects;
    const std::string bytes = fmt::format("object {}", at);
    ASSERT_EQ(
        part(*store, std::to_string(at), 0, bytes.size(), versions[static_cast<std::size_t>(at)]),
        bytes);
  }
  const double hits = 1 - static_cast<double>(shared_->reads) / kObjects;
  EXPECT_GE(hits, 0.4);
  EXPECT_EQ(cache->counters().pass_throughs, 0);
  RecordProperty("hits", fmt::format("{:.3f}", hits));
}

TEST_F(CacheTest, ASlowAndAFastReaderOfOneOrderBothReadTheRightBytes) {
  constexpr std::int64_t kBlocks = 64;
  const std::string bytes = pattern(kBlocks * kBlock);
  put(*inner_, "a", bytes);
  const std::string version = version_of("a");
  in_children(3, [&](int child) {
    const auto cache = Cache::open(options(12 * kBlock));
    const auto store = cache->over(origin());
    const auto order = std::make_shared<Cyclic>(kBlocks);
    cache->follow(order);
    const std::int64_t epochs = child == 0 ? 1 : 4;  // the first one is slow
    for (std::int64_t i = 0; i < epochs * kBlocks; ++i) {
      order->at(i);
      const std::int64_t at = i % kBlocks * kBlock;
      if (part(*store, "a", at, kBlock, version) !=
          bytes.substr(static_cast<std::size_t>(at), kBlock))
        throw Error(Code::kCorrupt, "wrong bytes");
      if (child == 0) ::usleep(2000);
    }
  });
  EXPECT_LE(disk_bytes(), 13 * kBlock);
}

TEST_F(CacheTest, WhatIsReadAgainOutlivesAScanWhenNoOrderIsKnown) {
  put(*inner_, "hot", pattern(8 * kBlock));
  put(*inner_, "scan", pattern(200 * kBlock, 2));
  const auto cache = Cache::open(options(40 * kBlock));
  const auto store = cache->over(origin());
  const std::string hot = version_of("hot");
  const std::string scan = version_of("scan");
  for (int i = 0; i < 200; ++i) {
    for (int k = 0; k < 8 && i % 10 == 0; ++k) part(*store, "hot", k * kBlock, 100, hot);
    part(*store, "scan", i * kBlock, 100, scan);
  }
  shared_->reads = 0;
  for (int k = 0; k < 8; ++k) part(*store, "hot", k * kBlock, 100, hot);
  EXPECT_EQ(shared_->reads, 0);
}

TEST_F(CacheTest, ASmallerCapIsKeptFromItsFirstMomentOn) {
  put(*inner_, "a", pattern(40 * kBlock));
  get(*Cache::open(options(64 * kBlock))->over(origin()), "a");
  EXPECT_GT(disk_bytes(), 40 * kBlock);
  Cache::open(options(20 * kBlock));
  EXPECT_LE(disk_bytes(), 20 * kBlock);
}

TEST_F(CacheTest, AnObjectLargerThanTheCapIsReadThroughIt) {
  const std::string bytes = pattern(40 * kBlock);
  put(*inner_, "a", bytes);
  const auto store = Cache::open(options(10 * kBlock))->over(origin());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(get(*store, "a") == bytes);
  EXPECT_LE(disk_bytes(), 11 * kBlock);
}

TEST_F(CacheTest, ACacheThatHoldsNoBlockIsPassedBy) {
  const std::string bytes = pattern(5 * kBlock);
  put(*inner_, "a", bytes);
  const auto cache = Cache::open(options(20'000));
  const auto store = cache->over(origin());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(get(*store, "a") == bytes);
  EXPECT_EQ(cache->counters().pass_throughs, 3);
  EXPECT_LE(disk_bytes(), 20'000);
}

}  // namespace
}  // namespace bedplate::store
