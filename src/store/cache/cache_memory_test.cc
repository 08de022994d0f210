// Memory that lives as long as somebody has it open.
#include <fcntl.h>

#include <csignal>

#include "store/cache/cache_fixture.h"

namespace bedplate::store {
namespace {

class CacheInMemory : public CacheTest {
 protected:
  CacheOptions named() {
    CacheOptions out = options(0);
    out.folder.clear();
    out.memory_bytes = 16 * kMiB;
    out.memory_name = name_;
    return out;
  }
  std::string place() const {
    return fmt::format("/dev/shm/bedplate-memory1-u{}-{}", ::geteuid(), name_);
  }

  const std::string name_ = fmt::format("test-{}", ::getpid());
};

TEST_F(CacheInMemory, EightProcessesFetchABlockOnceAndLeaveNothing) {
  const std::string bytes = pattern(kBlock);
  put(*inner_, "a", bytes);
  const std::string version = version_of("a");
  in_children(8, [&](int) {
    const auto cache = Cache::open(named());
    const auto store = cache->over(origin({.before_read = delay(20 * kMillisecond)}));
    if (part(*store, "a", 0, kBlock, version) != bytes) throw Error(Code::kCorrupt, "wrong bytes");
    ++shared_->wrong;  // here: how many are done
    while (shared_->wrong < 8) ::usleep(100);
  });
  EXPECT_EQ(shared_->reads, 1);
  EXPECT_FALSE(std::filesystem::exists(place()));
}

TEST_F(CacheInMemory, AChildAfterForkReadsWhatItsParentFetched) {
  const std::string bytes = pattern(kBlock);
  put(*inner_, "a", bytes);
  const std::string version = version_of("a");
  const auto cache = Cache::open(named());
  const auto store = cache->over(origin());
  EXPECT_EQ(part(*store, "a", 0, kBlock, version), bytes);
  in_children(2, [&](int) {
    if (part(*store, "a", 0, kBlock, version) != bytes) throw Error(Code::kCorrupt, "wrong bytes");
  });
  EXPECT_EQ(shared_->reads, 1);
}

TEST_F(CacheInMemory, TwoOfOneProcessShareItAndTheLastTakesItAway) {
  put(*inner_, "a", pattern(kBlock));
  const std::string version = version_of("a");
  auto one = Cache::open(named());
  auto two = Cache::open(named());
  part(*one->over(origin()), "a", 0, kBlock, version);
  part(*two->over(origin()), "a", 0, kBlock, version);
  EXPECT_EQ(shared_->reads, 1);
  one.reset();
  EXPECT_TRUE(std::filesystem::exists(place()));
  part(*Cache::open(named())->over(origin()), "a", 0, kBlock, version);
  EXPECT_EQ(shared_->reads, 1);
  two.reset();
  EXPECT_FALSE(std::filesystem::exists(place()));
  part(*Cache::open(named())->over(origin()), "a", 0, kBlock, version);
  EXPECT_EQ(shared_->reads, 2);
}

TEST_F(CacheInMemory, AKilledProcessLeavesAPlaceThatTheNextOneUses) {
  put(*inner_, "a", pattern(kBlock));
  const std::string version = version_of("a");
  const pid_t child = ::fork();
  if (child == 0) {
    const auto cache = Cache::open(named());
    part(*cache->over(origin()), "a", 0, kBlock, version);
    shared_->ready = 1;
    for (;;) ::pause();
  }
  while (shared_->ready == 0) ::usleep(100);
  auto joined = Cache::open(named());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  part(*joined->over(origin()), "a", 0, kBlock, version);  // it has the memory still
  EXPECT_EQ(shared_->reads, 1);
  auto next = Cache::open(named());
  part(*next->over(origin()), "a", 0, kBlock, version);
  joined.reset();
  next.reset();
  EXPECT_FALSE(std::filesystem::exists(place()));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(CacheInMemory, WhatLiesAtThePlaceIsNotTrusted) {
  put(*inner_, "a", pattern(kBlock));
  const std::string version = version_of("a");
  const int other = ::open((folder_.path() / "other").c_str(), O_RDWR | O_CREAT, 0600);
  struct stat status {};
  ASSERT_EQ(::fstat(other, &status), 0);
  for (const std::string& text :
       {std::string("no numbers at all"), fmt::format("{} 0 0 0\n", ::getpid()),
        std::string(100, '9'),
        fmt::format("{} {} {} {}\n", ::getpid(), other, status.st_dev, status.st_ino)}) {
    const int fd = ::open(place().c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    ASSERT_EQ(::write(fd, text.data(), text.size()), std::ssize(text));
    ::close(fd);
    const std::int64_t before = shared_->reads;
    EXPECT_EQ(part(*Cache::open(named())->over(origin()), "a", 0, kBlock, version),
              pattern(kBlock));
    EXPECT_EQ(shared_->reads, before + 1) << text;
  }
  ::close(other);
  ::unlink(place().c_str());
}

}  // namespace
}  // namespace bedplate::store
