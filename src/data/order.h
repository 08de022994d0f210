// The order in which an epoch takes its samples, and who takes which: arithmetic, no lists.
//
//   const Order order({.samples = 1'281'167, .seed = 7, .block = 1024, .window = 65'536}, epoch);
//   const Share share = share_of({.samples = 1'281'167, .consumed = 90'112, .world_size = 8,
//                                 .rank = 3, .batch_size = 256, .tail = Tail::kPad});
//   for (int i = 0; i < share.count; ++i) sample = order.at(share.position(i));
//
// Two levels: the samples, as they lie in storage, are cut into blocks, and the blocks are
// permuted; the result is cut into windows, and what is in a window is permuted. A block is read
// from storage while its window is, so a reader needs memory or cache for one window, and larger
// windows shuffle better: `window` is the dial from storage order (1) to a full shuffle (samples).
//
// Lanes keep readers on separate data: position p of an epoch belongs to lane p mod lanes, and each
// lane has blocks of its own. With as many lanes as nodes, and ranks that take every world_size-th
// position (share_of), no two nodes read one block (but for those at the seams). The order is the
// same for any number of ranks; only the locality is best for one.
//
// Pure; values; thread-safe to read. 20 to 40 ns an index.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/permutation.h"

namespace bedplate::data {

struct OrderOptions {
  std::int64_t samples = 0;
  std::uint64_t seed = 0;
  std::int64_t block = 1;   // samples that lie together in storage and stay together
  std::int64_t window = 1;  // samples within which those of several blocks are mixed
  std::int64_t lanes = 1;
};

class Order {
 public:
  // Error{kInvalid} for negative samples or for a block, window or number of lanes below 1.
  Order(const OrderOptions& options, std::int64_t epoch);

  // For an order that is asked often: blocks, where they are few, are permuted once and not for
  // each sample. At most 16 KiB.
  void prepare();

  // The sample, numbered as in storage, at a position of the epoch. 0 <= position < samples, else
  // undefined.
  std::int64_t at(std::int64_t position) const;
  // When a sample comes: at(position_of(x)) == x. 0 <= sample < samples, else undefined.
  std::int64_t position_of(std::int64_t sample) const;

 private:
  struct Window {
    std::int64_t begin = 0;  // in the sequence of permuted blocks
    std::int64_t size = 0;
    std::uint64_t key = 0;
  };
  struct Lane {
    std::int64_t begin = 0;
    std::int64_t size = 0;
  };
  Lane lane_of(std::int64_t lane) const;
  Window window_of(std::int64_t lane, std::int64_t in_lane) const;
  std::int64_t block_at(std::int64_t place) const;
  std::int64_t in_blocks(std::int64_t place) const;
  std::int64_t place_in_blocks(std::int64_t sample) const;

  OrderOptions options_;
  std::uint64_t key_;
  Permutation blocks_;
  std::vector<std::int32_t> block_at_;  // after prepare(); else empty
  std::int64_t short_block_at_;         // where the last block comes, which may be short
  std::int64_t short_block_;            // its samples
};

// What becomes of the samples at an epoch's end that do not fill a batch of every rank.
enum class Tail {
  kPad,     // full batches: the first samples of the epoch come once more
  kDrop,    // full batches: left out
  kUneven,  // shorter batches, by at most one sample from rank to rank; some may be empty
};

struct ShareOptions {
  std::int64_t samples = 0;
  std::int64_t consumed = 0;  // positions of the epoch that all ranks together have behind them
  std::int64_t world_size = 1;
  std::int64_t rank = 0;
  std::int64_t batch_size = 1;  // of one rank
  Tail tail = Tail::kPad;
};

// One rank's part of the next step.
struct Share {
  std::int64_t first = 0;  // position in the epoch
  std::int64_t stride = 1;
  std::int64_t count = 0;
  std::int64_t samples = 0;        // positions from here on are those of the epoch's begin, again
  std::int64_t next_consumed = 0;  // for the next step; at an epoch's end: samples

  std::int64_t position(std::int64_t i) const {
    const std::int64_t at = first + i * stride;
    return at < samples ? at : at % samples;
  }
};
// nullopt is a Share with next_consumed == consumed: there is no further step in this epoch.
// Error{kInvalid} when the options contradict themselves.
Share share_of(const ShareOptions& options);

// Steps of a whole epoch, the same for every rank.
std::int64_t steps_of_epoch(const ShareOptions& options);

}  // namespace bedplate::data
