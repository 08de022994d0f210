#include "data/internal/window_memory.h"

#include <algorithm>
#include <string_view>

#include "os/free_memory.h"

namespace bedplate::data {
namespace {

constexpr std::int64_t kWorthARequest = kMiB;   // bytes of a sample
constexpr std::int64_t kReadAhead = 64 * kMiB;  // of the next window
constexpr std::int64_t kMost = 2 * kGiB;
constexpr std::int64_t kFreeAsMuch = 4;  // times what is taken

bool is_remote(std::string_view url) {
  return url.starts_with("s3://") || url.starts_with("http://") || url.starts_with("https://");
}

bool pays(const Source& source) {
  const Dataset& dataset = source.dataset(0);
  const bool remote = std::ranges::any_of(
      dataset.shards(), [](const auto& shard) { return is_remote(shard.store->url()); });
  return remote && dataset.stored_bytes() / dataset.samples() < kWorthARequest;
}

}  // namespace

std::int64_t window_bytes(const Source& source) {
  if (source.mixed()) return 0;
  const Dataset& dataset = source.dataset(0);
  const bool elsewhere = std::ranges::any_of(dataset.shards(), [](const auto& shard) {
    return shard.format->samples == Format::Samples::kElsewhere;
  });
  if (elsewhere) return 0;
  const std::int64_t stored = dataset.stored_bytes();
  const double mean = static_cast<double>(stored) / static_cast<double>(dataset.samples());
  const auto bytes_of = [&](std::int64_t samples) {
    return static_cast<std::int64_t>(mean * static_cast<double>(samples));
  };
  const SourceOptions& order = source.options();
  const bool in_order = order.block >= dataset.samples() && order.window == 1;
  std::int64_t span = stored;
  if (in_order) {
    span = 0;
  } else if (order.block >= dataset.samples() || bytes_of(order.block) >= kMiB) {
    span = bytes_of(std::min(order.window, dataset.samples()));
  }  // else neighbours come at any time of an epoch
  return std::min(stored + kMiB, span + span / 8) + kReadAhead;
}

std::unique_ptr<WindowMemory> WindowMemory::open(const Source& source, KeepWindow keep) {
  const std::int64_t bytes = window_bytes(source);
  if (keep == KeepWindow::kNever || bytes == 0 || source.dataset(0).cache()) return nullptr;
  if (keep == KeepWindow::kAuto) {
    if (!pays(source) || bytes > kMost) return nullptr;
    const auto free = os::free_memory(os::HostRoot());
    if (free && *free / kFreeAsMuch < bytes) return nullptr;
  }
  return std::unique_ptr<WindowMemory>(new WindowMemory(source, bytes));
}

WindowMemory::WindowMemory(const Source& source, std::int64_t bytes)
    : cache_(store::Cache::open(
          {.memory_bytes = bytes,
           .memory_name = fmt::format("{:016x}", source.dataset(0).fingerprint())})) {
  for (const Dataset::Shard& shard : source.dataset(0).shards()) {
    auto& store = stores_[shard.store.get()];
    if (!store) store = cache_->over(shard.store);
  }
}

}  // namespace bedplate::data
