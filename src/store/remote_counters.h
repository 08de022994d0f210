// What reads from remote stores (HTTP, S3) cost this process: how many, how long, how often again.
//
//   const RemoteCounters now = remote_counters();
//   now.reads, now.mean_latency(), now.latency_at(0.99)
//
// A read is one range of one object, from its first attempt until it is there or is given up:
// pauses between attempts are in it, waiting for a free connection is not. Counted by the HTTP
// client, for all stores of the process together, by relaxed atomics: a few nanoseconds a read.
// Thread-safe; after fork() the child begins at 0. A snapshot may be torn by a read or two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace bedplate::store {

struct RemoteCounters {
  // Latencies by size, four classes for each doubling from 1 µs on: a class is 19 % wide or less.
  static constexpr std::size_t kClasses = 4 * 32;

  std::int64_t reads = 0;    // that ended, well or not
  std::int64_t failed = 0;   // of them: with an error
  std::int64_t bytes = 0;    // that were asked for by those that ended well
  std::int64_t read_ns = 0;  // sum of latencies
  std::int64_t retries = 0;  // attempts beyond each read's first
  std::array<std::int64_t, kClasses> by_latency = {};

  // 0 when nothing was read.
  Nanos mean_latency() const { return reads > 0 ? read_ns / reads : 0; }
  // The latency that `share` of the reads do not exceed, rounded up to its class's end.
  Nanos latency_at(double share) const;
};
RemoteCounters remote_counters();

// For clients of remote stores.
struct RemoteRead {
  Nanos latency = 0;
  std::int64_t bytes = 0;
  int attempts = 1;
  enum class End { kWell, kFailed } end = End::kWell;
};
void count_remote_read(const RemoteRead& read);

}  // namespace bedplate::store
