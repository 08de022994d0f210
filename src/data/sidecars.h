// What lies beside shards so that they open at once: the index of each shard that has none of its
// own, the manifest of each folder of shards, the listing of a folder of loose files.
//
//   for (const SidecarMade& one : make_indexes(urls, options, watch).indexes) …
//
// Without an index a reader goes through a tar or TFRecord file from begin to end before its first
// sample, and nothing guards the samples of a tar. Without a manifest (manifest.h) it looks into
// every shard to know how many samples there are. Without a listing (listing.h) it lists all files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/listing.h"
#include "data/progress.h"

namespace bedplate::data {

enum class SidecarState {
  kNone,  // the shard has an index of its own
  kMissing,
  kOfAnother,  // shard, or one that is damaged
  kFresh,      // of this very shard
};
struct IndexOptions {
  DatasetOptions dataset = {};
  int threads = 1;
  enum class Fresh { kKept, kMadeAgain } fresh = Fresh::kKept;  // what is of its shard already
};

struct SidecarMade {
  std::string shard;  // URL
  SidecarState before = SidecarState::kMissing;
  bool made = false;         // else it was kept
  std::int64_t samples = 0;  // of the shard
  std::int64_t bytes = 0;    // of the index
};

struct ManifestOfFolder {
  std::string folder;  // URL
  std::int64_t shards = 0;
  std::int64_t samples = 0;
};

struct ListingOfFolder {
  std::string folder;  // URL
  ListingMade made;
};

struct IndexesMade {
  std::vector<SidecarMade> indexes;         // in the order of the shards
  std::vector<ManifestOfFolder> manifests;  // of the URLs that are folders of shards
  std::vector<ListingOfFolder> listings;    // of those that are folders of loose files
};

// Loose files are listed below folders when the format is "files", and where a listing lies
// already. Error{kNotFound} when there is nothing to index, kInvalid when loose files are not named
// by their folder, and those of Format::scan, write_manifest() and write_listing(): what was made
// before stays.
IndexesMade make_indexes(std::span<const std::string> urls, const IndexOptions& options,
                         const Watch& watch);

}  // namespace bedplate::data
