// How many samples each shard of a folder holds, so that opening a data set need not look into
// them.
//
//   write_manifest("s3://corpus/train/");      // opens what has changed, writes bedplate.manifest
//   Dataset::open({"s3://corpus/train/"});     // one listing, one small read
//
// A manifest is a cache: a shard whose size or version is another one is opened as if there were no
// manifest, and Dataset::notes() says so. The layout: docs/formats.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "data/object_table.h"
#include "store/store.h"

namespace bedplate::data {

constexpr std::string_view kManifestName = "bedplate.manifest";
constexpr std::string_view kManifestMagic = "BPMANIF1";

struct ManifestMade {
  store::ObjectInfo object;
  std::int64_t shards = 0;
  std::int64_t samples = 0;
};
// Of all shards below the folder. Errors as those of Dataset::open(), and of the store when it
// cannot be written to.
ManifestMade write_manifest(const std::string& folder_url, const DatasetOptions& options = {});

// What is known of shards before they are opened: the manifests of their folders, each read once.
class KnownCounts {
 public:
  // nullopt when no manifest speaks of this very object as a shard of this format. `folder`: a
  // prefix of the object's key, empty or ending in a slash.
  std::optional<std::int64_t> samples_of(store::Store& store, std::string_view folder,
                                         const store::ObjectInfo& object, std::string_view format,
                                         Deadline deadline);
  // After samples_of() of all shards that the folder has: Error{kNotFound} when its manifest lists
  // more of them, since an epoch would be shorter than it was.
  void check_whole(store::Store& store, const std::string& folder) const;
  // Why manifests, or rows of them, were passed over: for people.
  std::vector<std::string> notes() const;

 private:
  struct Manifest {
    std::string name;  // for messages
    std::optional<ObjectTable> table;
    std::string damage;  // why there is no table, when there is a manifest
    std::int64_t asked = 0;
    std::set<std::string_view> found;  // names of rows, views into the table
    std::int64_t changed = 0;
    std::string first_changed;
  };
  Manifest& manifest_of(store::Store& store, std::string_view folder, Deadline deadline);

  std::map<std::pair<store::Store*, std::string>, Manifest> manifests_;
};

}  // namespace bedplate::data
