#include "store/remote_counters.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "os/per_process.h"

namespace bedplate::store {
namespace {

using Count = std::atomic<std::int64_t>;

struct Live {
  Count reads{0}, failed{0}, bytes{0}, read_ns{0}, retries{0};
  std::array<Count, RemoteCounters::kClasses> by_latency{};
};

// Never destroyed: threads may still be reading while the process ends.
Live& live() {
  static auto* const counters = new os::PerProcess<Live>;
  return counters->get();
}

// Its doubling, and the quarter of it: 1 µs is class 0, 1.25 µs class 1, 2 µs class 4.
std::size_t class_of(Nanos latency) {
  const auto quarters = static_cast<std::uint64_t>(std::max<Nanos>(latency, 0)) * 4 / kMicrosecond;
  if (quarters < 4) return 0;
  const auto doubling = static_cast<std::size_t>(std::bit_width(quarters)) - 3;
  const std::size_t quarter = (quarters >> doubling) - 4;
  return std::min(doubling * 4 + quarter, RemoteCounters::kClasses - 1);
}

Nanos end_of_class(std::size_t number) {
  const auto quarters = std::int64_t{5 + static_cast<std::int64_t>(number % 4)} << (number / 4);
  return quarters * kMicrosecond / 4;
}

}  // namespace

Nanos RemoteCounters::latency_at(double share) const {
  std::int64_t all = 0;
  for (const std::int64_t count : by_latency) all += count;
  if (all == 0) return 0;
  const auto wanted =
      static_cast<std::int64_t>(std::ceil(std::clamp(share, 0.0, 1.0) * static_cast<double>(all)));
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < by_latency.size(); ++i) {
    seen += by_latency[i];
    if (seen >= std::max<std::int64_t>(wanted, 1)) return end_of_class(i);
  }
  return end_of_class(kClasses - 1);
}

RemoteCounters remote_counters() {
  const Live& from = live();
  RemoteCounters out;
  out.reads = from.reads.load(std::memory_order_relaxed);
  out.failed = from.failed.load(std::memory_order_relaxed);
  out.bytes = from.bytes.load(std::memory_order_relaxed);
  out.read_ns = from.read_ns.load(std::memory_order_relaxed);
  out.retries = from.retries.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < out.by_latency.size(); ++i)
    out.by_latency[i] = from.by_latency[i].load(std::memory_order_relaxed);
  return out;
}

void count_remote_read(const RemoteRead& read) {
  Live& to = live();
  const auto add = [](Count& count, std::int64_t more) {
    count.fetch_add(more, std::memory_order_relaxed);
  };
  add(to.reads, 1);
  add(read.end == RemoteRead::End::kWell ? to.bytes : to.failed,
      read.end == RemoteRead::End::kWell ? read.bytes : 1);
  add(to.read_ns, std::max<Nanos>(read.latency, 0));
  if (read.attempts > 1) add(to.retries, read.attempts - 1);
  add(to.by_latency[class_of(read.latency)], 1);
}

}  // namespace bedplate::store
