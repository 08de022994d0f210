// The lines below the drawing: what has no place in it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "host/internal/picture.h"
#include "host/internal/words.h"

namespace bedplate::host {
namespace {

std::string limit_value(std::int64_t value, bool bytes) {
  if (value == kUnlimited) return "unlimited";
  return bytes ? human_bytes(static_cast<double>(value)) : fmt::format("{}", value);
}

std::string limit_text(std::string_view name, const std::optional<Limit>& limit, bool bytes) {
  if (!limit) return fmt::format("{} n/a", name);
  std::string text = fmt::format("{} {}", name, limit_value(limit->soft, bytes));
  if (limit->hard != limit->soft)
    text += fmt::format(" (hard {})", limit_value(limit->hard, bytes));
  return text;
}

PictureFact memory_fact(const Memory& memory) {
  PictureFact fact{.label = "memory", .lines = {}};
  std::string line = bytes_or(memory.total_bytes, "size n/a");
  if (memory.available_bytes)
    line += fmt::format(", {} available", bytes_text(*memory.available_bytes));
  for (const auto& pages : memory.huge_pages) {
    if (pages.total.value_or(0) == 0) continue;
    line +=
        fmt::format("; {} huge pages of {}, {} free", *pages.total, bytes_text(pages.page_bytes),
                    pages.free ? fmt::format("{}", *pages.free) : "n/a");
  }
  for (const auto& swap : memory.swaps) {
    line +=
        fmt::format("; swap {} on {}{}, {} used", bytes_text(swap.bytes), swap.path,
                    swap.compressed_ram ? " (compressed RAM)" : "", bytes_text(swap.used_bytes));
  }
  if (memory.swaps.empty() && memory.swap_bytes == 0) line += "; no swap";
  fact.lines.push_back(line);
  std::vector<std::string> parts;
  if (!memory.thp.empty()) {
    parts.push_back(
        fmt::format("transparent huge pages {} (defrag {})", memory.thp, or_na(memory.thp_defrag)));
  }
  if (memory.numa_balancing) {
    parts.push_back(*memory.numa_balancing != 0 ? "NUMA balancing on" : "NUMA balancing off");
  }
  if (memory.overcommit == 2) parts.emplace_back("overcommit never");
  if (memory.zone_reclaim_mode.value_or(0) != 0) parts.emplace_back("zone reclaim on");
  if (!parts.empty()) fact.lines.push_back(fmt::format("{}", fmt::join(parts, "; ")));
  return fact;
}

PictureFact files_fact(const Host& host) {
  PictureFact fact{.label = "files", .lines = {}};
  for (const auto& mount : host.mounts) {
    std::string line = fmt::format("{}  {}", mount.point, mount.type);
    if (!mount.disk.empty())
      line += " on " + mount.disk;
    else if (mount.kind == "network" || mount.kind == "local")
      line += " from " + mount.source;
    if (mount.bytes && mount.available_bytes) {
      line += fmt::format(" · {} of {} free", bytes_text(*mount.available_bytes),
                          bytes_text(*mount.bytes));
    } else {
      line += " · " + bytes_or(mount.bytes, "size n/a");
    }
    if (std::find(mount.options.begin(), mount.options.end(), "ro") != mount.options.end())
      line += " · read-only";
    fact.lines.push_back(std::move(line));
  }
  return fact;
}

// Disks without a place of their own: made of others, of files or of memory.
PictureFact volumes_fact(const Host& host) {
  PictureFact fact{.label = "volumes", .lines = {}};
  for (const auto& disk : host.disks) {
    if (!is_volume(disk)) continue;
    std::string line = fmt::format("{}  {}", disk.name, disk.kind);
    if (!disk.parts.empty()) line += fmt::format(" of {}", fmt::join(disk.parts, ", "));
    if (!disk.model.empty()) line += " · " + disk.model;
    line += " · " + bytes_or(disk.bytes, "size n/a");
    fact.lines.push_back(std::move(line));
  }
  return fact;
}

PictureFact interfaces_fact(const Host& host) {
  PictureFact fact{.label = "interfaces", .lines = {}};
  std::vector<std::string> parts;
  for (const auto& nic : host.nics) {
    if (nic.physical || nic.kind == "loopback") continue;
    std::string part =
        fmt::format("{} ({}, {}", nic.name, nic.kind, nic.state.empty() ? "state n/a" : nic.state);
    if (nic.speed_mbps) part += ", " + speed_text(*nic.speed_mbps);
    parts.push_back(part + ")");
  }
  if (!parts.empty()) fact.lines.push_back(fmt::format("{}", fmt::join(parts, ", ")));
  return fact;
}

PictureFact bounds_fact(const Host& host) {
  PictureFact fact{.label = "this process", .lines = {}};
  const auto& cgroup = host.cgroup;
  std::vector<std::string> parts;
  parts.push_back(host.cpu.allowed.empty() ? "CPUs n/a"
                                           : "CPUs " + format_cpu_list(host.cpu.allowed));
  if (cgroup.cpu_quota)
    parts.push_back(fmt::format("quota of {} CPUs", number_text(*cgroup.cpu_quota)));
  else
    parts.emplace_back(cgroup.cpu_unlimited ? "no CPU quota" : "CPU quota n/a");
  if (!cgroup.memory_bytes)
    parts.emplace_back("memory limit n/a");
  else if (*cgroup.memory_bytes == kUnlimited)
    parts.emplace_back("no memory limit");
  else
    parts.push_back("memory limit " + bytes_text(*cgroup.memory_bytes));
  fact.lines.push_back(fmt::format("{}; cgroup {}", fmt::join(parts, ", "), cgroup.version));
  const auto& limits = host.limits;
  fact.lines.push_back(fmt::format("{}, {}, {}", limit_text("open files", limits.open_files, false),
                                   limit_text("locked memory", limits.locked_memory_bytes, true),
                                   limit_text("processes", limits.processes, false)));
  return fact;
}

PictureFact system_fact(const System& system) {
  PictureFact fact{.label = "system", .lines = {}};
  std::vector<std::string> parts;
  if (!system.os.empty()) parts.push_back(system.os);
  parts.push_back("kernel " + or_na(system.kernel));
  parts.push_back("clock " + or_na(system.clock_source));
  if (system.hypervisor == "yes")
    parts.emplace_back("virtual machine");
  else if (!system.hypervisor.empty())
    parts.push_back("virtual machine (" + system.hypervisor + ")");
  if (!system.container.empty()) parts.push_back("container (" + system.container + ")");
  const auto yes_no = [&](const char* what, const std::optional<bool>& value) {
    if (value) parts.push_back(fmt::format("{} {}", what, *value ? "yes" : "no"));
  };
  yes_no("pressure figures", system.psi);
  yes_no("BTF", system.btf);
  yes_no("nvidia_peermem", system.nvidia_peermem);
  fact.lines.push_back(fmt::format("{}", fmt::join(parts, "; ")));
  if (!system.boot_options.empty()) {
    fact.lines.push_back(fmt::format("booted with {}", fmt::join(system.boot_options, " ")));
  }
  return fact;
}

}  // namespace

std::vector<PictureFact> facts_of(const Host& host) {
  std::vector<PictureFact> facts = {memory_fact(host.memory), files_fact(host),
                                    volumes_fact(host),       interfaces_fact(host),
                                    bounds_fact(host),        system_fact(host.system)};
  PictureFact unseen{.label = "not seen", .lines = {}};
  for (const auto& thing : host.unseen) unseen.lines.push_back(thing.what + ": " + thing.why);
  facts.push_back(std::move(unseen));
  std::erase_if(facts, [](const PictureFact& fact) { return fact.lines.empty(); });
  return facts;
}

}  // namespace bedplate::host
