#include "store/cache/cache_admin.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/text.h"
#include "store/cache/internal/cache_file.h"
#include "store/cache/internal/cached_store.h"
#include "store/cache/internal/change.h"
#include "store/cache/internal/tiers.h"

namespace bedplate::store {
namespace {

using cache::CacheFile;
using cache::Change;
using cache::Entry;

constexpr Nanos kLockPatience = 10 * kSecond;
constexpr std::uint64_t kEntriesAtOnce = 4096;
constexpr std::size_t kDroppedAtOnce = 64;  // under one lock: others wait some milliseconds
constexpr std::int64_t kWarmedAtOnce = 64 * kMiB;

std::unique_ptr<CacheFile> open_cache(const std::filesystem::path& folder) {
  auto file = CacheFile::find(folder);
  if (!file) throw Error(Code::kNotFound, "there is no cache in {}", folder.string());
  return file;
}

std::filesystem::path memory_of(const std::filesystem::path& folder) {
  return cache::memory_folder({.folder = folder});
}

// Each block that is whole. `visit` gets its slot and entry.
template <typename Visit>
void for_each_block(const CacheFile& file, const Visit& visit) {
  const std::uint64_t end = std::min(cache::state_of(file).high_water, file.header().slots);
  std::vector<Entry> entries;
  for (std::uint64_t first = 0; first < end; first += kEntriesAtOnce) {
    entries.resize(std::min(kEntriesAtOnce, end - first));
    file.read(file.entry_at(first), std::as_writable_bytes(std::span(entries)));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].whole == 1) visit(first + i, entries[i]);
    }
  }
}

std::map<std::uint64_t, std::string> origins_of(const CacheFile& file) {
  std::map<std::uint64_t, std::string> origins;
  for (std::uint64_t i = 0; i < cache::kOrigins; ++i) {
    const auto origin = file.get<cache::Origin>(cache::kOriginsAt + i * sizeof(cache::Origin));
    if (origin.length > sizeof origin.url) continue;
    const std::string url(origin.url, origin.length);
    if (origin.hash != 0 && origin.crc == crc32c(url)) origins[origin.hash] = to_utf8(url);
  }
  return origins;
}

CacheReport report_of(const CacheFile& file) {
  const auto state = cache::state_of(file);
  CacheReport report{.folder = file.path().parent_path(),
                     .cap_bytes = state.cap_bytes,
                     .disk_bytes = file.disk_bytes(),
                     .block_bytes = file.header().block_bytes,
                     .counters = state.counters};
  std::map<std::uint64_t, CacheReport::Origin> by_origin;
  for_each_block(file, [&](std::uint64_t, const Entry& entry) {
    ++report.blocks;
    report.bytes += entry.bytes;
    auto& origin = by_origin[entry.name.origin];
    ++origin.blocks;
    origin.bytes += entry.bytes;
  });
  const auto names = origins_of(file);
  CacheReport::Origin others;
  for (auto& [hash, origin] : by_origin) {
    if (const auto name = names.find(hash); name != names.end()) {
      origin.url = name->second;
      report.origins.push_back(origin);
    } else {
      others.blocks += origin.blocks;
      others.bytes += origin.bytes;
    }
  }
  if (others.blocks > 0) report.origins.push_back(others);
  std::ranges::sort(report.origins, std::greater(), &CacheReport::Origin::bytes);
  return report;
}

// What is to be dropped.
struct Chosen {
  bool all = false;
  std::unordered_set<std::uint64_t> origins;
  std::unordered_set<std::uint64_t> objects;

  bool has(const cache::BlockName& name) const {
    return all || origins.contains(name.origin) || objects.contains(name.key);
  }
};

Chosen choose(const cache::Hash128& key, std::span<const std::string> urls,
              const StoreOptions& options) {
  Chosen chosen{.all = urls.empty()};
  for (const std::string& url : urls) {
    const Place place = locate(url, options);
    const std::string store_url = place.store->url();
    if (place.key.empty())
      chosen.origins.insert(cache::origin_hash(key, store_url));
    else
      chosen.objects.insert(cache::object_hash(key, store_url, place.key));
    if (!place.key.empty() && !place.key.ends_with('/')) continue;
    // All that came from a remote store bears its name. Files may have been read from a folder
    // above, and are found one by one.
    const bool remote = store_url.find("://") != std::string::npos;
    if (place.key.empty() && remote) continue;
    try {
      place.store->list(
          place.key,
          [&](const ObjectInfo& one) {
            chosen.objects.insert(cache::object_hash(key, store_url, one.key));
          },
          Deadline::after(kDefaultTimeout));
    } catch (const Error& error) {
      if (!remote && place.key.empty()) continue;  // a folder that is gone: its name is enough
      throw Error(
          error.code(),
          "{}: a cache knows objects by hashes of their names, so that only the origin can "
          "say which these are, and it does not ({}); without it, one object is dropped by "
          "its name, several by names with braces (part-{{000..127}}.tar), and all of {} by "
          "that name",
          to_utf8(url), error.what(), store_url);
    }
  }
  return chosen;
}

