// The shards that URLs name: in their order, each with what its store says of it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace bedplate::data {

struct FoundShard {
  std::shared_ptr<store::Store> store;  // shared by the shards of one URL
  store::ObjectInfo object;
  // Whose manifest may know it, a prefix of the key; nullopt where asking for one does not pay.
  std::optional<std::string> folder;
  const Format* format = nullptr;
  std::shared_ptr<const ShardIndex> opened = {};  // when the format made it of a folder
  bool of_whole_folder = false;                   // all shards of `folder` were asked for
};

// Errors as those of Dataset::open().
std::vector<FoundShard> find_shards(std::span<const std::string> urls,
                                    const DatasetOptions& options);

}  // namespace bedplate::data
