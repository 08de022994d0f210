#include "data/format.h"
#include "data/tar_index.h"

namespace bedplate::data {
namespace {

std::shared_ptr<const ShardIndex> open(const std::shared_ptr<store::Store>& store,
                                       const store::ObjectInfo& shard,
                                       const ShardOptions& options) {
  return open_tar(*store, shard, options.cut_off, Deadline::after(options.timeout));
}

std::shared_ptr<const ScannedIndex> scan(const std::shared_ptr<store::Store>& store,
                                         const store::ObjectInfo& shard,
                                         const ShardOptions& options) {
  return scan_tar(*store, shard, options.cut_off, Deadline::after(options.timeout));
}

}  // namespace

extern const Format kWebDataset = {
    .name = "webdataset",
    .summary = "WebDataset tars; samples are members that share a name up to the first dot",
    .is_shard = [](std::string_view key) { return key.ends_with(".tar"); },
    .open = open,
    .scan = scan,
    .sidecar_magic = kTarSidecarMagic,
    .checksums = Format::Checksums::kOfScan,
};

}  // namespace bedplate::data