CacheDrop drop(const CacheFile& file, const Chosen& chosen) {
  std::vector<std::pair<std::uint64_t, Entry>> leaving;
  for_each_block(file, [&](std::uint64_t slot, const Entry& entry) {
    if (chosen.has(entry.name)) leaving.emplace_back(slot, entry);
  });
  CacheDrop dropped;
  cache::LocalState local;
  for (std::size_t i = 0; i < leaving.size();) {
    Change change(file, local, Deadline::after(kLockPatience));
    for (const std::size_t end = std::min(leaving.size(), i + kDroppedAtOnce); i < end; ++i) {
      change.forget(leaving[i].first, leaving[i].second.generation);
      ++dropped.blocks;
      dropped.bytes += leaving[i].second.bytes;
    }
    change.commit();
  }
  return dropped;
}

std::string what_is_wrong(const CacheFile& file, std::uint64_t slot, const Entry& entry,
                          std::vector<std::byte>& block) {
  if (entry.crc != cache::crc_of(entry) || entry.bytes == 0 ||
      entry.bytes > file.header().block_bytes)
    return "its entry in the index is damaged";
  const std::size_t chunk = file.header().block_bytes / cache::kChunks;
  block.resize(entry.bytes);
  try {
    file.read(file.block_at(slot), block);
  } catch (const Error& error) {
    return error.what();
  }
  for (std::size_t at = 0, i = 0; at < block.size(); at += chunk, ++i) {
    const auto part =
        std::span<const std::byte>(block).subspan(at, std::min(chunk, block.size() - at));
    if (crc32c(part) != entry.sums[i])
      return fmt::format("the checksum of its bytes {} to {} is wrong", at, at + part.size());
  }
  return {};
}

// One piece of work of warm_cache().
struct Piece {
  Store* store;
  const ObjectInfo* object;
  std::int64_t from;
  std::int64_t to;
};

struct Objects {
  std::shared_ptr<Store> store;
  std::vector<ObjectInfo> infos;
};

std::vector<Objects> objects_of(Cache& cache, std::span<const std::string> urls,
                                const StoreOptions& options) {
  std::vector<Objects> all;
  for (const std::string& url : urls) {
    const Place place = locate(url, options);
    Objects objects{.store = cache.over(place.store)};
    const auto deadline = Deadline::after(kDefaultTimeout);
    if (!place.key.empty() && !place.key.ends_with('/')) {
      if (auto found = objects.store->find(place.key, deadline)) objects.infos.push_back(*found);
    } else {
      objects.store->list(
          place.key, [&](const ObjectInfo& one) { objects.infos.push_back(one); }, deadline);
    }
    if (objects.infos.empty())
      throw Error(Code::kNotFound, "{} names no object; a prefix ends in /", to_utf8(url));
    all.push_back(std::move(objects));
  }
  return all;
}

}  // namespace

CacheReport look_at_cache(const std::filesystem::path& folder) {
  return report_of(*open_cache(folder));
}

std::optional<CacheReport> look_at_memory(const std::filesystem::path& folder) {
  try {
    const auto file = CacheFile::find(memory_of(folder));
    if (file) return report_of(*file);
  } catch (const Error& error) {
    if (error.code() != Code::kPermission && error.code() != Code::kCorrupt) throw;
  }
  return std::nullopt;
}

CacheDrop drop_from_cache(const std::filesystem::path& folder, std::span<const std::string> urls,
                          const StoreOptions& options) {
  const auto file = open_cache(folder);
  // The blocks of both are named with the key of the folder.
  const Chosen chosen = choose(file->header().key, urls, options);
  const CacheDrop dropped = drop(*file, chosen);
  const auto memory = memory_of(folder);
  if (const auto in_memory = CacheFile::find(memory)) {
    drop(*in_memory, chosen);
    std::error_code ignored;  // another user's: it is empty now
    if (chosen.all) std::filesystem::remove_all(memory, ignored);
  }
  return dropped;
}

