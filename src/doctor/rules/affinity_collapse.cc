// Several busy processes or threads may run on the same few processors only, while others of the
// machine stand idle: an OpenMP runtime or a launcher bound the parent, and children inherit the
// mask. accelerate#3911 (KMP_AFFINITY: 7 of 8 cores idle); pytorch#101850 and #8126 (mask inherited
// by workers, 10 times faster after the fix).
//
// Ceiling: the time in which the bound threads were runnable but not running, and input wait as far
// as workers were. With a second processor these threads would have run then; what they wait for
// besides does not change.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "doctor/cite.h"
#include "doctor/cpu_facts.h"
#include "doctor/rule.h"
#include "doctor/rules/conditions.h"

namespace bedplate::doctor {
namespace {

struct Bound {
  std::vector<int> cpus;
  std::vector<int> pids;
  double wanted = 0;  // processors that these processes ran on or waited for
};

std::optional<double> wanted_cpus(const RunView& run, int pid) {
  const auto ran = run.series().share(proc(pid), "cpu.run_ns", run.window());
  const auto delayed = run.series().share(proc(pid), "cpu.run_delay_ns", run.window());
  if (!ran || !delayed) return std::nullopt;
  return *ran + *delayed;
}

// Processes of the job that share one mask narrower than the machine, by mask; the one wanted most
// beyond its size comes first.
std::optional<Bound> tightest(const RunView& run) {
  const auto online = host_cpus(run);
  if (!online) return std::nullopt;
  std::map<std::vector<int>, Bound> by_mask;
  for (const int pid : run.job_pids()) {
    const auto notes = run.notes("affinity", pid);
    const auto wanted = wanted_cpus(run, pid);
    if (notes.empty() || !wanted) continue;
    const auto cpus = parse_cpu_list(notes.back());
    if (!cpus || cpus->empty() || static_cast<double>(cpus->size()) >= *online) continue;
    Bound& bound = by_mask[*cpus];
    bound.cpus = *cpus;
    bound.pids.push_back(pid);
    bound.wanted += *wanted;
  }
  std::optional<Bound> best;
  const auto excess = [](const Bound& b) { return b.wanted / static_cast<double>(b.cpus.size()); };
  for (auto& [mask, bound] : by_mask) {
    if (!best || excess(bound) > excess(*best)) best = std::move(bound);
  }
  return best;
}

// How many of the processors outside the mask stood idle, in processors.
std::optional<double> idle_outside(const RunView& run, const std::vector<int>& mask) {
  std::optional<double> idle;
  for (const std::string_view subject : run.series().subjects("cpu/")) {
    const auto number = to_int(subject.substr(4));
    if (!number || std::binary_search(mask.begin(), mask.end(), static_cast<int>(*number)))
      continue;
    const auto share = run.series().share(subject, "cpu.idle_ns", run.window());
    if (share) idle = idle.value_or(0) + *share;
  }
  if (idle) return idle;
  const auto online = host_cpus(run);
  const auto all = host_idle(run, run.window());
  if (!online || !all) return std::nullopt;
  return std::min(*all * *online, *online - static_cast<double>(mask.size()));
}

std::optional<Finding> check(const RunView& run) {
  const auto bound = tightest(run);
  if (!bound) return std::nullopt;
  const auto size = static_cast<double>(bound->cpus.size());
  const auto idle = idle_outside(run, bound->cpus);
  if (bound->wanted < size * (1 + run.threshold("affinity_collapse.excess"))) return std::nullopt;
  if (!idle || *idle < run.threshold("affinity_collapse.idle_cpus")) return std::nullopt;
  const LostTime lost = waiting_for_cpu(run);
  Finding f;
  f.gain_ceiling = run.share(lost);
  if (f.gain_ceiling < run.threshold("affinity_collapse.lost_share")) return std::nullopt;
  f.when = run.when(lost);
  f.status = Status::kEstablished;
  f.scope.pids = bound->pids;
  const std::string list = format_cpu_list(bound->cpus);
  f.title = fmt::format("{} may only run on {} {}, while others stand idle",
                        counted(static_cast<double>(bound->pids.size()), "process", "processes"),
                        bound->cpus.size() == 1 ? "processor" : "processors", list);
  f.evidence.push_back(
      cite("/proc/PID/status: Cpus_allowed_list", "{} on {} and all its threads",
           counted(static_cast<double>(bound->pids.size()), "process", "processes"), list));
  f.evidence.push_back(cite("/proc/PID/task/*/schedstat",
                            "they ran on or waited for {:.1f} processors, and have {}",
                            bound->wanted, bound->cpus.size()));
  f.evidence.push_back(cite("/proc/stat", "{:.1f} processors outside that mask were idle", *idle));
  f.verify = fmt::format("for p in {}; do taskset -pc $p; done", fmt::join(bound->pids, " "));
  f.fix =
      "start the job without the mask (taskset, numactl, cpuset), unset KMP_AFFINITY and "
      "GOMP_CPU_AFFINITY, or give every rank and worker its "
      "own processors: os.sched_setaffinity in a worker_init_fn";
  f.undo = fmt::format("taskset -pc {} PID", list);
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  const auto bound = tightest(run);
  if (!bound) {
    const auto allowed = allowed_cpus(run);
    if (!allowed) return std::nullopt;
    return fmt::format("ranks and workers may use all of processors {}", format_cpu_list(*allowed));
  }
  const auto size = static_cast<double>(bound->cpus.size());
  if (bound->wanted < size * (1 + run.threshold("affinity_collapse.excess") / 2)) {
    return fmt::format("processes bound to {} want {:.1f} processors", format_cpu_list(bound->cpus),
                       bound->wanted);
  }
  const auto idle = idle_outside(run, bound->cpus);
  if (idle && *idle < run.threshold("affinity_collapse.idle_cpus")) {
    return fmt::format("only {:.1f} processors outside the mask {} were idle", *idle,
                       format_cpu_list(bound->cpus));
  }
  return std::nullopt;
}

constexpr std::string_view kNeeds[] = {"host.cpu", "proc.sched", "proc.env"};
constexpr std::string_view kLookAlikes[] = {"cpu_quota", "thread_oversubscription",
                                            "noisy_neighbour"};
constexpr Threshold kThresholds[] = {
    {"affinity_collapse.excess", 0.15, "share",
     "that is wanted beyond the mask's processors: [own] tuned on healthy runs"},
    {"affinity_collapse.idle_cpus", 0.4, "processors",
     "idle outside the mask: [own] tuned on healthy runs"},
    {"affinity_collapse.lost_share", 0.05, "share", "of step time: [own] tuned on healthy runs"},
};
constexpr std::string_view kSymptoms[] = {
    "one processor is at 100 %, the others are idle",
    "more workers do not help",
    "slow under a launcher, fast without it",
};

constexpr Brings kBrings[] = {{"thread_oversubscription", mostly_explains},
                              {"input_workers", mostly_explains},
                              {"straggler", mostly_explains}};

}  // namespace

extern const Rule kAffinityCollapse = {
    .id = "affinity_collapse",
    .title = "busy processes are bound to the same few processors",
    .layer = Layer::kCpu,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "Ranks and workers inherit a processor mask that is narrower than the machine, and share "
        "it. They take turns on it while "
        "other processors stand idle.",
    .signals =
        "Cpus_allowed_list of ranks and workers (/proc/PID/status), time waited for a processor "
        "(schedstat), idle time of each processor "
        "(/proc/stat)",
    .symptoms = kSymptoms,
    .verify = "taskset -pc PID; mpstat -P ALL 1 5   # PID: the rank, then each worker",
    .fix =
        "Start without the mask, unset KMP_AFFINITY and GOMP_CPU_AFFINITY, mind the order of "
        "imports, os.sched_setaffinity in a worker_init_fn.",
    .check = check,
    .rule_out = rule_out,
    .brings = kBrings,
};

}  // namespace bedplate::doctor
