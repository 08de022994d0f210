#include "store/cache/cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <random>
#include <thread>

#include "base/clock.h"
#include "os/test_folder.h"
#include "store/cache/internal/cache_file.h"
#include "store/cache/internal/change.h"
#include "store/cache/internal/siphash.h"
#include "store/driver.h"
#include "store/fault_store.h"

namespace bedplate::store {
namespace {

using ::testing::HasSubstr;

std::string pattern(std::size_t length, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::string bytes(length, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

// Numbers that children of a test share with it.
struct Shared {
  std::atomic<std::int64_t> reads{0};
  std::atomic<std::int64_t> bytes{0};
  std::atomic<std::int64_t> ready{0};
  std::atomic<std::int64_t> go{0};
  std::atomic<std::int64_t> wrong{0};
};
class SharedPage {
 public:
  SharedPage()
      : shared_(new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared) {}
  ~SharedPage() { ::munmap(shared_, sizeof(Shared)); }
  Shared* operator->() const { return shared_; }

 private:
  Shared* shared_;
};

constexpr std::int64_t kBlock = 64 * kKiB;

class CacheTest : public ::testing::Test {
 protected:
  CacheOptions options(std::int64_t cap) {
    return {.folder = folder_.path() / "cache",
            .cap_bytes = cap,
            .block_bytes = kBlock,
            .pause_after_failure = 20 * kMillisecond,
            .warn = [this](const std::string& text) { warnings_.push_back(text); }};
  }
  // A new origin with these objects, whose reads are counted in shared_.
  std::shared_ptr<Store> origin(Faults faults = {}) {
    auto before = faults.before_read;
    faults.before_read = [this, before](const Read& read) {
      ++shared_->reads;
      shared_->bytes += std::ssize(read.into);
      return before ? before(read) : std::nullopt;
    };
    return std::make_shared<FaultStore>(inner_, faults);
  }
  std::string version_of(const std::string& key) { return info(*inner_, key).version; }

  static std::string part(Store& store, const std::string& key, std::int64_t offset,
                          std::size_t length, std::string version,
                          Deadline deadline = Deadline::after(20 * kSecond)) {
    std::string bytes(length, '?');
    read_exactly(store,
                 {.key = key,
                  .offset = offset,
                  .into = std::as_writable_bytes(std::span(bytes)),
                  .version = std::move(version)},
                 deadline);
    return bytes;
  }

  std::filesystem::path cache_file() { return folder_.path() / "cache" / cache::kFileName; }
  std::int64_t disk_bytes() {
    struct stat status {};
    return ::stat(cache_file().c_str(), &status) == 0 ? status.st_blocks * 512 : 0;
  }

  // Runs `act` in so many children at once; fails unless all end well.
  void in_children(int count, const std::function<void(int)>& act) {
    std::vector<pid_t> children;
    for (int i = 0; i < count; ++i) {
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        try {
          ++shared_->ready;
          while (shared_->go == 0) ::usleep(100);
          act(i);
          ::_exit(0);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "child %d: %s\n", i, error.what());
          ::_exit(1);
        }
      }
      children.push_back(child);
    }
    while (shared_->ready < count) ::usleep(100);
    shared_->go = 1;
    for (const pid_t child : children) {
      int status = -1;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    shared_->ready = shared_->go = 0;
  }

  os::TestFolder folder_;
  SharedPage shared_;
  std::vector<std::string> warnings_;
  std::shared_ptr<Store> inner_ = locate(fmt::format("memory://cache-test-{}", ::getpid())).store;
};

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

TEST_F(CacheTest, EightProcessesFetchABlockOnce) {
  const std::string bytes = pattern(kBlock);
  put(*inner_, "a", bytes);
  const std::string version = version_of("a");
  in_children(8, [&](int) {
    const auto cache = Cache::open(options(16 * kMiB));
    const auto store = cache->over(origin({.before_read = delay(20 * kMillisecond)}));
    if (part(*store, "a", 0, kBlock, version) != bytes) throw Error(Code::kCorrupt, "wrong bytes");
  });
  EXPECT_EQ(shared_->reads, 1);
}

TEST_F(CacheTest, EightThreadsFetchABlockOnce) {
  const std::string bytes = pattern(kBlock);
  put(*inner_, "a", bytes);
  const std::string version = version_of("a");
  const auto cache = Cache::open(options(16 * kMiB));
  const auto store = cache->over(origin({.before_read = delay(20 * kMillisecond)}));
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] { shared_->wrong += part(*store, "a", 0, kBlock, version) != bytes; });
  threads.clear();
  EXPECT_EQ(shared_->wrong, 0);
  EXPECT_EQ(shared_->reads, 1);
}

TEST_F(CacheTest, WhenTheFetcherIsKilledAnotherTakesOver) {
  const std::string bytes = pattern(kBlock);
  put(*inner_, "a", bytes);
  const std::string version = version_of("a");
  const auto cache = Cache::open(options(16 * kMiB));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto hangs = [&](const Read&) -> std::optional<Error> {
      shared_->ready = 1;
      for (;;) ::pause();
    };
    part(*cache->over(origin({.before_read = hangs})), "a", 0, 100, version);
    ::_exit(0);
  }
  while (shared_->ready == 0) ::usleep(100);
  std::jthread killer([&] {
    while (cache->counters().waits == 0 && shared_->go == 0) ::usleep(100);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  });
  ::usleep(1000);
  shared_->go = 1;
  const auto begin = real_clock().now();
  EXPECT_EQ(part(*cache->over(origin()), "a", 0, kBlock, version), bytes);
  EXPECT_LT(real_clock().now() - begin, 5 * kSecond);
  EXPECT_EQ(shared_->reads, 2);
  EXPECT_EQ(cache->counters().pass_throughs, 0);
}

