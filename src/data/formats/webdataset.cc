#include "base/error.h"
#include "data/format.h"
#include "data/tar_index.h"

namespace bedplate::data {
namespace {

// A sidecar beside the archive spares reading it whole; one of another archive is passed over.
std::shared_ptr<const ShardIndex> open(const std::shared_ptr<store::Store>& store,
                                       const store::ObjectInfo& shard,
                                       const ShardOptions& options) {
  const Deadline deadline = Deadline::after(options.timeout);
  const std::string sidecar = shard.key + std::string(kTarSidecarSuffix);
  if (store->find(sidecar, deadline)) {
    const std::string kept = store::get(*store, sidecar, kMostSidecarBytes, deadline);
    if (auto index = open_tar_sidecar(kept, shard)) return index;
  }
  return scan_tar(*store, shard, options.cut_off, deadline);
}

}  // namespace

extern const Format kWebDataset = {
    .name = "webdataset",
    .summary = "WebDataset tars; samples are members that share a name up to the first dot",
    .is_shard = [](std::string_view key) { return key.ends_with(".tar"); },
    .open = open,
};

}  // namespace bedplate::data
