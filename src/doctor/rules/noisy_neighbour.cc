// Others on the machine, or other guests on the hypervisor (steal), take processors that the job's
// threads wait for.
//
// Ceiling: the time in which the job's threads were runnable but not running (throttled periods
// taken out), as far as others rather than the job's own surplus of threads kept the processors
// busy; for steal its share of the time that the job's processors were busy or stolen. Without the
// neighbour those threads would have run.
#include <algorithm>

#include "doctor/cite.h"
#include "doctor/cpu_facts.h"
#include "doctor/rule.h"
#include "doctor/rules/conditions.h"

namespace bedplate::doctor {
namespace {

// The part of the waiting that others are to blame for: their processors against the job's own
// threads beyond what there is.
std::optional<double> blame(const RunView& run, Window w) {
  const auto outside = outside_cpus(run, w);
  const auto online = host_cpus(run);
  if (!outside || !online) return std::nullopt;
  double busy = 0;
  for (const RankView& rank : run.ranks()) busy += busy_threads(run, rank);
  const double surplus = std::max(0.0, busy - *online);
  return *outside + surplus > 0 ? *outside / (*outside + surplus) : 0;
}

LostTime lost_to_others(const RunView& run) {
  return run.scaled(waiting_for_cpu(run), run.timeline([&](Window w) { return blame(run, w); }));
}

LostTime lost_to_steal(const RunView& run) {
  return run.during(run.timeline([&](Window w) -> std::optional<double> {
    const auto steal = stolen(run, w);
    const auto idle = host_idle(run, w);
    if (!steal || !idle || !(1 - *idle > 0)) return std::nullopt;
    return std::min(1.0, *steal / (1 - *idle));
  }));
}

std::optional<Finding> check(const RunView& run) {
  const auto outside = outside_cpus(run, run.window());
  const auto steal = stolen(run, run.window());
  const bool neighbour = outside && *outside >= run.threshold("noisy_neighbour.outside_cpus");
  const bool hypervisor = steal && *steal >= run.threshold("noisy_neighbour.steal_share");
  if (!neighbour && !hypervisor) return std::nullopt;
  LostTime lost = run.during(Timeline{});
  if (neighbour) lost = lost_to_others(run);
  if (hypervisor) lost = run.either(lost, lost_to_steal(run));
  Finding f;
  f.gain_ceiling = run.share(lost);
  if (f.gain_ceiling < run.threshold("noisy_neighbour.lost_share")) return std::nullopt;
  f.when = run.when(lost);
  f.status = Status::kEstablished;
  f.title = neighbour
                ? fmt::format("others on the machine use {:.1f} processors that the job waits for",
                              *outside)
                : fmt::format("the hypervisor gives {} of the processors to other guests",
                              human_share(*steal));
  if (neighbour) {
    f.evidence.push_back(cite(run.series().source("cgroup/others", "cpu.usage_ns"),
                              "{:.1f} of {} processors were used outside the job", *outside,
                              human_count(host_cpus(run).value_or(0))));
    const auto top = run.notes("top_outside");
    if (!top.empty())
      f.evidence.push_back(cite("/proc", "most of it by {}", top[top.size() / 2]->value));
  }
  if (hypervisor)
    f.evidence.push_back(
        cite("/proc/stat: steal", "{} of all processors' time was stolen", human_share(*steal)));
  if (neighbour) {
    f.evidence.push_back(cite("/proc/PID/task/*/schedstat, hook: steps",
                              "threads that the steps depend on were ready but did not run {} of "
                              "the step",
                              human_share(run.share(waiting_for_cpu(run)))));
  }
  if (const auto ratio = delay_ratio(run)) {
    f.evidence.push_back(
        cite("/proc/PID/task/*/schedstat",
             "the job's threads waited for a processor {:.2f} times as long as they ran", *ratio));
  }
  if (const auto idle = host_idle(run, run.window()))
    f.evidence.push_back(cite("/proc/stat", "{} idle", human_share(*idle)));
  f.verify =
      "pidstat 1 5; mpstat -P ALL 1 5   # of sysstat, while the job runs: who is on top, %steal";
  f.fix = neighbour ? "move the others away or the job to another machine; or keep processors for "
                      "the job: a cpuset, or a larger cpu.weight / cpu.shares"
                    : "move to a machine with processors of its own, or to another host";
  f.undo = "remove the cpuset or set the weight back";
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  const auto outside = outside_cpus(run, run.window());
  if (!outside || *outside >= run.threshold("noisy_neighbour.outside_cpus")) return std::nullopt;
  const auto steal = stolen(run, run.window());
  if (steal && *steal >= run.threshold("noisy_neighbour.steal_share")) return std::nullopt;
  return fmt::format("others used {:.2f} processors", *outside);
}

constexpr std::string_view kNeeds[] = {"cgroup.others|host.cpu", "proc.sched"};
constexpr std::string_view kLookAlikes[] = {"cpu_quota", "thread_oversubscription",
                                            "affinity_collapse"};
constexpr Threshold kThresholds[] = {
    {"noisy_neighbour.outside_cpus", 0.3, "processors",
     "used outside the job: [own] tuned on healthy runs"},
    {"noisy_neighbour.steal_share", 0.05, "share",
     "of all processors' time: [own], the catalogue's figure"},
    {"noisy_neighbour.lost_share", 0.05, "share", "of step time: [own] tuned on healthy runs"},
};
constexpr std::string_view kSymptoms[] = {
    "the same job is slower at some hours or on some machines",
    "step times vary although the work does not",
    "%steal in top",
};
// Workers that do not get a processor deliver late. Without workers the absence of them is a cause
// of its own, unless the making of batches would be no finding if it had its processor.
bool slows_input(const RunView& run, const Finding& consequence, const Finding& root) {
  if (worker_count(run) > 0) return mostly_explains(run, consequence, root);
  const Fetches fetch = all_fetches(run);
  const double own = consequence.gain_ceiling * (1 - fetch.share(fetch.delay_ns));
  return own < run.threshold("input_workers.wait_share");
}
constexpr Brings kBrings[] = {{"straggler", mostly_explains}, {"input_workers", slows_input}};

}  // namespace

extern const Rule kNoisyNeighbour = {
    .id = "noisy_neighbour",
    .title = "others use processors that the job waits for",
    .layer = Layer::kCpu,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "Processes outside the job, or other guests of the same hypervisor, keep processors busy "
        "while the job's threads are ready to "
        "run. The job has no more threads than processors, so it is not its own doing.",
    .signals =
        "processor time outside the job's cgroup (/proc/stat less cpuacct.usage), steal in "
        "/proc/stat, time waited for a processor "
        "(/proc/PID/task/*/schedstat)",
    .symptoms = kSymptoms,
    .verify = "pidstat 1 5; mpstat -P ALL 1 5",
    .fix =
        "Move the neighbour or the job, isolate processors with a cpuset, or give the job a larger "
        "share.",
    .check = check,
    .rule_out = rule_out,
    .brings = kBrings,
};

}  // namespace bedplate::doctor