CacheCheck verify_cache(const std::filesystem::path& folder, Repair repair,
                        const CacheWatch& watch) {
  const auto file = open_cache(folder);
  const auto origins = origins_of(*file);
  std::int64_t all = 0;
  for_each_block(*file, [&](std::uint64_t, const Entry&) { ++all; });
  CacheCheck check;
  cache::LocalState local;
  std::vector<std::byte> block;
  for_each_block(*file, [&](std::uint64_t slot, const Entry& entry) {
    check.stopped = check.stopped || watch.stopped();
    if (check.stopped) return;
    const std::string wrong = what_is_wrong(*file, slot, entry, block);
    const auto now = file->get<Entry>(file->entry_at(slot));
    if (now.generation != entry.generation) return;  // it left while we read
    ++check.blocks;
    check.bytes += entry.bytes;
    if (!wrong.empty()) {
      const auto origin = origins.find(entry.name.origin);
      check.bad.push_back({.origin = origin == origins.end() ? "" : origin->second,
                           .slot = slot,
                           .block = entry.name.number,
                           .bytes = entry.bytes,
                           .what = wrong});
      if (repair == Repair::kYes) {
        Change change(*file, local, Deadline::after(kLockPatience));
        change.forget(slot, entry.generation);
        change.commit();
      }
    }
    if (watch.show) watch.show(check.blocks, all);
  });
  return check;
}

CacheWarm warm_cache(Cache& cache, std::span<const std::string> urls, const WarmOptions& options,
                     const CacheWatch& watch) {
  if (cache.options().folder.empty())
    throw Error(Code::kInvalid, "only a cache in a folder can be warmed");
  const auto all = objects_of(cache, urls, options.store);
  CacheWarm warm;
  std::vector<Piece> pieces;
  for (const Objects& objects : all) {
    for (const ObjectInfo& object : objects.infos) {
      ++warm.objects;
      warm.bytes += object.size;
      for (std::int64_t from = 0; from < object.size; from += kWarmedAtOnce)
        pieces.push_back(
            {objects.store.get(), &object, from, std::min(object.size, from + kWarmedAtOnce)});
    }
  }
  const auto file = open_cache(cache.options().folder);
  const std::int64_t room =
      cache::state_of(*file).cap_bytes - static_cast<std::int64_t>(file->header().blocks_at);
  if (warm.bytes > room)
    throw Error(Code::kInvalid,
                "{} have no room in {}, which holds {}: name fewer, or give it more",
                human_bytes(static_cast<double>(warm.bytes)), cache.options().folder.string(),
                human_bytes(static_cast<double>(std::max<std::int64_t>(0, room))));
  const std::int64_t block = file->header().block_bytes;
  const std::int64_t fetched_before = cache.counters().origin_bytes;
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::int64_t done = 0;
  std::set<std::string> failed;
  const auto work = [&] {
    for (std::size_t i = next++; i < pieces.size(); i = next++) {
      if (watch.stopped()) return;
      const Piece& piece = pieces[i];
      std::vector<std::byte> first(
          static_cast<std::size_t>((piece.to - piece.from + block - 1) / block));
      std::vector<Read> reads;
      for (std::size_t k = 0; k < first.size(); ++k)
        reads.push_back({.key = piece.object->key,
                         .offset = piece.from + static_cast<std::int64_t>(k) * block,
                         .into = std::span(first).subspan(k, 1),
                         .version = piece.object->version});
      piece.store->read(reads, Deadline::after(options.timeout));
      const auto bad =
          std::ranges::find_if(reads, [](const Read& read) { return read.error.has_value(); });
      const std::lock_guard lock(mutex);
      done += piece.to - piece.from;
      if (bad != reads.end()) failed.insert(bad->error->what());
      if (watch.show) watch.show(done, warm.bytes);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 1; i < options.threads; ++i) threads.emplace_back(work);
    work();
  }
  warm.stopped = watch.stopped();
  warm.fetched_bytes = cache.counters().origin_bytes - fetched_before;
  warm.failed.assign(failed.begin(), failed.end());
  const CacheCounters counters = cache.counters();
  if (counters.pass_throughs > 0 && warm.failed.empty())
    warm.failed.push_back(fmt::format("{} reads went past the cache, which could not be written",
                                      counters.pass_throughs));
  return warm;
}

}  // namespace bedplate::store
