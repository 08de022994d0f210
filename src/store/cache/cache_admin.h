// Looking at a cache's folder, and taking care of it: `bedplate cache`.
//
//   const CacheReport report = look_at_cache("/nvme/cache");
//   warm_cache(*cache, urls, {.threads = 8}, {});
//
// All of it works while jobs read and fill. Error{kNotFound} when the folder has no cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "store/cache/cache.h"
#include "store/driver.h"

namespace bedplate::store {

struct CacheReport {
  std::filesystem::path folder;
  std::int64_t cap_bytes = 0;
  std::int64_t disk_bytes = 0;  // of all that lies in the folder, as the file system counts
  std::int64_t block_bytes = 0;
  std::int64_t blocks = 0;
  std::int64_t bytes = 0;  // of these blocks

  struct Origin {
    std::string url;  // empty: of more origins than a cache remembers by name
    std::int64_t blocks = 0;
    std::int64_t bytes = 0;
  };
  std::vector<Origin> origins;  // the largest first
  CacheCounters counters;       // of all processes since the folder was made
};
CacheReport look_at_cache(const std::filesystem::path& folder);
// Of the memory in front of that folder; nullopt when there is none.
std::optional<CacheReport> look_at_memory(const std::filesystem::path& folder);

// How far something is, and whether it is to stop.
struct CacheWatch {
  std::function<void(std::int64_t done, std::int64_t of)> show = {};  // by one thread at a time
  std::function<bool()> stop = {};  // true: as soon as possible; from any thread

  bool stopped() const { return stop && stop(); }
};

struct CacheDrop {
  std::int64_t blocks = 0;
  std::int64_t bytes = 0;
};
// What lies under one of `urls` leaves the folder and its memory; everything when there are none. A
// URL is a store, an object, or a prefix of objects; only for the last the origin is asked.
CacheDrop drop_from_cache(const std::filesystem::path& folder, std::span<const std::string> urls,
                          const StoreOptions& options = {});

enum class Repair { kNo, kYes };  // bad blocks leave

struct CacheCheck {
  std::int64_t blocks = 0;
  std::int64_t bytes = 0;
  struct Bad {
    std::string origin;
    std::uint64_t slot = 0;   // of the cache's file
    std::uint32_t block = 0;  // of its object
    std::int64_t bytes = 0;
    std::string what;
  };
  std::vector<Bad> bad;
  bool stopped = false;
};
CacheCheck verify_cache(const std::filesystem::path& folder, Repair repair,
                        const CacheWatch& watch = {});

struct CacheWarm {
  std::int64_t objects = 0;
  std::int64_t bytes = 0;          // of these objects
  std::int64_t fetched_bytes = 0;  // those that were not there yet
  std::vector<std::string> failed;
  bool stopped = false;
};
struct WarmOptions {
  int threads = 4;
  Nanos timeout = 600 * kSecond;  // for one piece of 64 MiB
  StoreOptions store = {};
};
// Brings objects into the cache: those that the URLs name or that begin with them. What is there
// already is not fetched again, so that it can be stopped and gone on with. Error{kInvalid} when
// all of them have no room, kNotFound when a URL names nothing.
CacheWarm warm_cache(Cache& cache, std::span<const std::string> urls,
                     const WarmOptions& options = {}, const CacheWatch& watch = {});

}  // namespace bedplate::store
