#include "data/manifest.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "store/driver.h"

namespace bedplate::data {
namespace {

constexpr std::int64_t kMostManifestBytes = 4 * kGiB;

// The manifest's bytes; nullopt when there is none, or none that this user may see: some stores
// answer "not permitted" for what is not there.
std::optional<std::string> read_manifest(store::Store& store, const std::string& key,
                                         Deadline deadline) {
  try {
    if (!store.find(key, deadline)) return std::nullopt;
    return store::get(store, key, kMostManifestBytes, deadline);
  } catch (const Error& error) {
    if (error.code() == Code::kPermission || error.code() == Code::kNotFound) return std::nullopt;
    throw;
  }
}

}  // namespace

KnownCounts::Manifest& KnownCounts::manifest_of(store::Store& store, std::string_view folder,
                                                Deadline deadline) {
  const auto [at, fresh] = manifests_.try_emplace({&store, std::string(folder)});
  Manifest& manifest = at->second;
  if (!fresh) return manifest;
  const std::string key = std::string(folder) + std::string(kManifestName);
  manifest.name = fmt::format("{} in {}", to_utf8(key), store.url());
  auto bytes = read_manifest(store, key, deadline);
  if (!bytes) return manifest;
  try {
    manifest.table.emplace(*std::move(bytes), kManifestMagic);
  } catch (const Error& error) {
    manifest.damage = error.what();
  }
  return manifest;
}

std::optional<std::int64_t> KnownCounts::samples_of(store::Store& store, std::string_view folder,
                                                    const store::ObjectInfo& object,
                                                    std::string_view format, Deadline deadline) {
  Manifest& manifest = manifest_of(store, folder, deadline);
  if (!manifest.table || manifest.table->text() != format) return std::nullopt;
  ++manifest.asked;
  const auto row = manifest.table->find(std::string_view(object.key).substr(folder.size()));
  if (row) manifest.found.insert(row->name);
  if (row && row->size == object.size && row->version == object.version) return row->number;
  if (manifest.changed++ == 0) manifest.first_changed = object.key;
  return std::nullopt;
}

void KnownCounts::check_whole(store::Store& store, const std::string& folder) const {
  const auto at = manifests_.find({&store, folder});
  if (at == manifests_.end()) return;
  const Manifest& manifest = at->second;
  if (!manifest.table || manifest.asked == 0 ||
      std::ssize(manifest.found) == manifest.table->rows())
    return;
  std::int64_t samples = 0;
  std::optional<std::string> first;
  for (std::int64_t i = 0; i < manifest.table->rows(); ++i) {
    const ObjectRow row = manifest.table->row(i);
    if (manifest.found.contains(row.name)) continue;
    samples += row.number;
    if (!first) first = folder + std::string(row.name);
  }
  throw Error(Code::kNotFound,
              "{} of the {} shards that {} lists are not there, with {} samples (first: {}); bring "
              "them back, or write the manifest anew with bedplate data index",
              manifest.table->rows() - std::ssize(manifest.found), manifest.table->rows(),
              manifest.name, samples, to_utf8(*first));
}

std::vector<std::string> KnownCounts::notes() const {
  std::vector<std::string> out;
  for (const auto& [place, manifest] : manifests_) {
    if (!manifest.damage.empty()) {
      out.push_back(fmt::format(
          "{} is damaged and was passed over, each shard was opened: {}; write it again",
          manifest.name, manifest.damage));
    }
    if (manifest.changed > 0) {
      out.push_back(fmt::format(
          "{} of {} shards are not as {} has them (first: {}), they were opened; write it again",
          manifest.changed, manifest.asked, manifest.name, to_utf8(manifest.first_changed)));
    }
  }
  return out;
}

ManifestMade write_manifest(const std::string& folder_url, const DatasetOptions& options) {
  const std::string url = folder_url.ends_with('/') ? folder_url : folder_url + "/";
  DatasetOptions as_it_is = options;
  as_it_is.missing = DatasetOptions::Missing::kAccept;
  const auto dataset = Dataset::open({&url, 1}, as_it_is);
  const store::Place folder = store::locate(url, options.store);
  const Dataset::Shard& first = dataset->shards().front();
  if (first.format->open_folder &&
      !folder.store->find(first.object.key, Deadline::after(store::kDefaultTimeout)))
    throw Error(Code::kInvalid,
                "the files in {} have no listing yet, which is their manifest; make it",
                to_utf8(url));
  std::vector<ObjectRow> rows;
  for (const Dataset::Shard& shard : dataset->shards()) {
    rows.push_back({std::string_view(shard.object.key).substr(folder.key.size()), shard.object.size,
                    shard.samples, shard.object.version});
  }
  const std::string bytes = ObjectTable::write(kManifestMagic, first.format->name, rows);
  return {store::put(*folder.store, folder.key + std::string(kManifestName), bytes),
          std::ssize(rows), dataset->samples()};
}

}  // namespace bedplate::data
