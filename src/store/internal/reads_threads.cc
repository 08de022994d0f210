// preadv2(2): what lies in the page cache is copied by the calling thread; for what does not, as
// many threads as the depth allows wait for the disk.
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "store/internal/read_engine.h"

namespace bedplate::store {
namespace {

constexpr int kMostThreads = 32;

// One preadv2() after the other until all is there or `flags` let it go no further; the errno of
// that, kEndOfFile, or 0.
int read_on(RangeRead& read, int flags) {
  while (read.got < read.into.size()) {
    const iovec piece{read.into.data() + read.got, read.into.size() - read.got};
    const auto at = read.offset + static_cast<std::int64_t>(read.got);
    const ssize_t n = ::preadv2(read.fd, &piece, 1, at, flags);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return kEndOfFile;
    read.got += static_cast<std::size_t>(n);
  }
  return 0;
}

void read(std::span<RangeRead> reads, int depth, Deadline deadline) {
  std::vector<RangeRead*> waiting;
  for (RangeRead& one : reads) {
    one.got = 0;
    one.error = read_on(one, RWF_NOWAIT);
    // EAGAIN: not in the cache. Others: perhaps only the flag is unknown to the file system.
    if (one.error > 0) waiting.push_back(&one);
  }
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < waiting.size(); i = next++) {
      RangeRead& one = *waiting[i];
      one.error = deadline.passed() ? ETIMEDOUT : read_on(one, 0);
    }
  };
  const auto others =
      std::min(static_cast<std::size_t>(std::clamp(depth, 1, kMostThreads)), waiting.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 1; i < others; ++i) {
    threads.emplace_back([&work] {
      ::pthread_setname_np(::pthread_self(), "bedplate-read");
      work();
    });
  }
  work();
}

bool works() { return true; }

}  // namespace

extern const ReadEngine kThreadReads = {.name = "threads", .works = works, .read = read};

}  // namespace bedplate::store
