#include "data/order.h"

#include <algorithm>

#include "base/error.h"

namespace bedplate::data {
namespace {

// What the keys of an epoch are for.
enum Purpose : std::uint64_t { kOfBlocks = 1, kOfWindow = 2 };

std::int64_t parts_of(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

const OrderOptions& checked(const OrderOptions& options) {
  if (options.samples < 0 || options.block < 1 || options.window < 1 || options.lanes < 1) {
    throw Error(Code::kInvalid,
                "no order of {} samples in blocks of {}, windows of {} and {} lanes can be made",
                options.samples, options.block, options.window, options.lanes);
  }
  return options;
}

void check(const ShareOptions& o) {
  if (o.world_size < 1 || o.rank < 0 || o.rank >= o.world_size || o.batch_size < 1 ||
      o.samples < 0 || o.consumed < 0 || o.consumed > o.samples) {
    throw Error(Code::kInvalid, "rank {} of {} cannot take batches of {} after {} of {} samples",
                o.rank, o.world_size, o.batch_size, o.consumed, o.samples);
  }
  if (o.batch_size > INT64_MAX / 4 / o.world_size) {
    throw Error(Code::kInvalid, "{} batches of {} samples are too many to count", o.world_size,
                o.batch_size);
  }
}

}  // namespace

Order::Order(const OrderOptions& options, std::int64_t epoch)
    : options_(checked(options)),
      key_(key_of({options.seed, static_cast<std::uint64_t>(epoch)})),
      blocks_(parts_of(options.samples, options.block), key_of({key_, kOfBlocks})),
      short_block_at_(options.samples > 0 ? blocks_.place_of(blocks_.size() - 1) : 0),
      short_block_(options.samples -
                   std::max<std::int64_t>(blocks_.size() - 1, 0) * options.block) {}

void Order::prepare() {
  constexpr std::int64_t kFew = 4096;
  if (blocks_.size() < 2 || blocks_.size() > kFew) return;
  block_at_.resize(static_cast<std::size_t>(blocks_.size()));
  for (std::size_t i = 0; i < block_at_.size(); ++i)
    block_at_[i] = static_cast<std::int32_t>(blocks_.at(static_cast<std::int64_t>(i)));
}

std::int64_t Order::block_at(std::int64_t place) const {
  return block_at_.empty() ? blocks_.at(place) : block_at_[static_cast<std::size_t>(place)];
}

// The sample at a place of the sequence of permuted blocks.
std::int64_t Order::in_blocks(std::int64_t place) const {
  const std::int64_t block = options_.block;
  const std::int64_t short_begin = short_block_at_ * block;
  if (place < short_begin) return block_at(place / block) * block + place % block;
  if (place < short_begin + short_block_) return (blocks_.size() - 1) * block + place - short_begin;
  const std::int64_t full = place - short_block_;  // as if the short block had not come
  return block_at(full / block + 1) * block + full % block;
}

std::int64_t Order::place_in_blocks(std::int64_t sample) const {
  const std::int64_t block = blocks_.place_of(sample / options_.block);
  const std::int64_t begin = block * options_.block;
  const std::int64_t lost = options_.block - short_block_;
  return begin - (block > short_block_at_ ? lost : 0) + sample % options_.block;
}

Order::Lane Order::lane_of(std::int64_t lane) const {
  // The first `longer` lanes have one sample more.
  const std::int64_t each = options_.samples / options_.lanes;
  const std::int64_t longer = options_.samples % options_.lanes;
  return {lane * each + std::min(lane, longer), each + (lane < longer ? 1 : 0)};
}

Order::Window Order::window_of(std::int64_t number, std::int64_t in_lane) const {
  const Lane lane = lane_of(number);
  const std::int64_t window = in_lane / options_.window;
  const std::int64_t begin = window * options_.window;
  return {lane.begin + begin, std::min(options_.window, lane.size - begin),
          key_of({key_, kOfWindow, static_cast<std::uint64_t>(number),
                  static_cast<std::uint64_t>(window)})};
}

std::int64_t Order::at(std::int64_t position) const {
  const std::int64_t in_lane = position / options_.lanes;
  const Window window = window_of(position % options_.lanes, in_lane);
  const std::int64_t in_window = in_lane % options_.window;
  if (window.size < 2) return in_blocks(window.begin + in_window);
  return in_blocks(window.begin + Permutation(window.size, window.key).at(in_window));
}

std::int64_t Order::position_of(std::int64_t sample) const {
  const std::int64_t place = place_in_blocks(sample);
  const std::int64_t each = options_.samples / options_.lanes;
  const std::int64_t longer = options_.samples % options_.lanes;
  const std::int64_t in_longer = longer * (each + 1);
  const std::int64_t lane =
      place < in_longer ? place / (each + 1) : longer + (place - in_longer) / each;
  const std::int64_t in_lane = place - lane_of(lane).begin;
  const Window window = window_of(lane, in_lane);
  std::int64_t in_window = place - window.begin;
  if (window.size >= 2) in_window = Permutation(window.size, window.key).place_of(in_window);
  return (in_lane - in_lane % options_.window + in_window) * options_.lanes + lane;
}

Share share_of(const ShareOptions& options) {
  check(options);
  const std::int64_t all = options.world_size * options.batch_size;
  const std::int64_t left = options.samples - options.consumed;
  Share share{.first = options.consumed + options.rank,
              .stride = options.world_size,
              .count = options.batch_size,
              .samples = options.samples,
              .next_consumed = options.consumed + std::min(all, left)};
  if (left >= all) return share;
  if (left == 0 || options.tail == Tail::kDrop) {
    share.count = 0;
    share.next_consumed = options.consumed;
  } else if (options.tail == Tail::kUneven) {
    share.count = (left - options.rank + options.world_size - 1) / options.world_size;
    share.count = std::max<std::int64_t>(share.count, 0);
  }
  return share;
}

std::int64_t steps_of_epoch(const ShareOptions& options) {
  check(options);
  const std::int64_t all = options.world_size * options.batch_size;
  return options.tail == Tail::kDrop ? options.samples / all : parts_of(options.samples, all);
}

}  // namespace bedplate::data
