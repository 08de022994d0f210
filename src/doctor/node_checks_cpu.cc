// Checks of processors: how fast they may run and how many of them this process may use.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "doctor/node_checks.h"

namespace bedplate::doctor {
namespace {

std::string governors_text(const host::Processors& cpu) {
  std::vector<std::string> parts;
  for (const auto& governor : cpu.governors) {
    parts.push_back(cpu.governors.size() == 1
                        ? governor.name
                        : fmt::format("{} on {}", governor.name, format_cpu_list(governor.cpus)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The drivers that let the processor choose (intel_pstate, amd-pstate-epp) call a mode "powersave"
// which goes to full speed under load; there the energy preference decides. With the others
// "powersave" is the lowest clock.
CheckResult governor(const NodeView& node) {
  const auto& cpu = node.host().cpu;
  if (cpu.governors.empty()) {
    return not_applicable(
        "no frequency control in /sys: usual in a virtual machine, where the host decides");
  }
  const std::string seen = governors_text(cpu);
  const std::string source = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
  const bool all_fast =
      std::all_of(cpu.governors.begin(), cpu.governors.end(),
                  [](const auto& governor) { return governor.name == "performance"; });
  if (all_fast) return all_well(seen);
  const bool self_governing =
      cpu.frequency_driver == "intel_pstate" || cpu.frequency_driver == "amd-pstate-epp";
  const bool slowest =
      std::any_of(cpu.governors.begin(), cpu.governors.end(),
                  [](const auto& governor) { return governor.name == "powersave"; });
  if (self_governing) {
    const std::string preference = cpu.energy_preference.empty() ? "n/a" : cpu.energy_preference;
    const bool saving = preference == "power" || preference == "balance_power";
    CheckResult result =
        found(saving ? CheckState::kWarning : CheckState::kNote,
              fmt::format("{} with driver {}, energy preference {}: it does reach full speed, "
                          "more slowly after idling",
                          seen, cpu.frequency_driver, preference),
              source, seen);
    result.undo = "cpupower frequency-set -g " + cpu.governors.front().name;
    return result;
  }
  CheckResult result = found(
      slowest ? CheckState::kWarning : CheckState::kNote,
      slowest
          ? fmt::format("{} with driver {}: the lowest clock", seen, cpu.frequency_driver)
          : fmt::format("{}: the clock follows the load, short bursts run below full speed", seen),
      source, seen);
  result.undo = "cpupower frequency-set -g " + cpu.governors.front().name;
  return result;
}

CheckResult boost(const NodeView& node) {
  const auto& cpu = node.host().cpu;
  if (!cpu.boost) return not_applicable("no boost switch in /sys");
  if (*cpu.boost) return all_well("on");
  return found(CheckState::kNote,
               "turned off: single threads (Python, one rank's main loop) run at the base clock",
               "/sys/devices/system/cpu/cpufreq/boost, intel_pstate/no_turbo", "off");
}

CheckResult cpus_online(const NodeView& node) {
  const auto& cpu = node.host().cpu;
  if (cpu.online.empty())
    return not_seen("/sys/devices/system/cpu and /proc/cpuinfo name no processor");
  CheckResult result;
  if (!cpu.offline.empty()) {
    add(result, CheckState::kWarning, "/sys/devices/system/cpu/online",
        "offline: " + format_cpu_list(cpu.offline));
  }
  if (!cpu.isolated.empty()) {
    add(result, CheckState::kNote, "/sys/devices/system/cpu/isolated",
        "isolated: " + format_cpu_list(cpu.isolated) + "; only what is bound to them runs there");
  }
  return concluded(
      std::move(result), "some are offline, some isolated",
      fmt::format("{} online, none isolated", plural(cpu.online.size(), "CPU", "CPUs")));
}

CheckResult affinity(const NodeView& node) {
  const auto& cpu = node.host().cpu;
  if (cpu.allowed.empty()) return not_seen("/proc/self/status has no Cpus_allowed_list");
  const auto least = static_cast<std::size_t>(node.threshold("cpu_affinity.least"));
  const std::string seen =
      fmt::format("CPUs {} of {}", format_cpu_list(cpu.allowed), format_cpu_list(cpu.online));
  const std::size_t usable = std::min(cpu.allowed.size(), cpu.online.size());
  if (usable >= cpu.online.size())
    return all_well("all " + plural(cpu.online.size(), "CPU", "CPUs"));
  return found(usable < least ? CheckState::kWarning : CheckState::kNote,
               usable < least ? seen + ": a rank and its data workers share one CPU"
                              : seen + ": jobs started from here use only these",
               node.host().cgroup.cpuset_source.empty() ? "/proc/self/status"
                                                        : node.host().cgroup.cpuset_source,
               seen);
}

// With a quota below the number of visible CPUs, libraries start one thread a CPU and the group
// stops in each period.
CheckResult cgroup_cpu(const NodeView& node) {
  const auto& host = node.host();
  if (!host.cgroup.cpu_unlimited)
    return not_seen("no cpu controller in any cgroup hierarchy that is visible here");
  if (*host.cgroup.cpu_unlimited) return all_well("no quota");
  const std::size_t visible =
      host.cpu.allowed.empty() ? host.cpu.online.size() : host.cpu.allowed.size();
  const double quota = *host.cgroup.cpu_quota;
  const std::string seen = fmt::format("quota of {:.4g} CPUs, {} visible", quota, visible);
  if (quota >= static_cast<double>(visible)) return all_well(seen);
  CheckResult result =
      found(CheckState::kWarning,
            seen + ": libraries start a thread for each and the group is stopped in every period",
            host.cgroup.cpu_source, seen);
  result.fix = fmt::format("raise the quota to {} CPUs, or export OMP_NUM_THREADS={}", visible,
                           std::max(1, static_cast<int>(quota)));
  return result;
}

// A clock that user space cannot read by itself turns every time.time() into a system call; hpet
// and acpi_pm moreover go over a slow bus. Xen's own clock has been readable from user space since
// Linux 4.5 but only on some hosts.
CheckResult clock_source(const NodeView& node) {
  const auto& system = node.host().system;
  const std::string& clock = system.clock_source;
  if (clock.empty()) return not_seen("/sys/devices/system/clocksource is absent");
  const bool fast = clock == "tsc" || clock == "kvm-clock" || clock == "arch_sys_counter" ||
                    clock == "timebase" || clock == "stp" ||
                    clock.starts_with("hyperv_clocksource_tsc");
  if (fast) return all_well(clock);
  CheckResult result =
      found(CheckState::kWarning,
            fmt::format("{}: each reading of the time is a slow call into the kernel", clock),
            "/sys/devices/system/clocksource/clocksource0/current_clocksource", clock);
  const bool rejected = std::find(system.clock_sources.begin(), system.clock_sources.end(),
                                  "tsc") == system.clock_sources.end();
  if (rejected) result.text += "; tsc is not offered (the kernel log says why)";
  return result;
}

constexpr Threshold kAffinity[] = {
    {"cpu_affinity.least", 2, "CPUs", "own: one for the rank, one for its input"}};

constexpr NodeCheck kChecks[] = {
    {.id = "cpu_governor",
     .title = "the processors are not told to run at full speed",
     .layer = Layer::kCpu,
     .check = governor,
     .verify = "cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor | sort | uniq -c",
     .fix = "cpupower frequency-set -g performance",
     .undo = "cpupower frequency-set -g <what the first line says>",
     .source = "Linux Documentation/admin-guide/pm/cpufreq.rst, intel_pstate.rst",
     .may_cause = "cpu_clock"},
    {.id = "cpu_boost",
     .title = "boost clocks are turned off",
     .layer = Layer::kCpu,
     .check = boost,
     .verify =
         "cat /sys/devices/system/cpu/cpufreq/boost /sys/devices/system/cpu/intel_pstate/no_turbo",
     .fix = "turn boost on in the BIOS, or echo 1 > /sys/devices/system/cpu/cpufreq/boost (echo 0 "
            "> .../intel_pstate/no_turbo)",
     .undo = "the same with the other value",
     .source = "Linux Documentation/admin-guide/pm/cpufreq.rst",
     .may_cause = "cpu_clock"},
    {.id = "cpus_online",
     .title = "processors are offline or isolated",
     .layer = Layer::kCpu,
     .check = cpus_online,
     .verify = "cat /sys/devices/system/cpu/{online,isolated}",
     .fix = "echo 1 > /sys/devices/system/cpu/cpuN/online; take isolcpus= off the boot line if "
            "nothing needs it",
     .undo = "echo 0 > /sys/devices/system/cpu/cpuN/online",
     .source = "Linux Documentation/admin-guide/cputopology.rst"},
    {.id = "cpu_affinity",
     .title = "this shell may use only some of the processors",
     .layer = Layer::kCpu,
     .check = affinity,
     .verify = "taskset -cp $$; nproc --all",
     .fix = "start from a shell or a cgroup without a CPU set, or ask the scheduler for more CPUs",
     .undo = "none needed",
     .source = "sched_setaffinity(2), Linux Documentation/admin-guide/cgroup-v2.rst (cpuset)",
     .thresholds = kAffinity,
     .may_cause = "affinity_collapse"},
    {.id = "cgroup_cpu_quota",
     .title = "the cgroup's CPU quota is smaller than the CPUs that programs see",
     .layer = Layer::kCpu,
     .check = cgroup_cpu,
     .verify = "nproc; cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us",
     .fix = "raise the quota, or set OMP_NUM_THREADS to it",
     .undo = "set the old quota again",
     .source = "Linux Documentation/scheduler/sched-bwc.rst",
     .may_cause = "cpu_quota"},
    {.id = "clock_source",
     .title = "reading the time is slow",
     .layer = Layer::kCpu,
     .check = clock_source,
     .verify = "cat /sys/devices/system/clocksource/clocksource0/{current,available}_clocksource; "
               "dmesg | grep -i clocksource",
     .fix = "find in the kernel log why tsc was dropped; if the BIOS is at fault, update it; "
            "tsc=reliable only after checking",
     .undo = "take the boot option out again",
     .source = "Linux Documentation/timers/timekeeping.rst; vdso(7)",
     .may_cause = "cpu_clock"},
};

}  // namespace

std::span<const NodeCheck> cpu_checks() { return kChecks; }

}  // namespace bedplate::doctor
