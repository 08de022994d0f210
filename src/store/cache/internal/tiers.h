// The tiers of one cache in this process, the fastest first, and what became of them.
//
// A tier that cannot be opened or written is left out, and tried again after a pause.
#pragma once

#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/cache/cache.h"
#include "store/cache/internal/block_file.h"

namespace bedplate::store::cache {

// Where the memory of a cache lies: /dev/shm, under a name that follows from the folder.
std::filesystem::path memory_folder(const CacheOptions& options);

class Tiers {
 public:
  explicit Tiers(const CacheOptions& options);
  Tiers(const Tiers&) = delete;
  Tiers& operator=(const Tiers&) = delete;
  ~Tiers();

  // Those that can be used now; the slowest one, which decides who fetches, is the last.
  std::vector<std::shared_ptr<BlockFile>> open();
  bool may_fill() const;
  bool may_promote() const { return options_.read_type == ReadType::kCachePromote && may_fill(); }
  std::int64_t fetch_bytes() const { return options_.fetch_bytes; }
  // A tier failed: nothing is filled for a while.
  void failed(const Error& error);

  void follow(std::shared_ptr<const NextUse> order);
  std::vector<std::shared_ptr<const NextUse>> orders();
  void tell_positions(const std::vector<std::shared_ptr<const NextUse>>& orders);

  // `memory_bytes`: of those that were hit.
  void count(const CacheCounters& more, std::int64_t memory_bytes);
  CacheActivity activity() const;

 private:
  struct Tier {
    CacheOptions options;  // of this tier alone: folder and cap
    std::shared_ptr<BlockFile> file;
    Nanos try_again = 0;
  };

  std::shared_ptr<BlockFile> open_tier(Tier& tier, std::int64_t block_bytes);
  void warn(const Error& error);
  void flush(Deadline deadline);

  const CacheOptions options_;
  mutable std::mutex mutex_;
  std::vector<Tier> tiers_;
  std::atomic<Nanos> fill_again_{0};
  std::vector<std::weak_ptr<const NextUse>> orders_;
  std::atomic<Nanos> told_{0};
  CacheActivity total_;
  CacheCounters unsaved_;
  std::atomic<Nanos> saved_{0};
  std::array<bool, 16> warned_{};
};

}  // namespace bedplate::store::cache
