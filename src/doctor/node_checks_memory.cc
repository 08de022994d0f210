// Checks of memory: how much there is for a job, and what the kernel does behind its back.
#include <fmt/ranges.h>

#include <algorithm>

#include "doctor/node_checks.h"

namespace bedplate::doctor {
namespace {

bool computes(const host::Host& host) {
  return std::any_of(host.gpus.begin(), host.gpus.end(),
                     [](const auto& gpu) { return gpu.compute; });
}

CheckResult available(const NodeView& node) {
  const auto& memory = node.host().memory;
  if (!memory.total_bytes || !memory.available_bytes || *memory.total_bytes == 0) {
    return not_seen("/proc/meminfo has no MemTotal or MemAvailable");
  }
  const double share =
      static_cast<double>(*memory.available_bytes) / static_cast<double>(*memory.total_bytes);
  const std::string seen =
      fmt::format("{} of {} available", bytes(*memory.available_bytes), bytes(*memory.total_bytes));
  if (share >= node.threshold("memory_available.least_share")) return all_well(seen);
  return found(CheckState::kWarning, seen + ": something else already uses most of the memory",
               "/proc/meminfo", seen);
}

CheckResult cgroup_memory(const NodeView& node) {
  const auto& host = node.host();
  if (!host.cgroup.memory_bytes)
    return not_seen("no memory controller in any cgroup hierarchy that is visible here");
  const std::int64_t limit = *host.cgroup.memory_bytes;
  if (limit == host::kUnlimited) return all_well("no limit");
  const std::string seen = "limit " + bytes(limit);
  const auto least = node.threshold("cgroup_memory.least_gib") * static_cast<double>(kGiB);
  if (static_cast<double>(limit) < least) {
    return found(CheckState::kWarning,
                 seen + ": the page cache counts too, so files are read again and again",
                 host.cgroup.memory_source, seen);
  }
  return found(CheckState::kNote, seen + " counts the page cache of what the job reads, too",
               host.cgroup.memory_source, seen);
}

// PyTorch's data workers hand batches over in /dev/shm; when it is full, a worker dies of SIGBUS.
CheckResult shm_size(const NodeView& node) {
  const auto& host = node.host();
  const auto shm = std::find_if(host.mounts.begin(), host.mounts.end(),
                                [](const auto& mount) { return mount.point == "/dev/shm"; });
  if (host.mounts.empty()) return not_seen("/proc/self/mountinfo names no file system");
  if (shm == host.mounts.end()) {
    return found(CheckState::kFault, "not mounted: data workers and NCCL cannot share memory",
                 "/proc/self/mountinfo", "no /dev/shm");
  }
  if (!shm->bytes) return not_seen("the size of /dev/shm is not told");
  const std::string seen = bytes(*shm->bytes) + " in all";
  const auto mib = static_cast<double>(*shm->bytes) / static_cast<double>(kMiB);
  if (mib <= node.threshold("shm_size.fault_mib")) {
    return found(CheckState::kFault,
                 seen + " (a container's default): data workers will die of SIGBUS",
                 "statfs /dev/shm", seen);
  }
  if (mib < node.threshold("shm_size.warning_mib")) {
    return found(CheckState::kWarning,
                 seen + ": a few batches of images from several workers fill it", "statfs /dev/shm",
                 seen);
  }
  if (shm->available_bytes && *shm->bytes > 0) {
    const double used =
        1 - static_cast<double>(*shm->available_bytes) / static_cast<double>(*shm->bytes);
    if (used > node.threshold("shm_size.used_share")) {
      const std::string left =
          fmt::format("{} left of {}", bytes(*shm->available_bytes), bytes(*shm->bytes));
      CheckResult result =
          found(CheckState::kWarning, left + ": left over by dead jobs, or by one that runs",
                "statfs /dev/shm", left);
      result.verify = "ls -la /dev/shm; fuser -v /dev/shm/*";
      result.fix = "remove what belongs to no living process";
      result.undo = "none: look with fuser before removing";
      return result;
    }
  }
  return all_well(seen);
}

CheckResult thp(const NodeView& node) {
  const auto& memory = node.host().memory;
  if (memory.thp.empty()) return not_applicable("this kernel has no transparent huge pages");
  const std::string source = "/sys/kernel/mm/transparent_hugepage/{enabled,defrag}";
  const std::string seen = fmt::format("{}, defrag {}", memory.thp,
                                       memory.thp_defrag.empty() ? "n/a" : memory.thp_defrag);
  if (memory.thp == "always" && memory.thp_defrag == "always") {
    CheckResult result = found(CheckState::kWarning,
                               seen + ": a page fault may stop to compact memory", source, seen);
    result.fix = "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag";
    result.undo = "echo always > /sys/kernel/mm/transparent_hugepage/defrag";
    return result;
  }
  if (memory.thp == "never") {
    CheckResult result = found(
        CheckState::kNote, seen + ": allocators that ask for huge pages get none", source, seen);
    result.fix = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
    result.undo = "echo never > /sys/kernel/mm/transparent_hugepage/enabled";
    return result;
  }
  return all_well(seen);
}

CheckResult numa_balancing(const NodeView& node) {
  const auto& host = node.host();
  if (host.nodes.size() < 2) return not_applicable("one NUMA node");
  if (!host.memory.numa_balancing)
    return not_applicable("this kernel has no automatic NUMA balancing");
  if (*host.memory.numa_balancing == 0) return all_well("off");
  const bool gpus = computes(host);
  return found(
      gpus ? CheckState::kWarning : CheckState::kNote,
      gpus
          ? "on: pages of ranks that feed GPUs are unmapped again and again to see who touches them"
          : "on: helps ranks that are not bound to a node, disturbs those that are",
      "/proc/sys/kernel/numa_balancing", fmt::format("{}", *host.memory.numa_balancing));
}

CheckResult zone_reclaim(const NodeView& node) {
  const auto& host = node.host();
  if (host.nodes.size() < 2) return not_applicable("one NUMA node");
  if (!host.memory.zone_reclaim_mode) return not_seen("/proc/sys/vm/zone_reclaim_mode is absent");
  if (*host.memory.zone_reclaim_mode == 0) return all_well("off");
  return found(CheckState::kWarning,
               "on: a full node throws away page cache while other nodes have memory free",
               "/proc/sys/vm/zone_reclaim_mode", fmt::format("{}", *host.memory.zone_reclaim_mode));
}

CheckResult swap(const NodeView& node) {
  const auto& memory = node.host().memory;
  if (memory.swaps.empty()) {
    if (!memory.swap_bytes) return not_seen("/proc/swaps and /proc/meminfo do not tell");
    return all_well("none");
  }
  CheckResult result;
  std::int64_t used = 0;
  for (const auto& area : memory.swaps) {
    used += area.used_bytes;
    const double used_gib = static_cast<double>(area.used_bytes) / static_cast<double>(kGiB);
    const std::string seen = fmt::format("{}{}: {} of {} used", area.path,
                                         area.compressed_ram ? " (compressed RAM)" : "",
                                         bytes(area.used_bytes), bytes(area.bytes));
    if (used_gib > node.threshold("swap.used_gib") && !area.compressed_ram)
      add(result, CheckState::kWarning, "/proc/swaps", seen);
    else if (area.used_bytes > 0)
      add(result, CheckState::kNote, "/proc/swaps", seen);
  }
  return concluded(std::move(result),
                   bytes(used) + " are swapped out: whoever needs them again waits",
                   plural(memory.swaps.size(), "area", "areas") + ", nothing swapped out");
}

CheckResult overcommit(const NodeView& node) {
  const auto& memory = node.host().memory;
  if (!memory.overcommit) return not_seen("/proc/sys/vm/overcommit_memory is absent");
  if (*memory.overcommit != 2) return all_well(*memory.overcommit == 0 ? "heuristic" : "always");
  return found(
      CheckState::kWarning,
      "never: a large rank that starts data workers by fork is refused the memory it will not use",
      "/proc/sys/vm/overcommit_memory", "2");
}

constexpr Threshold kAvailable[] = {
    {"memory_available.least_share", 0.1, "share", "own: tuned on idle machines"}};
constexpr Threshold kCgroup[] = {
    {"cgroup_memory.least_gib", 4, "GiB", "own: torch alone maps more than 1 GiB a rank"}};
constexpr Threshold kShm[] = {
    {"shm_size.fault_mib", 64, "MiB", "docker run's default for --shm-size"},
    {"shm_size.warning_mib", 1024, "MiB",
     "own: 8 workers × 2 batches × 256 images of 224×224×3 bytes are 600 MiB"},
    {"shm_size.used_share", 0.9, "share", "the catalogue's own bound for a full /dev/shm"}};
constexpr Threshold kSwap[] = {
    {"swap.used_gib", 1, "GiB", "own: a little is swapped out on any machine that is up for long"}};

constexpr NodeCheck kChecks[] = {
    {.id = "memory_available",
     .title = "little memory is left for a job",
     .layer = Layer::kMemory,
     .check = available,
     .verify = "free -h; ps -eo rss,pid,args --sort=-rss | head",
     .fix = "end what uses it",
     .undo = "start it again",
     .source = "proc(5), MemAvailable",
     .thresholds = kAvailable,
     .may_cause = "swap_thrash"},
    {.id = "cgroup_memory",
     .title = "the cgroup limits memory",
     .layer = Layer::kMemory,
     .check = cgroup_memory,
     .verify = "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes",
     .fix = "raise the limit to the working set plus the files of an epoch, or read with O_DIRECT",
     .undo = "set the old limit again",
     .source = "Linux Documentation/admin-guide/cgroup-v2.rst (memory)",
     .thresholds = kCgroup,
     .may_cause = "memcg_thrash"},
    {.id = "shm_size",
     .title = "/dev/shm is too small for data workers",
     .layer = Layer::kMemory,
     .check = shm_size,
     .verify = "df -h /dev/shm",
     .fix = "docker run --shm-size=16g or --ipc=host; Kubernetes: an emptyDir of medium Memory at "
            "/dev/shm; else mount -o remount,size=16g /dev/shm",
     .undo = "mount -o remount,size=<old size> /dev/shm",
     .source = "docker run reference (--shm-size); PyTorch README, Docker image",
     .thresholds = kShm,
     .may_cause = "shm_full"},
    {.id = "huge_pages",
     .title = "transparent huge pages are set to stall or to be absent",
     .layer = Layer::kMemory,
     .check = thp,
     .verify = "cat /sys/kernel/mm/transparent_hugepage/{enabled,defrag}",
     .fix = "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag (and enabled)",
     .undo = "write the old words back",
     .source = "Linux Documentation/admin-guide/mm/transhuge.rst; golang/go#61718, "
               "microsoft/mimalloc#1373",
     .may_cause = "direct_reclaim"},
    {.id = "numa_balancing",
     .title = "automatic NUMA balancing is on",
     .layer = Layer::kMemory,
     .check = numa_balancing,
     .verify = "sysctl kernel.numa_balancing; grep numa_hint_faults /proc/vmstat",
     .fix = "bind the ranks (torchrun --numa-binding, numactl), then sysctl -w "
            "kernel.numa_balancing=0",
     .undo = "sysctl -w kernel.numa_balancing=1",
     .source = "Linux Documentation/admin-guide/sysctl/kernel.rst; deepseek-ai/DeepEP#624",
     .may_cause = "numa_balancing"},
    {.id = "zone_reclaim",
     .title = "zone reclaim is on",
     .layer = Layer::kMemory,
     .check = zone_reclaim,
     .verify = "sysctl vm.zone_reclaim_mode",
     .fix = "sysctl -w vm.zone_reclaim_mode=0",
     .undo = "sysctl -w vm.zone_reclaim_mode=1",
     .source = "Linux Documentation/admin-guide/sysctl/vm.rst",
     .may_cause = "direct_reclaim"},
    {.id = "swap",
     .title = "memory is swapped out",
     .layer = Layer::kMemory,
     .check = swap,
     .verify = "cat /proc/swaps; vmstat 1 5",
     .fix = "find who uses the memory (ps --sort=-rss); when there is room again: swapoff -a && "
            "swapon -a",
     .undo = "swapon -a",
     .source = "proc(5); vm.swappiness in Linux Documentation/admin-guide/sysctl/vm.rst",
     .thresholds = kSwap,
     .may_cause = "swap_thrash"},
    {.id = "overcommit",
     .title = "memory overcommit is forbidden",
     .layer = Layer::kMemory,
     .check = overcommit,
     .verify = "sysctl vm.overcommit_memory; grep Commit /proc/meminfo",
     .fix = "sysctl -w vm.overcommit_memory=0",
     .undo = "sysctl -w vm.overcommit_memory=2",
     .source = "Linux Documentation/mm/overcommit-accounting.rst"},
};

}  // namespace

std::span<const NodeCheck> memory_checks() { return kChecks; }

}  // namespace bedplate::doctor
