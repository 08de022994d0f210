#include "data/format.h"

namespace bedplate::data {
namespace {

std::shared_ptr<const ShardIndex> open(const std::shared_ptr<store::Store>& store,
                                       const store::ObjectInfo& shard,
                                       const ShardOptions& options) {
  return open_packed(*store, shard, options.cut_off, Deadline::after(options.timeout));
}

}  // namespace

extern const Format kPacked = {
    .name = "packed",
    .summary = "Bedplate's packed shards: typed columns, a checksum a sample (docs/formats.md)",
    .is_shard = [](std::string_view key) { return key.ends_with(".shard"); },
    .open = open,
};

}  // namespace bedplate::data
