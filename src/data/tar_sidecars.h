// What lies beside shards so that they open at once: the index of each archive, the manifest of
// each folder.
//
//   for (const SidecarMade& one : make_indexes(urls, options, watch).archives) …
//
// Without an index a reader goes through an archive from begin to end before its first sample, and
// nothing guards the samples' bytes. Without a manifest (manifest.h) it looks into every shard to
// know how many samples there are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/progress.h"

namespace bedplate::data {

enum class SidecarState {
  kNone,  // the shard is no archive, and needs none
  kMissing,
  kOfAnother,  // archive, or one that is damaged
  kOfATarNow,  // of this archive
};
struct IndexOptions {
  DatasetOptions dataset = {};
  int threads = 1;
  enum class Fresh { kKept, kMadeAgain } fresh = Fresh::kKept;  // what is of its archive already
};

struct SidecarMade {
  std::string archive;  // URL
  SidecarState before = SidecarState::kMissing;
  bool made = false;         // else it was kept
  std::int64_t samples = 0;  // of the archive
  std::int64_t bytes = 0;    // of the index
};

struct ManifestOfFolder {
  std::string folder;  // URL
  std::int64_t shards = 0;
  std::int64_t samples = 0;
};

struct IndexesMade {
  std::vector<SidecarMade> archives;        // in their order
  std::vector<ManifestOfFolder> manifests;  // of the URLs that are folders
};

// Error{kNotFound} when the URLs name neither archives nor folders, and those of scan_tar() and
// write_manifest(): what was made before stays.
IndexesMade make_indexes(std::span<const std::string> urls, const IndexOptions& options,
                         const Watch& watch);

}  // namespace bedplate::data
