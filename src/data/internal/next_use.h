// What a cache asks of a loader's order: when bytes of a shard are read next.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>

#include "data/source.h"
#include "store/cache/cache.h"

namespace bedplate::data {

// Of a source of one data set, whose shards are objects of their own.
class LoaderNextUse : public store::NextUse {
 public:
  explicit LoaderNextUse(std::shared_ptr<const Source> source);

  void at(std::int64_t epoch, std::int64_t consumed) {
    position_.store(epoch * source_->epoch_samples() + consumed, std::memory_order_relaxed);
  }

  std::uint64_t order() const override { return source_->fingerprint() | 1; }
  std::int64_t position() const override { return position_.load(std::memory_order_relaxed); }
  std::optional<std::int64_t> next_use(std::string_view store_url, std::string_view key,
                                       std::int64_t offset, std::int64_t bytes) const override;
  // What lies together comes within one window, or, in storage order, next.
  std::int64_t fetch_ahead() const override { return fetch_ahead_; }

 private:
  const std::shared_ptr<const Source> source_;  // shared with the loader
  const std::int64_t fetch_ahead_;
  std::unordered_map<std::string, std::size_t> shards_;  // by URL and key
  std::atomic<std::int64_t> position_ = 0;
};

}  // namespace bedplate::data
