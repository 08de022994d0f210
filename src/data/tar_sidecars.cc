#include "data/tar_sidecars.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/internal/sidecar_state.h"
#include "data/manifest.h"
#include "data/parallel.h"
#include "data/tar_index.h"

namespace bedplate::data {
namespace {

constexpr std::string_view kArchives = "webdataset";

struct Kept {
  SidecarState state = SidecarState::kMissing;
  std::int64_t samples = 0;
  std::int64_t bytes = 0;
};

Kept look_at(const FoundShard& shard, Nanos timeout) {
  const Deadline deadline = Deadline::after(timeout);
  const std::string key = shard.object.key + std::string(kTarSidecarSuffix);
  const auto found = shard.store->find(key, deadline);
  if (!found) return {};
  const std::string bytes = store::get(*shard.store, key, kMostSidecarBytes, deadline);
  try {
    if (const auto index = open_tar_sidecar(bytes, shard.object))
      return {SidecarState::kOfATarNow, index->samples(), found->size};
  } catch (const Error& error) {
    if (error.code() != Code::kCorrupt) throw;
  }
  return {SidecarState::kOfAnother, 0, found->size};
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
  if (shard.format->name != kArchives) return SidecarState::kNone;
  return look_at(shard, timeout).state;
}

IndexesMade make_indexes(std::span<const std::string> urls, const IndexOptions& options,
                         const Watch& watch) {
  if (urls.empty()) throw Error(Code::kInvalid, "no shards were named");
  std::vector<std::string> folders;
  for (const std::string& pattern : urls) {
    for (std::string& url : expand_names(pattern)) {
      if (url.ends_with('/')) folders.push_back(std::move(url));
    }
  }
  std::vector<FoundShard> archives = find_shards(urls, options.dataset);
  std::erase_if(archives, [](const FoundShard& shard) { return shard.format->name != kArchives; });
  if (archives.empty() && folders.empty()) {
    throw Error(Code::kNotFound,
                "neither folders nor archives of WebDataset (.tar) were named; shards of other "
                "formats carry their index in them");
  }
  std::vector<SidecarMade> made(archives.size());
  const Nanos timeout = options.dataset.shard.timeout;
  Progress progress(watch, "indexing", "archives", std::ssize(archives));
  for_each_of(archives.size(), options.threads, [&](std::size_t i) {
    const FoundShard& shard = archives[i];
    const Kept kept = look_at(shard, timeout);
    made[i] = {shard_url(*shard.store, shard.object), kept.state, false, kept.samples, kept.bytes};
    const bool fresh = kept.state == SidecarState::kOfATarNow;
    if (!fresh || options.fresh == IndexOptions::Fresh::kMadeAgain) {
      const auto index = scan_tar(*shard.store, shard.object, options.dataset.shard.cut_off,
                                  Deadline::after(timeout));
      const auto put = store::put(*shard.store, shard.object.key + std::string(kTarSidecarSuffix),
                                  index->sidecar(), store::IfExists::kReplace, timeout);
      made[i].made = true;
      made[i].samples = index->samples();
      made[i].bytes = put.size;
    }
    progress.add(1, shard.object.size);
  });
  IndexesMade out{.archives = std::move(made)};
  for (const std::string& folder : folders) {
    const ManifestMade manifest = write_manifest(folder, options.dataset);
    out.manifests.push_back({to_utf8(folder), manifest.shards, manifest.samples});
  }
  return out;
}

}  // namespace bedplate::data
