#include "bench/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "bench/internal/disk_phase.h"
#include "bench/internal/fio.h"
#include "bench/scratch.h"
#include "os/aligned_memory.h"
#include "os/durable_file.h"
#include "os/page_cache.h"

namespace bedplate::bench {
namespace {

using Order = DiskPhaseKind::Order;
using Way = DiskPhaseKind::Way;

constexpr DiskPhaseKind kPhases[] = {
    {"sequential read", Order::kSequential, Way::kRead},
    {"random read", Order::kRandom, Way::kRead},
    {"sequential write", Order::kSequential, Way::kWrite},
    {"random write", Order::kRandom, Way::kWrite},
};

void check(const DiskOptions& options) {
  constexpr auto kUnit = static_cast<std::int64_t>(os::kDirectAlignment);
  constexpr std::int64_t kMostBlock = 64 * kMiB;
  constexpr int kMostDepth = 1024;
  const auto bytes = [](std::int64_t n) { return human_bytes(static_cast<double>(n)); };
  if (options.block < kUnit || options.block % kUnit != 0 || options.block > kMostBlock) {
    throw Error(Code::kInvalid, "blocks of {}: give a multiple of 4 KiB, at most {}",
                bytes(options.block), bytes(kMostBlock));
  }
  if (options.depth < 1 || options.depth > kMostDepth)
    throw Error(Code::kInvalid, "a depth of {}: give 1 to {}", options.depth, kMostDepth);
  if (options.size < options.block) {
    throw Error(Code::kInvalid, "a test file of {} holds no block of {}", bytes(options.size),
                bytes(options.block));
  }
  if (options.length < 10 * kMillisecond || options.length > 3600 * kSecond)
    throw Error(Code::kInvalid, "phases of {}: give 0.01 to 3600 seconds",
                human_duration(options.length));
}

// The same file past the page cache; empty where the file system does not take that.
os::UniqueFd opened_directly(const os::UniqueFd& file) {
  os::UniqueFd direct(
      ::open(fmt::format("/proc/self/fd/{}", file.get()).c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
  if (!direct) return direct;
  // Some accept the flag and refuse the write.
  const auto memory = os::aligned_memory(os::kDirectAlignment);
  fill_block(0, 0, {memory.get(), os::kDirectAlignment});
  if (::pwrite(direct.get(), memory.get(), os::kDirectAlignment, 0) < 0 && errno == EINVAL)
    direct.reset();
  return direct;
}

void reserve_space(const os::UniqueFd& file, std::int64_t size, const DiskOptions& options) {
  if (::fallocate(file.get(), 0, 0, size) == 0) return;
  const int error = errno;
  if (error != EOPNOTSUPP && error != ENOSYS && error != EINTR) {
    throw errno_error(error, fmt::format("cannot make a test file of {} in {}",
                                         human_bytes(static_cast<double>(size)),
                                         to_utf8(options.folder.native())));
  }
}

std::vector<std::string> notes_of(const DiskOptions& options, const DiskResult& result) {
  std::vector<std::string> notes;
  if (const std::string name = memory_file_system(options.folder); !name.empty())
    notes.push_back(fmt::format("this is a {}: the figures are those of memory", name));
  if (result.page_cache == PageCache::kThrough) {
    notes.push_back(
        fmt::format("{}: read through the page cache, which was emptied before each phase; the "
                    "kernel's reading "
                    "ahead is in the figures",
                    options.page_cache == PageCache::kPast ? "this file system has no O_DIRECT"
                                                           : "without O_DIRECT, as was asked"));
  }
  for (const DiskPhase& phase : result.phases) {
    if (phase.figures.length >= options.length / 2) continue;
    notes.push_back(fmt::format("{}: all was read after {}; a larger --size makes the figure surer",
                                phase.name, human_duration(phase.figures.length)));
  }
  return notes;
}

}  // namespace

DiskResult measure_disk(const DiskOptions& options) {
  check(options);
  const std::int64_t blocks = options.size / options.block;
  const std::int64_t size = blocks * options.block;
  check_room(options.folder, {.bytes = size, .files = 1, .reserve = options.reserve});
  std::optional<std::string> fio;
  if (options.engine != DiskEngine::kThreads) fio = fio_version(options.watch);
  if (options.engine == DiskEngine::kFio && !fio) {
    throw Error(Code::kNotFound,
                "fio is not installed: apt-get install fio, or give --engine threads");
  }
  const os::UniqueFd file = nameless_file(options.folder);
  reserve_space(file, size, options);
  const os::UniqueFd direct =
      options.page_cache == PageCache::kPast ? opened_directly(file) : os::UniqueFd();

  DiskResult result;
  result.folder = options.folder;
  result.page_cache = direct ? PageCache::kPast : PageCache::kThrough;
  result.block = options.block;
  result.depth = options.depth;
  result.size = size;
  result.engine =
      fio ? fmt::format("{}, {}", *fio, fio_io_engine()) : fmt::format("{} threads", options.depth);
  const std::size_t phases = options.writes == Writes::kMeasured ? 4 : 2;
  const double step = 1.0 / static_cast<double>(phases + 1);
  DiskJob job{options,
              direct ? direct.get() : file.get(),
              result.page_cache,
              options.block,
              blocks,
              os::random_bits(),
              0,
              step};
  result.filling = fill_by_threads(job);
  for (const DiskPhaseKind& kind : std::span(kPhases).first(phases)) {
    job.begun = std::exchange(job.done, job.done + step);
    os::drop_from_page_cache(file.get());
    if (job.page_cache == PageCache::kThrough && kind.order == Order::kRandom)
      ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_RANDOM);
    result.phases.push_back({kind.name, fio ? run_by_fio(job, kind) : run_by_threads(job, kind)});
  }
  result.notes = notes_of(options, result);
  return result;
}

}  // namespace bedplate::bench