TEST_F(CacheTest, AFetcherThatHangsIsPassedByBeforeTheDeadline) {
  put(*inner_, "a", pattern(kBlock));
  const std::string version = version_of("a");
  const pid_t child = ::fork();
  if (child == 0) {
    const auto hangs = [&](const Read&) -> std::optional<Error> {
      shared_->ready = 1;
      for (;;) ::pause();
    };
    part(*Cache::open(options(16 * kMiB))->over(origin({.before_read = hangs})), "a", 0, 100,
         version);
    ::_exit(0);
  }
  while (shared_->ready == 0) ::usleep(100);
  const auto cache = Cache::open(options(16 * kMiB));
  const auto begin = real_clock().now();
  part(*cache->over(origin()), "a", 0, 100, version, Deadline::after(kSecond / 2));
  EXPECT_LT(real_clock().now() - begin, kSecond);
  EXPECT_EQ(cache->counters().pass_throughs, 1);
  EXPECT_EQ(cache->counters().waits, 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

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

TEST_F(CacheTest, TheCapHoldsUnderEightFillers) {
  constexpr int kObjects = 64;
  std::vector<std::string> bytes;
  for (int i = 0; i < kObjects; ++i) {
    bytes.push_back(pattern(200'000 + static_cast<std::size_t>(i) * 777, static_cast<unsigned>(i)));
    put(*inner_, std::to_string(i), bytes.back());
  }
  const std::int64_t cap = 3 * kMiB;
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> most{0};
  std::thread watch([&] {
    while (!stop) most = std::max<std::int64_t>(most, disk_bytes());
  });
  in_children(8, [&](int child) {
    const auto store = Cache::open(options(cap))->over(origin());
    for (int k = 0; k < kObjects; ++k) {
      const auto i = static_cast<std::size_t>((k * 7 + child * 11) % kObjects);
      if (get(*store, std::to_string(i)) != bytes[i]) throw Error(Code::kCorrupt, "wrong bytes");
    }
  });
  stop = true;
  watch.join();
  EXPECT_LE(most, cap + kBlock);
  EXPECT_GT(most, cap * 8 / 10);
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

TEST_F(CacheTest, ACacheThatHoldsNoBlockIsPassedBy) {
  const std::string bytes = pattern(5 * kBlock);
  put(*inner_, "a", bytes);
  const auto cache = Cache::open(options(20'000));
  const auto store = cache->over(origin());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(get(*store, "a") == bytes);
  EXPECT_EQ(cache->counters().pass_throughs, 3);
  EXPECT_LE(disk_bytes(), 20'000);
}

TEST_F(CacheTest, AnObjectLargerThanTheCapIsReadThroughIt) {
  const std::string bytes = pattern(40 * kBlock);
  put(*inner_, "a", bytes);
  const auto store = Cache::open(options(10 * kBlock))->over(origin());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(get(*store, "a") == bytes);
  EXPECT_LE(disk_bytes(), 11 * kBlock);
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

TEST_F(CacheTest, AChildGoesOnWhileItsParentsThreadsFill) {
  std::vector<std::string> bytes;
  for (int i = 0; i < 20; ++i) {
    bytes.push_back(pattern(3 * kBlock, static_cast<unsigned>(i)));
    put(*inner_, std::to_string(i), bytes.back());
  }
  const auto cache = Cache::open(options(20 * kBlock));
  const auto store = cache->over(inner_);
  std::vector<std::string> versions;
  for (int i = 0; i < 20; ++i) versions.push_back(version_of(std::to_string(i)));
  const auto read_one = [&](unsigned i) {
    shared_->wrong += part(*store, std::to_string(i), 0, 3 * kBlock, versions[i]) != bytes[i];
  };
  // Not of memory://: a child must not inherit a lock of its map.
  const auto files = locate((folder_.path() / "origin").string()).store;
  std::atomic<bool> stop{false};
  std::vector<std::jthread> threads;
  const auto on_files = cache->over(files);
  for (int i = 0; i < 20; ++i)
    put(*files, "o" + std::to_string(i), bytes[static_cast<std::size_t>(i)]);
  const auto read_file = [&](unsigned i) {
    shared_->wrong += get(*on_files, "o" + std::to_string(i)) != bytes[i];
  };
  for (unsigned t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = t; !stop; ++i) read_file(i % 20);
    });
  }
  for (int round = 0; round < 20; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (unsigned i = 0; i < 20; ++i) read_file(i);
      ::_exit(0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
  stop = true;
  threads.clear();
  for (unsigned i = 0; i < 20; ++i) read_one(i);
  EXPECT_EQ(shared_->wrong, 0);
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

TEST_F(CacheTest, TwoUsersShareAFolder) {
  if (::getuid() != 0 || !os::others_may_enter_root())
    GTEST_SKIP() << "needs root, and a root folder that others may enter";
  const std::string bytes = pattern(5 * kBlock);
  put(*inner_, "a", bytes);
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::all);
  for (const SharedWith with : {SharedWith::kEveryone, SharedWith::kNobody}) {
    CacheOptions shared = options(16 * kMiB);
    shared.folder = folder_.path() / fmt::format("cache-{}", static_cast<int>(with));
    shared.shared_with = with;
    const auto as_user = [&](uid_t user) {
      return [&, user](int) {
        if (::setgid(user) != 0 || ::setuid(user) != 0) throw Error(Code::kPermission, "setuid");
        ::umask(077);
        if (get(*Cache::open(shared)->over(origin()), "a") != bytes)
          throw Error(Code::kCorrupt, "wrong bytes");
      };
    };
    shared_->reads = 0;
    in_children(1, as_user(12'001));
    in_children(1, as_user(12'002));
    EXPECT_EQ(shared_->reads, with == SharedWith::kEveryone ? 1 : 2);
  }
}

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

TEST_F(CacheTest, ASmallerCapIsKeptFromItsFirstMomentOn) {
  put(*inner_, "a", pattern(40 * kBlock));
  get(*Cache::open(options(64 * kBlock))->over(origin()), "a");
  EXPECT_GT(disk_bytes(), 40 * kBlock);
  Cache::open(options(20 * kBlock));
  EXPECT_LE(disk_bytes(), 20 * kBlock);
}

TEST_F(CacheTest, WhatIsNoFolderIsRefused) {
  EXPECT_THROW(Cache::open({}), Error);
  EXPECT_THROW(Cache::open({.folder = folder_.path() / "none" / "cache"}), Error);
  EXPECT_THROW(Cache::open({.folder = folder_.path() / "x", .block_bytes = 100'000}), Error);
}

TEST(ParseCache, TakesFoldersSizesMemoryAndReadTypes) {
  const auto all = parse_cache("memory:4GiB, /nvme/cache:200GB,CACHE");
  EXPECT_EQ(all.folder, "/nvme/cache");
  EXPECT_EQ(all.cap_bytes, 200'000'000'000);
  EXPECT_EQ(all.memory_bytes, 4 * kGiB);
  EXPECT_EQ(all.read_type, ReadType::kCache);
  EXPECT_EQ(parse_cache("/nvme/a:b/cache").folder, "/nvme/a:b/cache");
  EXPECT_EQ(parse_cache("/nvme/cache").cap_bytes, 0);
  EXPECT_EQ(parse_cache("ä/ü ß:1.5k").cap_bytes, 1536);
  for (const char* bad : {"", ",", "memory", "memory:x", "/a:", "/a:12Q", "/a:-1", "/a:0", "/a,/b",
                          ":5GB", "/a:1e300GB", "CACHE"})
    EXPECT_THROW(parse_cache(bad), Error) << bad;
}

TEST(SipHash, GivesThePublishedSums) {
  // Aumasson and Bernstein's vectors_sip128: key 00 … 0f, inputs 00 01 02 …
  const cache::Hash128 key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  EXPECT_EQ(cache::siphash(key, ""), (cache::Hash128{0xe6a825ba047f81a3, 0x930255c71472f66d}));
  EXPECT_EQ(cache::siphash(key, std::string_view("\0", 1)),
            (cache::Hash128{0x44af996bd8c187da, 0x45fc229b11597634}));
}

}  // namespace
}  // namespace bedplate::store
