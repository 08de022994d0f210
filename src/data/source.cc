#include "data/source.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "data/permutation.h"

namespace bedplate::data {
namespace {

constexpr std::int64_t kMostEpochSamples = std::int64_t{1} << 60;

// Of the first, the middle and the last sample.
std::array<Extent, 3> some_extents(const Dataset& dataset) {
  const auto extent = [&](std::int64_t sample) {
    const Dataset::Place at = dataset.place(sample);
    return dataset.shards()[at.shard].index().extent(at.sample);
  };
  return {extent(0), extent(dataset.samples() / 2), extent(dataset.samples() - 1)};
}

}  // namespace

BlockShuffle block_shuffle(std::int64_t stored_bytes, std::int64_t samples) {
  const std::int64_t mean =
      std::max<std::int64_t>(1, stored_bytes / std::max<std::int64_t>(1, samples));
  return {std::max<std::int64_t>(1, 4 * kMiB / mean), std::max<std::int64_t>(1, kGiB / mean)};
}

Source::Source(std::vector<SourcePart> parts, SourceOptions options)
    : parts_(std::move(parts)), options_(options) {
  if (parts_.empty()) throw Error(Code::kInvalid, "there is no data set to draw from");
  std::vector<MixSource> mixed;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::int64_t samples = parts_[i].dataset->samples();
    if (samples == 0) throw Error(Code::kInvalid, "data set {} has no samples", i);
    epoch_samples_ += samples;
    mixed.push_back({.samples = samples, .weight = parts_[i].weight});
  }
  if (parts_.size() > 1 || options_.epoch_samples != 0) {
    mix_.emplace(std::move(mixed), options_.seed);
    if (options_.epoch_samples < 0 || options_.epoch_samples > kMostEpochSamples)
      throw Error(Code::kInvalid, "an epoch cannot have {} samples", options_.epoch_samples);
    if (options_.epoch_samples > 0) epoch_samples_ = options_.epoch_samples;
  }
  const auto number = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
  fingerprint_ = key_of({options_.seed, number(options_.block), number(options_.window),
                         number(options_.lanes), number(epoch_samples_)});
  for (const SourcePart& part : parts_) {
    const double weight = mix_ ? part.weight : 1;
    fingerprint_ =
        key_of({fingerprint_, part.dataset->fingerprint(), std::bit_cast<std::uint64_t>(weight)});
    // Names and sizes are the same where equal samples were packed in another order.
    for (const Extent& extent : some_extents(*part.dataset))
      fingerprint_ = key_of({fingerprint_, number(extent.bytes), extent.crc.value_or(0)});
  }
  epoch(0);  // what Order refuses is refused here
}

OrderOptions Source::order_options(std::size_t part) const {
  // Equal data sets of one mix are not drawn in step.
  return {.samples = parts_[part].dataset->samples(),
          .seed = part == 0 ? options_.seed : key_of({options_.seed, part}),
          .block = options_.block,
          .window = options_.window,
          .lanes = options_.lanes};
}

Source::Epoch Source::epoch(std::int64_t number) const {
  if (number < 0) throw Error(Code::kInvalid, "there is no epoch {}; the first is 0", number);
  Epoch out;
  out.source_ = this;
  if (mix_) {
    if (number > INT64_MAX / epoch_samples_ - 1)
      throw Error(Code::kInvalid, "epoch {} is beyond what can be counted", number);
    out.first_ = number * epoch_samples_;
  } else {
    out.order_.emplace(order_options(0), number);
    out.order_->prepare();
  }
  return out;
}

Source::Epoch Source::in_order(std::vector<std::int64_t> samples) const {
  for (const std::int64_t sample : samples) dataset(0).place(sample);
  Epoch out;
  out.source_ = this;
  out.list_ = std::move(samples);
  out.listed_ = true;
  return out;
}

std::int64_t Source::Epoch::samples() const {
  return listed_ ? std::ssize(list_) : source_->epoch_samples();
}

std::optional<std::int64_t> Source::Epoch::position_of(std::int64_t sample) const {
  if (!order_) return std::nullopt;
  return order_->position_of(sample);
}

Drawn Source::Epoch::at(std::int64_t position) const {
  if (listed_) return {0, list_[static_cast<std::size_t>(position)]};
  if (order_) return {0, order_->at(position)};
  const Mix::Draw draw = source_->mix_->at(first_ + position);
  // Making an Order is as cheap as asking it: a few multiplications.
  const Order order(source_->order_options(draw.source), draw.epoch);
  return {draw.source, order.at(draw.position)};
}

double Source::mean_sample_bytes() const {
  double bytes = 0;
  double samples = 0;
  for (const SourcePart& part : parts_) {
    for (const Extent& extent : some_extents(*part.dataset)) {
      bytes += static_cast<double>(extent.bytes);
      ++samples;
    }
  }
  return bytes / samples;
}

}  // namespace bedplate::data
