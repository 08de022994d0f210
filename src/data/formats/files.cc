#include "data/format.h"
#include "data/listing.h"

namespace bedplate::data {
namespace {

std::shared_ptr<const ShardIndex> open(const std::shared_ptr<store::Store>& store,
                                       const store::ObjectInfo& shard,
                                       const ShardOptions& options) {
  return open_listing(*store, shard, Deadline::after(options.timeout));
}

std::shared_ptr<const ShardIndex> open_folder(const std::shared_ptr<store::Store>& store,
                                              const std::string& prefix,
                                              const ShardOptions& options) {
  return freeze_listing(*store, prefix, Deadline::after(options.timeout));
}

}  // namespace

extern const Format kFiles = {
    .name = "files",
    .summary = "loose files below a folder, as its listing bedplate.files has them, or as they are",
    .is_shard = [](std::string_view key) { return key.substr(key.rfind('/') + 1) == kListingName; },
    .open = open,
    .samples = Format::Samples::kElsewhere,
    .folder_object = kListingName,
    .open_folder = open_folder,
};

}  // namespace bedplate::data
