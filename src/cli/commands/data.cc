// bedplate data: samples in shards. Its commands are data_*.cc.
#include "cli/command.h"

namespace bedplate::cli {

extern const Command kData = {
    .name = "data",
    .summary = "pack samples into shards, and look into them",
    .examples = "bedplate data pack pictures/ packed",
    .family = all_data_commands,
    .group = kGroupData,
};

}  // namespace bedplate::cli
