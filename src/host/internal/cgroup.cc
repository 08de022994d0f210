#include "os/cgroup.h"

#include <algorithm>

#include "base/text.h"
#include "host/internal/describers.h"
#include "host/internal/read.h"

namespace bedplate::host {
namespace {

// v1 writes "no limit" as the largest multiple of the page size; no machine has this much memory.
constexpr std::int64_t kBeyondMemory = std::int64_t{1} << 60;

struct Bound {
  double value;
  std::string source;
};

// Calls `read(group)` for the group and its parents, and keeps the least of what they say.
template <class Read>
std::optional<Bound> tightest(const std::vector<os::Cgroup>& chain, Read read) {
  std::optional<Bound> least;
  for (const auto& group : chain) {
    std::optional<Bound> bound = read(group);
    if (bound && (!least || bound->value < least->value)) least = std::move(bound);
  }
  return least;
}

std::vector<os::Cgroup> chain_of(const os::HostRoot& root, const os::CgroupTree& tree,
                                 std::string_view controller) {
  const auto group = tree.of_process(root, "self", controller);
  return group ? tree.chain(*group) : std::vector<os::Cgroup>();
}

std::optional<Bound> cpu_quota(const os::HostRoot& root, const os::Cgroup& group) {
  std::optional<std::int64_t> quota, period;
  std::string source;
  if (group.unified) {
    source = group.file("cpu.max");
    const std::string text = word(root, source);
    const auto parts = words(text);
    if (parts.size() != 2) return std::nullopt;
    quota = to_amount(parts[0]);  // "max" is none
    period = to_amount(parts[1]);
  } else {
    source = group.file("cpu.cfs_quota_us");
    quota = amount(root, source);  // -1 is none
    period = amount(root, group.file("cpu.cfs_period_us"));
  }
  if (!quota || !period || *period == 0) return std::nullopt;
  return Bound{static_cast<double>(*quota) / static_cast<double>(*period), source};
}

// A file with one number, "max" or a number too large to be meant.
std::optional<Bound> number(const os::HostRoot& root, const std::string& source) {
  const auto value = amount(root, source);
  if (!value || *value >= kBeyondMemory) return std::nullopt;
  return Bound{static_cast<double>(*value), source};
}

void describe_cpuset(const os::HostRoot& root, const std::vector<os::Cgroup>& chain,
                     CgroupBounds& bounds) {
  for (const auto& group : chain) {
    for (const auto* name : {"cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"}) {
      bounds.cpuset = cpu_list(root, group.file(name));
      if (bounds.cpuset.empty()) continue;
      bounds.cpuset_source = group.file(name);
      return;
    }
  }
}

}  // namespace

void describe_cgroup(const os::HostRoot& root, Host& host) {
  CgroupBounds& bounds = host.cgroup;
  const os::CgroupTree tree(root);
  bool v1 = false, v2 = false;
  for (const auto& hierarchy : tree.hierarchies()) {
    (hierarchy.unified ? v2 : v1) = true;
    for (const auto& name : hierarchy.controllers) bounds.controllers.push_back(tidy(name));
  }
  std::sort(bounds.controllers.begin(), bounds.controllers.end());
  bounds.version = v1 && v2 ? "hybrid" : v1 ? "v1" : v2 ? "v2" : "none";

  if (const auto chain = chain_of(root, tree, "cpu"); !chain.empty()) {
    const auto bound = tightest(chain, [&](const auto& group) { return cpu_quota(root, group); });
    bounds.cpu_unlimited = !bound;
    if (bound)
      bounds.cpu_quota = bound->value, bounds.cpu_source = bound->source;
    else
      bounds.cpu_source = chain.front().folder;
  }
  describe_cpuset(root, chain_of(root, tree, "cpuset"), bounds);
  const auto number_of = [&](std::string_view controller, const char* v1_file, const char* v2_file,
                             std::optional<std::int64_t>& value, std::string& source) {
    const auto chain = chain_of(root, tree, controller);
    if (chain.empty()) return;
    const auto bound = tightest(chain, [&](const os::Cgroup& group) {
      return number(root, group.file(group.unified ? v2_file : v1_file));
    });
    value = bound ? static_cast<std::int64_t>(bound->value) : kUnlimited;
    source = bound ? bound->source : chain.front().folder;
  };
  number_of("memory", "memory.limit_in_bytes", "memory.max", bounds.memory_bytes,
            bounds.memory_source);
  number_of("pids", "pids.max", "pids.max", bounds.pids, bounds.pids_source);
}

}  // namespace bedplate::host
