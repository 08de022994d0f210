// What lies beside a shard that was found, and what it is called for people.
#pragma once

#include <string>

#include "data/internal/find_shards.h"
#include "data/sidecars.h"

namespace bedplate::data {

SidecarState state_of_sidecar(const FoundShard& shard, Nanos timeout);

// "s3://bucket/000.tar".
std::string shard_url(const store::Store& store, const store::ObjectInfo& object);

// As it was found, or opened now.
std::shared_ptr<const ShardIndex> open_found(const FoundShard& shard, const ShardOptions& options);

}  // namespace bedplate::data
