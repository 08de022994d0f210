// The measurement without fio: as many threads as the depth says, each with one pread(2) or
// pwrite(2) in flight.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "bench/internal/crew.h"
#include "bench/internal/disk_phase.h"
#include "os/aligned_memory.h"
#include "os/durable_file.h"

namespace bedplate::bench {
namespace {

constexpr std::size_t kStamp = 4096;  // each so many bytes begin with where they are

// splitmix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::uint64_t stamp_of(std::uint64_t content, std::int64_t offset) {
  std::uint64_t state = content ^ static_cast<std::uint64_t>(offset);
  return next_random(state);
}

void stamp(std::uint64_t content, std::int64_t offset, std::span<std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kStamp) {
    const std::uint64_t value = stamp_of(content, offset + static_cast<std::int64_t>(at));
    std::memcpy(bytes.data() + at, &value, sizeof value);
  }
}

std::string where(const DiskJob& job) { return to_utf8(job.options.folder.native()); }

void read_block(const DiskJob& job, std::span<std::byte> into, std::int64_t offset) {
  for (std::size_t got = 0; got < into.size();) {
    const ssize_t n = ::pread(job.fd, into.data() + got, into.size() - got,
                              offset + static_cast<std::int64_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw errno_error(errno, "cannot read the test file in " + where(job));
    if (n == 0) throw Error(Code::kIo, "the test file in {} became shorter", where(job));
    got += static_cast<std::size_t>(n);
  }
  if (!holds(job.content, offset, into)) {
    throw Error(Code::kCorrupt, "the test file in {} does not hold what was written to it, at {}",
                where(job), offset);
  }
}

void write_block(const DiskJob& job, std::span<const std::byte> bytes, std::int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(job.fd, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw errno_error(errno, "cannot write the test file in " + where(job));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

Nanos flush(const DiskJob& job) {
  const Nanos begin = real_clock().now();
  if (::fsync(job.fd) != 0) throw errno_error(errno, "cannot flush the test file in " + where(job));
  return real_clock().now() - begin;
}

// Which block comes next. Sequential: one row for all threads; random: each its own numbers, or,
// where no block may come twice, one shuffled row.
class Row {
 public:
  Row(const DiskJob& job, const DiskPhaseKind& kind)
      : blocks_(job.blocks),
        random_(kind.order == DiskPhaseKind::Order::kRandom),
        once_(job.page_cache == PageCache::kThrough && kind.way == DiskPhaseKind::Way::kRead) {
    if (!random_ || !once_) return;
    for (std::int64_t i = 0; i < blocks_; ++i) shuffled_.push_back(i);
    std::shuffle(shuffled_.begin(), shuffled_.end(), std::mt19937_64(os::random_bits()));
  }
  // -1: there is none any more.
  std::int64_t next(std::uint64_t& state) {
    if (random_ && !once_)
      return static_cast<std::int64_t>(next_random(state) % static_cast<std::uint64_t>(blocks_));
    const std::int64_t turn = next_++;
    if (once_ && turn >= blocks_) return -1;
    return random_ ? shuffled_[static_cast<std::size_t>(turn)] : turn % blocks_;
  }

 private:
  const std::int64_t blocks_;
  const bool random_;
  const bool once_;
  std::vector<std::int64_t> shuffled_;
  std::atomic<std::int64_t> next_{0};
};

struct Worker {
  os::AlignedMemory memory;
  std::uint64_t state = 0;
};

std::vector<Worker> workers(int count, std::int64_t block) {
  std::vector<Worker> all;
  for (int i = 0; i < count; ++i)
    all.push_back({os::aligned_memory(static_cast<std::size_t>(block)), os::random_bits()});
  return all;
}

}  // namespace

void fill_block(std::uint64_t content, std::int64_t offset, std::span<std::byte> into) {
  std::uint64_t state = content + static_cast<std::uint64_t>(offset);
  for (std::size_t at = 0; at + 8 <= into.size(); at += 8) {
    const std::uint64_t value = next_random(state);
    std::memcpy(into.data() + at, &value, sizeof value);
  }
  stamp(content, offset, into);
}

bool holds(std::uint64_t content, std::int64_t offset, std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kStamp) {
    const std::uint64_t value = stamp_of(content, offset + static_cast<std::int64_t>(at));
    if (std::memcmp(bytes.data() + at, &value, sizeof value) != 0) return false;
  }
  return true;
}

Figures fill_by_threads(const DiskJob& job) {
  constexpr int kThreads = 4;
  constexpr std::int64_t kPiece = kMiB;
  constexpr Nanos kLongest = 600 * kSecond;
  auto all = workers(kThreads, kPiece);
  const std::int64_t size = job.block * job.blocks;
  std::atomic<std::int64_t> next{0};
  std::atomic<std::int64_t> written{0};
  // Its end is a size, not a time: progress is told by what is written.
  Watch watch = job.options.watch;
  watch.progress = [&](std::string_view what, double) {
    const double share = static_cast<double>(written) / static_cast<double>(size);
    job.options.watch.progress(what, job.begun + (job.done - job.begun) * share);
  };
  Figures figures = measure(
      {.threads = kThreads, .what = "writing the test file", .longest = kLongest, .watch = &watch},
      [&](int thread) -> std::int64_t {
        const std::int64_t offset = next.fetch_add(kPiece);
        if (offset >= size) return 0;
        const auto length = static_cast<std::size_t>(std::min(kPiece, size - offset));
        const std::span bytes(all[static_cast<std::size_t>(thread)].memory.get(), length);
        fill_block(job.content, offset, bytes);
        write_block(job, bytes, offset);
        written += std::ssize(bytes);
        return std::ssize(bytes);
      });
  figures.length += flush(job);
  return figures;
}

Figures run_by_threads(const DiskJob& job, const DiskPhaseKind& kind) {
  auto all = workers(job.options.depth, job.block);
  const bool reads = kind.way == DiskPhaseKind::Way::kRead;
  if (!reads) {
    for (Worker& worker : all)
      fill_block(worker.state, 0, {worker.memory.get(), static_cast<std::size_t>(job.block)});
  }
  Row row(job, kind);
  Figures figures =
      measure({.threads = job.options.depth,
               .what = std::string(kind.name),
               .enough = job.options.length,
               .watch = &job.options.watch,
               .begun = job.begun,
               .done = job.done},
              [&](int thread) -> std::int64_t {
                Worker& worker = all[static_cast<std::size_t>(thread)];
                const std::int64_t block = row.next(worker.state);
                if (block < 0) return 0;
                const std::span bytes(worker.memory.get(), static_cast<std::size_t>(job.block));
                if (reads) {
                  read_block(job, bytes, block * job.block);
                } else {
                  stamp(job.content, block * job.block, bytes);
                  write_block(job, bytes, block * job.block);
                }
                return job.block;
              });
  if (!reads) figures.length += flush(job);
  return figures;
}

}  // namespace bedplate::bench
