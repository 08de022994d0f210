// What the tests of the cache share: objects in memory, whose reads are counted over all processes.
#pragma once

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "os/test_folder.h"
#include "store/cache/cache.h"
#include "store/cache/internal/cache_file.h"
#include "store/driver.h"
#include "store/fault_store.h"

namespace bedplate::store {

inline std::string pattern(std::size_t length, unsigned seed = 1) {
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

}  // namespace bedplate::store
