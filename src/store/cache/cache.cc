#include "store/cache/cache.h"

#include <bit>
#include <filesystem>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "os/per_process.h"
#include "store/cache/internal/cached_store.h"
#include "store/cache/internal/tiers.h"

namespace bedplate::store {
namespace {

class TieredCache : public Cache, public std::enable_shared_from_this<TieredCache> {
 public:
  explicit TieredCache(CacheOptions options) : options_(std::move(options)) {}

  std::shared_ptr<Store> over(std::shared_ptr<Store> origin) override {
    return cache::cached_store(std::move(origin), [self = shared_from_this()]() -> cache::Tiers& {
      return self->tiers();
    });
  }
  void follow(std::shared_ptr<const NextUse> order) override { tiers().follow(std::move(order)); }
  CacheCounters counters() const override { return tiers().activity().counters; }
  CacheActivity activity() const override { return tiers().activity(); }
  const CacheOptions& options() const override { return options_; }

  cache::Tiers& tiers() const {
    Local& local = local_.get();
    std::call_once(local.once, [&] { local.tiers = std::make_unique<cache::Tiers>(options_); });
    return *local.tiers;
  }

 private:
  struct Local {
    std::once_flag once;
    std::unique_ptr<cache::Tiers> tiers;
  };

  const CacheOptions options_;
  mutable os::PerProcess<Local> local_;
};

}  // namespace

std::shared_ptr<Cache> Cache::open(CacheOptions options) {
  const auto block = static_cast<std::uint64_t>(options.block_bytes);
  if (options.block_bytes < 64 * kKiB || options.block_bytes > 64 * kMiB ||
      !std::has_single_bit(block))
    throw Error(Code::kInvalid,
                "blocks of {} bytes are not possible: a power of two, 64 KiB to 64 MiB",
                options.block_bytes);
  if (options.cap_bytes < 0 || options.memory_bytes < 0 || options.fetch_bytes <= 0 ||
      (options.folder.empty() && options.memory_bytes == 0))
    throw Error(Code::kInvalid, "a cache wants a folder or memory, and no negative sizes");
  if (!options.folder.empty()) {
    options.folder = std::filesystem::absolute(options.folder).lexically_normal();
    if (!options.folder.has_filename()) options.folder = options.folder.parent_path();
    std::error_code ignored;  // a parent that cannot be looked into is told when it is opened
    const auto parent = std::filesystem::status(options.folder.parent_path(), ignored);
    if (parent.type() == std::filesystem::file_type::not_found)
      throw Error(Code::kNotFound, "the cache's folder {} cannot be made: {} does not exist",
                  options.folder.string(), options.folder.parent_path().string());
  }
  auto made = std::make_shared<TieredCache>(std::move(options));
  made->tiers().open();  // what cannot be had is told now
  return made;
}

}  // namespace bedplate::store
