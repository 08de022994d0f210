#include "os/free_memory.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/text.h"
#include "base/units.h"
#include "os/cgroup.h"

namespace bedplate::os {
namespace {

// The number in "NAME VALUE …", a line of its own.
std::optional<std::int64_t> field_of(std::string_view text, std::string_view name) {
  for (const std::string_view line : split(text, '\n')) {
    const auto parts = words(line);
    if (parts.size() > 1 && parts[0] == name) return to_int(parts[1]);
  }
  return std::nullopt;
}

std::optional<std::int64_t> left_in(const HostRoot& host, const Cgroup& group) {
  const auto number = [&](const char* v1, const char* v2) {
    return host.read_int(group.file(group.unified ? v2 : v1));
  };
  const auto limit = number("memory.limit_in_bytes", "memory.max");
  const auto used = number("memory.usage_in_bytes", "memory.current");
  if (!limit || !used) return std::nullopt;
  const std::string stat = host.read(group.file("memory.stat")).value_or("");
  const auto droppable = field_of(stat, group.unified ? "inactive_file" : "total_inactive_file");
  return std::max<std::int64_t>(
      0, *limit - *used + std::clamp<std::int64_t>(droppable.value_or(0), 0, *used));
}

}  // namespace

std::optional<std::int64_t> free_memory(const HostRoot& host) {
  const auto kilobytes = field_of(host.read("/proc/meminfo").value_or(""), "MemAvailable:");
  if (!kilobytes) return std::nullopt;
  std::int64_t free = *kilobytes * kKiB;
  const CgroupTree tree(host);
  const auto own = tree.of_process(host, "self", "memory");
  if (!own) return free;
  for (const Cgroup& group : tree.chain(*own)) {
    if (const auto left = left_in(host, group)) free = std::min(free, *left);
  }
  return free;
}

}  // namespace bedplate::os
