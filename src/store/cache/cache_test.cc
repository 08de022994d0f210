#include "store/cache/cache.h"

#include "store/cache/cache_fixture.h"

namespace bedplate::store {
namespace {

using ::testing::HasSubstr;

TEST_F(CacheTest, ReadsFromTheOriginOnceAndThenFromTheFolder) {
  const std::string bytes = pattern(1'000'003);
  put(*inner_, "a", bytes);
  const std::string version = version_of("a");
  {
    const auto cache = Cache::open(options(16 * kMiB));
    const auto store = cache->over(origin());
    EXPECT_TRUE(get(*store, "a") == bytes);
    EXPECT_EQ(shared_->reads, 1) << "neighbours are fetched together";
    EXPECT_TRUE(get(*store, "a") == bytes);
    EXPECT_EQ(part(*store, "a", 65'000, 5'000, version), bytes.substr(65'000, 5'000));
    EXPECT_EQ(shared_->reads, 1);
    EXPECT_EQ(cache->counters().misses, 16);
    EXPECT_EQ(cache->counters().hits, 16 + 2);
    EXPECT_EQ(cache->counters().origin_bytes, std::ssize(bytes));
  }
  const auto again = Cache::open(options(16 * kMiB));
  EXPECT_TRUE(get(*again->over(origin()), "a") == bytes);
  EXPECT_EQ(shared_->reads, 1);
  EXPECT_EQ(warnings_.size(), 0U) << warnings_[0];
}

TEST_F(CacheTest, AnotherVersionIsAnotherObject) {
  put(*inner_, "a", "before");
  const auto store = Cache::open(options(16 * kMiB))->over(origin());
  EXPECT_EQ(get(*store, "a"), "before");
  put(*inner_, "a", "after!");  // behind the cache's back
  EXPECT_EQ(get(*store, "a"), "after!");
}

TEST_F(CacheTest, FaultsOfTheOriginReachTheReaderThatMetThem) {
  const std::string bytes = pattern(4 * kBlock);
  put(*inner_, "a", bytes);
  const std::string version = version_of("a");
  const auto store =
      Cache::open(options(16 * kMiB))->over(origin({.before_read = cut_off("a", 2 * kBlock)}));
  std::string good(100, '?');
  std::string bad(100, '?');
  Read reads[] = {{.key = "a",
                   .offset = kBlock,
                   .into = std::as_writable_bytes(std::span(good)),
                   .version = version},
                  {.key = "a",
                   .offset = 3 * kBlock,
                   .into = std::as_writable_bytes(std::span(bad)),
                   .version = version}};
  store->read(reads, Deadline::after(5 * kSecond));
  EXPECT_FALSE(reads[0].error);
  EXPECT_EQ(good, bytes.substr(kBlock, 100));
  ASSERT_TRUE(reads[1].error);
  EXPECT_THAT(reads[1].error->what(), HasSubstr("ends at byte"));
  const auto flaky = Cache::open(options(16 * kMiB))
                         ->over(origin({.before_read = fail_first(2, Code::kUnavailable)}));
  EXPECT_THROW(part(*flaky, "a", 0, 10, version), Error);
  EXPECT_EQ(part(*flaky, "a", 0, 10, version), bytes.substr(0, 10));
}

TEST_F(CacheTest, MemoryServesWhatIsReadAgainAndIsSharedByProcesses) {
  const std::string bytes = pattern(4 * kBlock);
  put(*inner_, "a", bytes);
  CacheOptions two = options(16 * kMiB);
  two.memory_bytes = 4 * kMiB;
  const auto cache = Cache::open(two);
  const auto memory = folder_.path();
  get(*cache->over(origin()), "a");
  EXPECT_TRUE(get(*cache->over(origin()), "a") == bytes);
  EXPECT_EQ(cache->counters().memory_hits, 4);
  EXPECT_EQ(cache->activity().memory_bytes, std::ssize(bytes));
  EXPECT_EQ(cache->activity().trouble, "");
  in_children(1, [&](int) {
    const auto other = Cache::open(two);
    if (get(*other->over(origin()), "a") != bytes || other->counters().memory_hits != 4)
      throw Error(Code::kInternal, "not from memory");
  });
  EXPECT_EQ(shared_->reads, 1);
  struct stat status {};
  ASSERT_EQ(::stat(two.folder.c_str(), &status), 0);
  std::filesystem::remove_all(
      fmt::format("/dev/shm/bedplate-cache-{:x}-{:x}", status.st_dev, status.st_ino));
  // Without its memory the disk still has it; what is read again moves up.
  const auto later = Cache::open(two);
  const auto store = later->over(origin());
  EXPECT_TRUE(get(*store, "a") == bytes);
  EXPECT_EQ(later->counters().memory_hits, 0);
  EXPECT_TRUE(get(*store, "a") == bytes);
  EXPECT_EQ(later->counters().memory_hits, 4);
  EXPECT_EQ(shared_->reads, 1);
  std::filesystem::remove_all(
      fmt::format("/dev/shm/bedplate-cache-{:x}-{:x}", status.st_dev, status.st_ino));
}

TEST_F(CacheTest, NoCacheReadsWhatIsThereAndAddsNothing) {
  const std::string bytes = pattern(2 * kBlock);
  put(*inner_, "a", bytes);
  put(*inner_, "b", bytes);
  get(*Cache::open(options(16 * kMiB))->over(origin()), "a");
  CacheOptions none = options(16 * kMiB);
  none.read_type = ReadType::kNoCache;
  const auto cache = Cache::open(none);
  const auto store = cache->over(origin());
  shared_->reads = 0;
  EXPECT_TRUE(get(*store, "a") == bytes);
  EXPECT_EQ(shared_->reads, 0);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(get(*store, "b") == bytes);
  EXPECT_EQ(shared_->reads, 2);
}

TEST_F(CacheTest, WhatIsNoFolderIsRefused) {
  EXPECT_THROW(Cache::open({}), Error);
  EXPECT_THROW(Cache::open({.folder = folder_.path() / "none" / "cache"}), Error);
  EXPECT_THROW(Cache::open({.folder = folder_.path() / "x", .block_bytes = 100'000}), Error);
}

}  // namespace
}  // namespace bedplate::store
