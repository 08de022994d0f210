// The indexes that lie beside archives: made, and looked at.
//
//   for (const SidecarMade& one : index_archives(urls, options, watch)) …
//
// Without one a reader goes through the archive from begin to end before its first sample, and
// nothing guards the samples' bytes.
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

// In the order of the archives. Error{kNotFound} when the URLs name none, and those of scan_tar():
// what was made before stays.
std::vector<SidecarMade> index_archives(std::span<const std::string> urls,
                                        const IndexOptions& options, const Watch& watch);

}  // namespace bedplate::data
