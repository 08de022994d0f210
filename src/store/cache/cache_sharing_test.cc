// One folder, several threads, processes and users.
#include <csignal>
#include <thread>

#include "store/cache/cache_fixture.h"

namespace bedplate::store {
namespace {

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

TEST_F(CacheTest, AChildGoesOnWhileItsParentsThreadsFill) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "a child inherits locks of AddressSanitizer's heap that its parent's threads hold";
#endif
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
  bool all_ended = true;
  for (int round = 0; round < 20 && all_ended; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (unsigned i = 0; i < 20; ++i) read_file(i);
      ::_exit(0);
    }
    int status = -1;
    all_ended = ::waitpid(child, &status, 0) == child && status == 0;
  }
  stop = true;
  threads.clear();
  ASSERT_TRUE(all_ended);
  for (unsigned i = 0; i < 20; ++i) read_one(i);
  EXPECT_EQ(shared_->wrong, 0);
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

}  // namespace
}  // namespace bedplate::store
