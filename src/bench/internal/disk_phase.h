// What one phase of a disk's measurement is, for both engines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "bench/disk.h"

namespace bedplate::bench {

struct DiskPhaseKind {
  std::string_view name;
  enum class Order { kSequential, kRandom } order;
  enum class Way { kRead, kWrite } way;
};

// The test file of one measurement.
struct DiskJob {
  const DiskOptions& options;
  int fd = -1;  // opened as `page_cache` says
  PageCache page_cache = PageCache::kPast;
  std::int64_t block = 0;
  std::int64_t blocks = 0;    // in the file
  std::uint64_t content = 0;  // of the file, for fill_block() and holds()
  // Of the whole measurement that is done before this phase and after it.
  double begun = 0;
  double done = 0;
};

// Bytes of the file at `offset`, another content in each 4 KiB; nothing to be gained by
// compression.
void fill_block(std::uint64_t content, std::int64_t offset, std::span<std::byte> into);
bool holds(std::uint64_t content, std::int64_t offset, std::span<const std::byte> bytes);

// The file's bytes, by threads. Throws as measure_disk().
Figures fill_by_threads(const DiskJob& job);
Figures run_by_threads(const DiskJob& job, const DiskPhaseKind& kind);

}  // namespace bedplate::bench
