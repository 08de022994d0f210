#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "host/internal/describers.h"
#include "host/internal/read.h"

namespace bedplate::host {
namespace {

constexpr std::size_t kMostSwaps = 64;

std::optional<std::int64_t> meminfo_bytes(std::string_view meminfo, std::string_view name) {
  const auto parts = words(field(meminfo, name).substr(0, 64));
  if (parts.empty()) return std::nullopt;
  return times(to_amount(parts[0]), parts.size() > 1 && parts[1] == "kB" ? kKiB : 1);
}

std::vector<SwapArea> swap_areas(const os::HostRoot& root) {
  std::vector<SwapArea> areas;
  const std::string text = root.read("/proc/swaps").value_or("");
  std::string_view rest = text;
  next_line(rest);  // the heading
  while (const auto line = next_line(rest)) {
    if (areas.size() == kMostSwaps) break;
    const auto parts = words(line->substr(0, 8192));
    if (parts.size() < 4) continue;
    const auto bytes = times(to_amount(parts[2]), kKiB);
    const auto used = times(to_amount(parts[3]), kKiB);
    if (!bytes || !used) continue;
    SwapArea area{
        .path = tidy(parts[0]), .type = tidy(parts[1]), .bytes = *bytes, .used_bytes = *used};
    if (parts.size() > 4) area.priority = to_int(parts[4]).value_or(0);
    area.compressed_ram = area.path.starts_with("/dev/zram");
    areas.push_back(std::move(area));
  }
  return areas;
}

std::vector<HugePages> huge_pages(const os::HostRoot& root) {
  constexpr std::string_view kFolder = "/sys/kernel/mm/hugepages";
  std::vector<HugePages> sizes;
  for (const std::string& name : root.list(kFolder)) {
    std::string_view size = name;
    if (!size.starts_with("hugepages-") || !size.ends_with("kB")) continue;
    size = size.substr(10, size.size() - 12);
    const auto bytes = times(to_amount(size), kKiB);
    if (!bytes || *bytes == 0) continue;
    sizes.push_back({.page_bytes = *bytes,
                     .total = amount(root, fmt::format("{}/{}/nr_hugepages", kFolder, name)),
                     .free = amount(root, fmt::format("{}/{}/free_hugepages", kFolder, name))});
  }
  std::sort(sizes.begin(), sizes.end(),
            [](const auto& a, const auto& b) { return a.page_bytes < b.page_bytes; });
  return sizes;
}

}  // namespace

void describe_memory(const os::HostRoot& root, Host& host) {
  Memory& memory = host.memory;
  const std::string meminfo = root.read("/proc/meminfo").value_or("");
  memory.total_bytes = meminfo_bytes(meminfo, "MemTotal");
  memory.available_bytes = meminfo_bytes(meminfo, "MemAvailable");
  memory.free_bytes = meminfo_bytes(meminfo, "MemFree");
  memory.swap_bytes = meminfo_bytes(meminfo, "SwapTotal");
  memory.swaps = swap_areas(root);
  const std::string zswap = word(root, "/sys/module/zswap/parameters/enabled");
  if (!zswap.empty()) memory.zswap = zswap == "Y" || zswap == "1";
  memory.huge_pages = huge_pages(root);
  const std::string thp = "/sys/kernel/mm/transparent_hugepage/";
  memory.thp = chosen(word(root, thp + "enabled"));
  memory.thp_defrag = chosen(word(root, thp + "defrag"));
  memory.thp_shmem = chosen(word(root, thp + "shmem_enabled"));
  const std::string vm = "/proc/sys/vm/";
  memory.swappiness = amount(root, vm + "swappiness");
  memory.overcommit = amount(root, vm + "overcommit_memory");
  memory.zone_reclaim_mode = amount(root, vm + "zone_reclaim_mode");
  memory.min_free_bytes = times(amount(root, vm + "min_free_kbytes"), kKiB);
  memory.max_map_count = amount(root, vm + "max_map_count");
  memory.numa_balancing = amount(root, "/proc/sys/kernel/numa_balancing");
}

}  // namespace bedplate::host
