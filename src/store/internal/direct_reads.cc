#include "store/internal/direct_reads.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/units.h"

namespace bedplate::store {
namespace {

constexpr std::size_t kMostMemory = 64 * kMiB;  // for one round; a single larger read exceeds it

constexpr std::size_t kMask = kDirectAlignment - 1;

bool is_aligned(const RangeRead& read) {
  return ((static_cast<std::uint64_t>(read.offset) | read.into.size() |
           reinterpret_cast<std::uintptr_t>(read.into.data())) &
          kMask) == 0;
}

std::size_t lead_of(const RangeRead& read) {
  return static_cast<std::uint64_t>(read.offset) & kMask;
}

std::size_t rounded_length(const RangeRead& read) {
  return (lead_of(read) + read.into.size() + kMask) & ~kMask;
}

// What was read, in the caller's terms. A file's last block is short: what counts is whether it
// reaches as far as was asked.
void hand_over(const RangeRead& wide, RangeRead& read) {
  const std::size_t lead = lead_of(read);
  read.got = std::min(wide.got - std::min(wide.got, lead), read.into.size());
  read.error = read.got == read.into.size() ? 0 : wide.error;
  if (wide.into.data() != read.into.data() && read.got > 0)
    std::memcpy(read.into.data(), wide.into.data() + lead, read.got);
}

}  // namespace

void read_directly(const ReadEngine& engine, std::span<RangeRead> reads, int depth,
                   Deadline deadline) {
  while (!reads.empty()) {
    std::size_t count = 0;
    std::size_t size = 0;
    for (; count < reads.size(); ++count) {
      const std::size_t more = is_aligned(reads[count]) ? 0 : rounded_length(reads[count]);
      if (count > 0 && size + more > kMostMemory) break;
      size += more;
    }
    const AlignedMemory memory = size > 0 ? aligned_memory(size) : nullptr;
    std::vector<RangeRead> wide;
    std::size_t used = 0;
    for (const RangeRead& one : reads.first(count)) {
      if (is_aligned(one)) {
        wide.push_back({one.fd, one.offset, one.into});
        continue;
      }
      const std::size_t length = rounded_length(one);
      wide.push_back({one.fd,
                      one.offset - static_cast<std::int64_t>(lead_of(one)),
                      {memory.get() + used, length}});
      used += length;
    }
    engine.read(wide, depth, deadline);
    for (std::size_t i = 0; i < count; ++i) hand_over(wide[i], reads[i]);
    reads = reads.subspan(count);
  }
}

}  // namespace bedplate::store
