// How much memory this process could take without anybody being pressed for it.
//
//   if (const auto free = free_memory(HostRoot())) …      // bytes
//
// MemAvailable of /proc/meminfo, bounded by what the process' control groups (v1 and v2, up to the
// root of the mount) have left below their limits, page cache that can be dropped counted as free.
// nullopt where /proc/meminfo tells nothing. Pure but for what it reads; thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "os/host_root.h"

namespace bedplate::os {

std::optional<std::int64_t> free_memory(const HostRoot& host);

}  // namespace bedplate::os
