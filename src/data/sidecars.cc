#include "data/sidecars.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/internal/sidecar_state.h"
#include "data/manifest.h"
#include "data/parallel.h"
#include "data/scanned_index.h"

namespace bedplate::data {
namespace {

struct Kept {
  SidecarState state = SidecarState::kMissing;
  std::int64_t samples = 0;
  std::int64_t bytes = 0;
};

std::string sidecar_of(const FoundShard& shard) {
  return shard.object.key + std::string(kSidecarSuffix);
}

Kept look_at(const FoundShard& shard, Nanos timeout) {
  const Deadline deadline = Deadline::after(timeout);
  const std::string key = sidecar_of(shard);
  const auto found = shard.store->find(key, deadline);
  if (!found) return {};
  const std::string bytes = store::get(*shard.store, key, kMostSidecarBytes, deadline);
  try {
    if (const auto samples = read_sidecar(bytes, shard.format->sidecar_magic, shard.object))
      return {SidecarState::kFresh, std::ssize(*samples), found->size};
  } catch (const Error& error) {
    if (error.code() != Code::kCorrupt) throw;
  }
  return {SidecarState::kOfAnother, 0, found->size};
}

SidecarMade make_index(const FoundShard& shard, const IndexOptions& options) {
  const Nanos timeout = options.dataset.shard.timeout;
  const Kept kept = look_at(shard, timeout);
  SidecarMade out = {shard_url(*shard.store, shard.object), kept.state, false, kept.samples,
                     kept.bytes};
  if (kept.state == SidecarState::kFresh && options.fresh == IndexOptions::Fresh::kKept) return out;
  const auto index = shard.format->scan(shard.store, shard.object, options.dataset.shard);
  const auto put = store::put(*shard.store, sidecar_of(shard), index->sidecar(),
                              store::IfExists::kReplace, timeout);
  out.made = true;
  out.samples = index->samples();
  out.bytes = put.size;
  return out;
}

ListingOfFolder make_listing(const std::string& folder, const DatasetOptions& options) {
  const store::Place place = store::locate(folder, options.store);
  if (!place.key.empty() && !place.key.ends_with('/')) {
    throw Error(Code::kInvalid,
                "{} is one file: loose files are indexed by the folder that they lie in",
                to_utf8(folder));
  }
  return {to_utf8(folder),
          write_listing(*place.store, place.key, Deadline::after(options.shard.timeout))};
}

bool holds_a_listing(const std::string& folder, std::span<const FoundShard> found,
                     const DatasetOptions& options) {
  const store::Place place = store::locate(folder, options.store);
  const std::string begin = shard_url(*place.store, {.key = place.key});
  return std::ranges::any_of(found, [&](const FoundShard& shard) {
    return shard.format->open_folder && shard_url(*shard.store, shard.object).starts_with(begin);
  });
}

}  // namespace

std::string shard_url(const store::Store& store, const store::ObjectInfo& object) {
  const std::string url = store.url();
  return fmt::format("{}{}{}", url, url.ends_with('/') ? "" : "/", to_utf8(object.key));
}

std::shared_ptr<const ShardIndex> open_found(const FoundShard& shard, const ShardOptions& options) {
  return shard.opened ? shard.opened : shard.format->open(shard.store, shard.object, options);
}

SidecarState state_of_sidecar(const FoundShard& shard, Nanos timeout) {
  if (shard.format->scan == nullptr) return SidecarState::kNone;
  return look_at(shard, timeout).state;
}

IndexesMade make_indexes(std::span<const std::string> urls, const IndexOptions& options,
                         const Watch& watch) {
  if (urls.empty()) throw Error(Code::kInvalid, "no shards were named");
  const DatasetOptions& how = options.dataset;
  IndexesMade out;
  std::vector<std::string> expanded;
  for (const std::string& pattern : urls) {
    for (std::string& url : expand_names(pattern)) expanded.push_back(std::move(url));
  }
  if (!how.format.empty() && format_of_name(how.format).open_folder) {
    for (const std::string& url : expanded) out.listings.push_back(make_listing(url, how));
    return out;
  }
  std::vector<FoundShard> found = find_shards(urls, how);
  for (const FoundShard& shard : found) {
    if (shard.format->open_folder == nullptr) continue;
    const std::string listing = shard_url(*shard.store, shard.object);
    out.listings.push_back(make_listing(listing.substr(0, listing.rfind('/') + 1), how));
  }
  std::erase_if(expanded, [&](const std::string& url) {
    return !url.ends_with('/') || holds_a_listing(url, found, how);
  });
  const std::vector<std::string>& folders = expanded;  // of shards
  std::erase_if(found, [](const FoundShard& shard) { return shard.format->scan == nullptr; });
  if (found.empty() && folders.empty() && out.listings.empty()) {
    throw Error(Code::kNotFound,
                "neither folders nor tars or TFRecord files were named; shards of other formats "
                "carry their index in them");
  }
  out.indexes.resize(found.size());
  Progress progress(watch, "indexing", "shards", std::ssize(found));
  for_each_of(found.size(), options.threads, [&](std::size_t i) {
    out.indexes[i] = make_index(found[i], options);
    progress.add(1, found[i].object.size);
  });
  for (const std::string& folder : folders) {
    const ManifestMade manifest = write_manifest(folder, how);
    out.manifests.push_back({to_utf8(folder), manifest.shards, manifest.samples});
  }
  return out;
}

}  // namespace bedplate::data
