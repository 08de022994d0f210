#include "data/internal/next_use.h"

#include <algorithm>
#include <string_view>

namespace bedplate::data {
namespace {

// Samples of a range that are asked when they come: a block of storage is shuffled within one
// window, so a few tell nearly what all would.
constexpr std::int64_t kAsked = 8;
constexpr std::int64_t kNext = 4 * kMiB;  // of storage order

std::string name_of(std::string_view store_url, std::string_view key) {
  return std::string(store_url) + '\n' + std::string(key);
}

// The first sample of the shard that ends behind `offset`. Samples lie in ascending order.
std::int64_t first_behind(const ShardIndex& index, std::int64_t offset) {
  std::int64_t low = 0;
  std::int64_t high = index.samples();
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    const Extent extent = index.extent(middle);
    if (extent.offset + extent.bytes > offset) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

std::int64_t ahead_in(const Source& source) {
  const SourceOptions& order = source.options();
  if (order.block == 1) return 0;
  if (order.window > 1) return order.window;
  const double next = static_cast<double>(kNext) / source.mean_sample_bytes();
  return std::min(order.block, static_cast<std::int64_t>(std::min(next, 1e9)));
}

}  // namespace

LoaderNextUse::LoaderNextUse(std::shared_ptr<const Source> source)
    : source_(std::move(source)), fetch_ahead_(ahead_in(*source_)) {
  const auto shards = source_->dataset(0).shards();
  for (std::size_t i = 0; i < shards.size(); ++i)
    shards_.emplace(name_of(shards[i].store->url(), shards[i].object.key), i);
}

std::optional<std::int64_t> LoaderNextUse::next_use(std::string_view store_url,
                                                    std::string_view key, std::int64_t offset,
                                                    std::int64_t bytes) const {
  const auto found = shards_.find(name_of(store_url, key));
  if (found == shards_.end()) return std::nullopt;
  const Dataset::Shard& shard = source_->dataset(0).shards()[found->second];
  if (!shard.is_open() || shard.samples == 0) return std::nullopt;
  const std::int64_t first = first_behind(shard.index(), offset);
  const std::int64_t end = std::max(first + 1, first_behind(shard.index(), offset + bytes));
  if (first >= shard.samples) return kNever;  // only the index, which has been read
  const std::int64_t now = position();
  const std::int64_t samples = source_->epoch_samples();
  std::int64_t next = kNever;
  const std::int64_t step = std::max<std::int64_t>(1, (end - first) / kAsked);
  for (const std::int64_t number : {now / samples, now / samples + 1}) {
    const Source::Epoch epoch = source_->epoch(number);
    for (std::int64_t i = first; i < std::min(end, shard.samples); i += step) {
      const auto position = epoch.position_of(shard.first + i);
      if (!position) return std::nullopt;
      if (number * samples + *position > now) next = std::min(next, number * samples + *position);
    }
    if (next != kNever) break;
  }
  return next;
}

}  // namespace bedplate::data
