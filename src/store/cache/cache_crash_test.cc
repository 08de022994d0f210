// What is left behind by kill -9, a full disk, flipped bits and other people.
#include <sys/mount.h>

#include <csignal>
#include <thread>

#include "store/cache/cache_fixture.h"
#include "store/cache/internal/change.h"

namespace bedplate::store {
namespace {

using ::testing::HasSubstr;

TEST_F(CacheTest, KilledTwoHundredTimesNothingIsStaleAndNothingNeedsCleaning) {
  constexpr int kObjects = 40;
  std::vector<std::string> bytes;
  for (int i = 0; i < kObjects; ++i) {
    bytes.push_back(
        pattern(100'000 + static_cast<std::size_t>(i) * 1000, static_cast<unsigned>(i)));
    put(*inner_, std::to_string(i), bytes.back());
  }
  const std::int64_t cap = 2 * kMiB;  // of 4.8 MB: evictions all the time
  std::mt19937 random(7);
  const auto read_on = [&](unsigned seed) {
    const auto store = Cache::open(options(cap))->over(origin());
    std::mt19937 choose(seed);
    for (;;) {
      const auto i = choose() % kObjects;
      if (get(*store, std::to_string(i)) != bytes[i]) {
        ++shared_->wrong;
        ::_exit(1);
      }
      ++shared_->ready;
    }
  };
  for (int round = 0; round < 100; ++round) {
    pid_t children[2];
    for (pid_t& child : children) {
      const unsigned seed = static_cast<unsigned>(random());
      child = ::fork();
      if (child == 0) read_on(seed);
    }
    const std::int64_t until = shared_->ready + 1 + static_cast<std::int64_t>(random() % 8);
    const Deadline deadline = Deadline::after(10 * kSecond);
    while (shared_->ready < until && !deadline.passed()) ::usleep(50);
    ::usleep(random() % 1000);
    EXPECT_FALSE(deadline.passed());
    for (const pid_t child : children) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    ASSERT_EQ(shared_->wrong, 0);
    ASSERT_LE(disk_bytes(), cap + kBlock);
  }
  const auto cache = Cache::open(options(cap));
  const auto store = cache->over(origin());
  for (int i = 0; i < kObjects; ++i) ASSERT_TRUE(get(*store, std::to_string(i)) == bytes[i]);
  EXPECT_EQ(cache->counters().bad_checksums, 0);
  EXPECT_EQ(cache->counters().pass_throughs, 0);
  EXPECT_EQ(cache->counters().fill_failures, 0);
  EXPECT_GT(cache::state_of(*cache::CacheFile::find(folder_.path() / "cache")).counters.repairs, 0)
      << "no kill met a change: the test tests nothing";
  // The sums of the index are those of its entries.
  const auto file = cache::CacheFile::find(folder_.path() / "cache");
  std::int64_t used = 0;
  const auto state = cache::state_of(*file);
  for (std::uint64_t slot = 0; slot < state.high_water; ++slot)
    used += file->get<cache::Policy>(file->policy_at(slot)).disk_bytes;
  EXPECT_EQ(state.used_bytes, used);
}

TEST_F(CacheTest, AnEndInTheMiddleOfAChangeIsMendedByTheNext) {
  const std::string bytes = pattern(10 * kBlock);
  put(*inner_, "a", bytes);
  const auto cache = Cache::open(options(16 * kMiB));
  get(*cache->over(origin()), "a");
  {
    const auto file = cache::CacheFile::find(folder_.path() / "cache");
    cache::LocalState local;
    cache::Change change(*file, local, Deadline::after(kSecond));
    // Ends without commit(): as when killed here.
    EXPECT_TRUE(change.reserve({.object = {1, 2}}, 1000, {}));
  }
  const auto file = cache::CacheFile::find(folder_.path() / "cache");
  EXPECT_EQ(cache::state_of(*file).changing, 1U);
  const auto again = Cache::open(options(16 * kMiB));
  EXPECT_EQ(cache::state_of(*file).changing, 0U);
  EXPECT_EQ(cache::state_of(*file).counters.repairs, 1);
  EXPECT_TRUE(get(*again->over(origin()), "a") == bytes);
  EXPECT_EQ(shared_->reads, 1);
}

TEST_F(CacheTest, OpensQuicklyWithAHundredThousandBlocks) {
  constexpr std::uint64_t kBlocks = 100'000;
  CacheOptions large = options(static_cast<std::int64_t>(kBlocks) * kBlock);
  { Cache::open(large); }
  const auto file = cache::CacheFile::find(folder_.path() / "cache");
  for (std::uint64_t slot = 0; slot < kBlocks; ++slot) {
    cache::Entry entry{.name = {.object = {slot * 77 + 1, slot}},
                       .generation = slot + 1,
                       .whole = 1,
                       .bytes = 4096};
    entry.crc = cache::crc_of(entry);
    file->put(file->entry_at(slot), entry);
    file->put(file->policy_at(slot),
              cache::Policy{.queue = cache::Queue::kMain, .disk_bytes = 4096, .since = slot + 1});
  }
  auto state = cache::state_of(*file);
  state.changing = 1;  // the worst case: killed in the middle of a change
  state.crc = cache::crc_of(state);
  file->put(cache::kStateAt, state);
  const Nanos begin = real_clock().now();
  { Cache::open(large); }
  EXPECT_LT(real_clock().now() - begin, kSecond);
  EXPECT_EQ(cache::state_of(*file).used_bytes, 4096 * static_cast<std::int64_t>(kBlocks));
  EXPECT_TRUE(cache::look_up(*file, {.object = {5 * 77 + 1, 5}}));
}

TEST_F(CacheTest, FlippedBitsAreFoundAndFetchedAgain) {
  const std::string bytes = pattern(10 * kBlock);
  put(*inner_, "a", bytes);
  {
    const auto store = Cache::open(options(16 * kMiB))->over(origin());
    get(*store, "a");
  }
  std::mt19937 random(3);
  for (int i = 0; i < 10; ++i) {
    {
      const auto file = cache::CacheFile::find(folder_.path() / "cache");
      const std::uint64_t at = file->block_at(static_cast<std::uint64_t>(i)) + random() % kBlock;
      file->put(at, static_cast<char>(file->get<char>(at) ^ 1 << random() % 8));
    }
    const auto cache = Cache::open(options(16 * kMiB));
    ASSERT_TRUE(get(*cache->over(origin()), "a") == bytes);
    EXPECT_EQ(cache->counters().bad_checksums, 1) << i;
    EXPECT_EQ(cache->counters().misses, 1);
  }
}

// What another user could write over the index: never a wrong byte, a hang or an end.
TEST_F(CacheTest, GarbageAnywhereInTheIndexGivesNoWrongByte) {
  const std::string bytes = pattern(12 * kBlock + 77);
  put(*inner_, "a", bytes);
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const auto cache = Cache::open(options(kMiB));
    const auto store = cache->over(origin());
    ASSERT_TRUE(get(*store, "a") == bytes) << round;
    const auto file = cache::CacheFile::find(folder_.path() / "cache");
    ASSERT_TRUE(file);
    const std::uint64_t end = file->header().blocks_at;
    for (int i = 0; i < 200; ++i) {
      const std::uint64_t at = cache::kStateAt + random() % (end - cache::kStateAt - 8);
      file->put(at, static_cast<std::uint64_t>(random()) << 32 | random());
    }
    ASSERT_TRUE(get(*store, "a") == bytes) << round;
  }
}

TEST_F(CacheTest, AFileThatWasCutOffIsPassedBy) {
  const std::string bytes = pattern(5 * kBlock);
  put(*inner_, "a", bytes);
  const auto cache = Cache::open(options(16 * kMiB));
  const auto store = cache->over(origin());
  get(*store, "a");
  ASSERT_EQ(::truncate(cache_file().c_str(), 0), 0);
  EXPECT_TRUE(get(*store, "a") == bytes);
  EXPECT_EQ(warnings_.size(), 1U);
  EXPECT_TRUE(get(*Cache::open(options(16 * kMiB))->over(origin()), "a") == bytes);
}

TEST_F(CacheTest, BlocksThatWereCutOffAreFetchedAgain) {
  const std::string bytes = pattern(5 * kBlock);
  put(*inner_, "a", bytes);
  const auto cache = Cache::open(options(16 * kMiB));
  const auto store = cache->over(origin());
  get(*store, "a");
  {
    const auto file = cache::CacheFile::find(folder_.path() / "cache");
    ASSERT_EQ(::truncate(cache_file().c_str(), static_cast<off_t>(file->block_at(2) + 5)), 0);
  }
  shared_->bytes = 0;
  EXPECT_TRUE(get(*store, "a") == bytes);
  EXPECT_EQ(shared_->bytes, 3 * kBlock);
  EXPECT_TRUE(get(*store, "a") == bytes);
  EXPECT_EQ(shared_->bytes, 3 * kBlock);
}

TEST_F(CacheTest, ALockThatAnotherKeepsIsPassedBy) {
  const std::string bytes = pattern(5 * kBlock);
  put(*inner_, "a", bytes);
  const auto cache = Cache::open(options(16 * kMiB));
  const auto store = cache->over(origin());
  const pid_t child = ::fork();
  if (child == 0) {
    const auto file = cache::CacheFile::find(folder_.path() / "cache");
    shared_->ready = file->try_lock(cache::kChangeLock) ? 1 : 2;
    for (;;) ::pause();
  }
  while (shared_->ready == 0) ::usleep(100);
  ASSERT_EQ(shared_->ready, 1);
  const auto begin = real_clock().now();
  EXPECT_TRUE(get(*store, "a") == bytes);
  EXPECT_TRUE(get(*store, "a") == bytes);
  EXPECT_LT(real_clock().now() - begin, 5 * kSecond);
  ASSERT_FALSE(warnings_.empty());
  EXPECT_THAT(warnings_[0], HasSubstr("locked by another process"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::usleep(25'000);
  EXPECT_TRUE(get(*store, "a") == bytes);
  shared_->reads = 0;
  EXPECT_TRUE(get(*store, "a") == bytes);
  EXPECT_EQ(shared_->reads, 0);
}

TEST_F(CacheTest, AFullDiskIsPassedByAndUsedAgainWhenThereIsRoom) {
  const auto disk = folder_.path() / "disk";
  std::filesystem::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=2m") != 0)
    GTEST_SKIP() << "needs the right to mount a tmpfs";
  const std::string bytes = pattern(20 * kBlock);
  put(*inner_, "a", bytes);
  {
    CacheOptions small = options(64 * kMiB);
    small.folder = disk / "cache";
    const auto cache = Cache::open(small);
    const auto store = cache->over(origin());
    {
      const std::string ballast(1200 * 1024, 'x');
      put(*locate(disk.string()).store, "ballast", ballast);
    }
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(get(*store, "a") == bytes);
      ::usleep(25'000);
    }
    EXPECT_GE(cache->counters().fill_failures, 1);
    ASSERT_EQ(warnings_.size(), 1U);
    EXPECT_THAT(warnings_[0], HasSubstr("No space left"));
    std::filesystem::remove(disk / "ballast");
    ::usleep(25'000);
    ASSERT_TRUE(get(*store, "a") == bytes);
    const auto before = shared_->reads.load();
    ASSERT_TRUE(get(*store, "a") == bytes);
    EXPECT_EQ(shared_->reads, before);
    EXPECT_EQ(warnings_.size(), 1U);
  }
  EXPECT_EQ(::umount2(disk.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace bedplate::store
