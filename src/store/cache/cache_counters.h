// What a cache did, in this process or in all since its folder was made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

namespace bedplate::store {

struct CacheCounters {
  std::int64_t hits = 0;          // ranges that were there, each within one block
  std::int64_t hit_bytes = 0;     // of them
  std::int64_t memory_hits = 0;   // of the hits: in memory
  std::int64_t misses = 0;        // blocks that were fetched
  std::int64_t origin_reads = 0;  // that brought them
  std::int64_t origin_bytes = 0;
  std::int64_t filled_bytes = 0;  // written into the cache
  std::int64_t evictions = 0;     // blocks
  std::int64_t evicted_bytes = 0;
  std::int64_t waits = 0;          // for another's fetch of the same block
  std::int64_t fill_failures = 0;  // times that writing failed: no space, no permission
  std::int64_t bad_checksums = 0;  // blocks that were not what they should be
  std::int64_t pass_throughs = 0;  // reads that went to the origin past the cache
  std::int64_t repairs = 0;        // of the index, after an end in the middle of a change

  bool operator==(const CacheCounters&) const = default;
  CacheCounters& operator+=(const CacheCounters& more) {
    const auto parts = [](auto& c) {
      return std::tie(c.hits, c.hit_bytes, c.memory_hits, c.misses, c.origin_reads, c.origin_bytes,
                      c.filled_bytes, c.evictions, c.evicted_bytes, c.waits, c.fill_failures,
                      c.bad_checksums, c.pass_throughs, c.repairs);
    };
    const auto to = parts(*this);
    const auto from = parts(more);
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      ((std::get<i>(to) += std::get<i>(from)), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(to)>>());
    return *this;
  }
};

// What one process's cache did, besides what the folder's file keeps of all.
struct CacheActivity {
  CacheCounters counters;
  std::int64_t memory_bytes = 0;  // of hit_bytes: from memory
  std::string trouble;            // why reads passed it by, as it was told last; empty: no trouble
};

}  // namespace bedplate::store
