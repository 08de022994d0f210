// Which block leaves next.
//
// Blocks of a live order leave by their distance to its position, the farthest first (Belady, "A
// study of replacement algorithms", 1966); ahead or behind alike, so that a slow reader's blocks
// stay. Others leave by S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction",
// SOSP 2023), cold ones of them before any block of which the next use is known.
//
// There is no queue on disk that a crash could break: each slot's Policy says where it stands, and
// a scan of them gives the next candidates, each looked at again before it leaves. Up to
// kScannedEachTime slots the choice is exact, beyond it is among the worst 64th at the last scan.
//
// Used under the change lock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/units.h"
#include "store/cache/internal/cache_file.h"
#include "store/cache/internal/layout.h"

namespace bedplate::store::cache {

constexpr std::int64_t kNeverUsed = INT64_MAX;
constexpr Nanos kOrderLives = 60 * kSecond;  // after the last word from a process that follows it

// The orders that somebody follows now.
class LiveOrders {
 public:
  explicit LiveOrders(const CacheFile& file);
  bool lives(std::uint64_t order) const;
  // Positions between the order's and the next use; nullopt when the order is not known.
  std::optional<std::int64_t> distance(std::uint64_t order, std::int64_t next_use) const;

 private:
  std::vector<Order> orders_;
};

class Victims {
 public:
  // Before each choice or few of them.
  void look_again(const CacheFile& file, const State& state, const LiveOrders& orders);

  // A slot whose block may leave: `newcomer` is the distance of the block that wants its place, if
  // that is known. nullopt: all that are there are worth more. Gives second chances on the way.
  std::optional<std::uint64_t> next(const CacheFile& file, State& state, const LiveOrders& orders,
                                    std::optional<std::int64_t> newcomer);
  std::optional<std::uint64_t> free_slot(const CacheFile& file, State& state,
                                         const LiveOrders& orders);

  // Whether a slot's filler is a thread of this process.
  std::function<bool(std::uint64_t slot)> filled_here = {};

 private:
  struct Candidate {
    std::uint64_t slot;
    Policy policy;
    std::int64_t rank;
  };
  using List = std::vector<Candidate>;  // the next one at the end

  void scan(const CacheFile& file, const State& state, const LiveOrders& orders);
  void sort(List& list, std::size_t most);
  std::optional<Candidate> pop(const CacheFile& file, const LiveOrders& orders, List& list);
  std::optional<std::uint64_t> fifo_step(const CacheFile& file, State& state,
                                         const LiveOrders& orders);
  std::optional<std::uint64_t> dead_filling(const CacheFile& file);

  List small_, main_, ordered_;
  std::vector<std::uint64_t> free_, filling_;
  bool gave_chance_ = false;
};

}  // namespace bedplate::store::cache
