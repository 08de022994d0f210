// A cache of what lies in other stores: in a folder on a fast disk, in memory, or both; shared by
// all processes of a machine that open the same folder.
//
//   const auto cache = Cache::open(parse_cache("memory:4GB,/nvme/cache:200GB"));
//   const auto store = cache->over(locate("s3://corpus/train/").store);    // a Store like any
//   other read_exactly(*store, …);                          // from S3 once, from then on from here
//
// Reads are served in blocks. A block that is missing is fetched once, however many threads and
// processes want it; what came is checked before it is used, on its first read by each process; an
// object that has another version is another object. The folder never holds more bytes on disk than
// its cap. Nothing needs to be cleaned after kill -9, and two users or jobs may share a folder.
//
// The cache never makes a read fail: where it cannot be used (no space, no permission, damage, a
// lock that another process keeps) reads go to the origin, which is counted, and told once to
// CacheOptions::warn. find(), list(), create() and remove() go to the origin always.
//
// Thread-safe. After fork() a child goes on with its own view of the same folder; orders that were
// followed are the parent's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "store/cache/cache_counters.h"
#include "store/cache/cache_options.h"
#include "store/store.h"

namespace bedplate::store {

// What a loader knows of the order in which it reads: eviction then keeps what is used soonest.
// Positions count from the first sample of the first epoch on, for all readers of the order alike,
// so that the numbers of several processes that follow one order mean the same. Thread-safe.
class NextUse {
 public:
  static constexpr std::int64_t kNever = INT64_MAX;

  virtual ~NextUse() = default;
  // The same in all processes that read in this order, another one for another; not 0.
  virtual std::uint64_t order() const = 0;
  virtual std::int64_t position() const = 0;
  // The first position after this process's own at which anybody reads of these bytes; kNever when
  // nobody does; nullopt for an object that is not of this order. Called for each range that is
  // read: keep it quick.
  virtual std::optional<std::int64_t> next_use(std::string_view store_url, std::string_view key,
                                               std::int64_t offset, std::int64_t bytes) const = 0;
  // So many positions from position() on, what is used is fetched together with a missing block
  // beside it: few requests of 4 MiB are quicker, and cheaper, than many of one block.
  virtual std::int64_t fetch_ahead() const { return 0; }
};

class Cache {
 public:
  // Error{kInvalid} for impossible options, kNotFound when the folder's parent does not exist.
  static std::shared_ptr<Cache> open(CacheOptions options);
  virtual ~Cache() = default;

  virtual std::shared_ptr<Store> over(std::shared_ptr<Store> origin) = 0;  // keeps the cache open
  // For as long as the order lives. Several orders may be followed at once.
  virtual void follow(std::shared_ptr<const NextUse> order) = 0;

  virtual CacheCounters counters() const = 0;  // of this process
  virtual CacheActivity activity() const = 0;  // the same, and more
  virtual const CacheOptions& options() const = 0;
};

}  // namespace bedplate::store
