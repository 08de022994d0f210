// bedplate cache: what lies in the folder of a cache. Its commands are cache_*.cc.
#include "cli/command.h"

namespace bedplate::cli {

extern const Command kCache = {
    .name = "cache",
    .summary = "look into a cache of remote data, fill it, empty it, check it",
    .examples = "bedplate cache stat /nvme/cache",
    .family = all_cache_commands,
    .group = kGroupData,
};

}  // namespace bedplate::cli
