// A bandwidth-limited cgroup may run for `quota` in each `period`; with more runnable threads than
// quota/period the group uses it up before the period's end, and every thread of it stands still
// until the next one (Linux Documentation/scheduler/sched-bwc.rst; kserve#1031: 40 threads under a
// limit of 4 run 10 ms and stall 90 ms).
//
// Ceiling: the step time that overlaps with the standstill. The kernel counts throttled time once a
// processor, so the sum over-states the standstill of a job on several; 1 - used/online bounds it
// as well, because without the quota a step still needs its CPU time divided by the processors.
// Half-second windows carry the smaller of the two (see throttled()).
#include <cmath>

#include "doctor/cite.h"
#include "doctor/cpu_facts.h"
#include "doctor/rule.h"
#include "doctor/rules/conditions.h"

namespace bedplate::doctor {
namespace {

constexpr std::string_view kGroup = "cgroup/cpu";

struct Periods {
  double total;
  double hit;
  double share() const { return total > 0 ? hit / total : 0; }
};

std::optional<Periods> periods(const RunView& run) {
  const auto total = run.series().growth(kGroup, "cpu.periods", run.window());
  const auto hit = run.series().growth(kGroup, "cpu.throttled_periods", run.window());
  if (!total || !hit) return std::nullopt;
  return Periods{*total, std::min(*hit, *total)};
}

std::optional<Finding> check(const RunView& run) {
  const auto quota = quota_cpus(run);
  const auto seen = periods(run);
  if (!quota || !seen || seen->share() < run.threshold("cpu_quota.throttled_share"))
    return std::nullopt;
  const LostTime lost = run.during(throttled(run));
  Finding f;
  f.gain_ceiling = run.share(lost);
  if (f.gain_ceiling < run.threshold("cpu_quota.lost_share")) return std::nullopt;
  f.when = run.when(lost);
  f.status = Status::kEstablished;
  const std::string stat = run.series().source(kGroup, "cpu.throttled_periods");
  f.scope.path = stat.substr(0, stat.rfind('/'));
  f.title = fmt::format("the cgroup's quota of {:.3g} CPUs stops the job", *quota);
  const double stopped = run.series().growth(kGroup, "cpu.throttled_ns", run.window()).value_or(0);
  f.evidence.push_back(
      cite(stat, "{:.0f} of {:.0f} periods throttled; {} of standstill, added up over processors",
           seen->hit, seen->total, human_duration(static_cast<Nanos>(stopped))));
  f.evidence.push_back(
      cite(run.series().source(kGroup, "cpu.quota_us"), "the quota is {:.3g} CPUs", *quota));
  const auto idle = host_idle(run, run.window());
  const auto online = host_cpus(run);
  if (idle)
    f.evidence.push_back(
        cite("/proc/stat", "{} of the machine's processors idle meanwhile", human_share(*idle)));
  f.verify = fmt::format("cat {0}; sleep 10; cat {0}", stat);
  f.fix = online ? fmt::format(
                       "raise the limit (up to {:.0f} CPUs are there), or start no more than "
                       "{:.0f} busy threads in all "
                       "ranks and workers together",
                       *online, std::max(1.0, std::floor(*quota)))
                 : "raise the limit, or start no more busy threads than it allows";
  f.undo = "set the limit back to its old value";
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  if (!quota_cpus(run)) return "no CPU quota is set on the job's groups";
  const auto seen = periods(run);
  if (!seen || seen->share() >= run.threshold("cpu_quota.throttled_share") / 2) return std::nullopt;
  return fmt::format("{:.0f} of {:.0f} periods were throttled", seen->hit, seen->total);
}

// Workers that are throttled deliver late; without workers the lack of them costs whatever the
// quota is.
bool slows_workers(const RunView& run, const Finding& consequence, const Finding& root) {
  return worker_count(run) > 0 && mostly_explains(run, consequence, root);
}

constexpr std::string_view kNeeds[] = {"cgroup.quota"};
constexpr std::string_view kLookAlikes[] = {"thread_oversubscription", "affinity_collapse",
                                            "noisy_neighbour"};
constexpr Threshold kThresholds[] = {
    {"cpu_quota.throttled_share", 0.25, "share",
     "of periods: the CPUThrottlingHigh alert of kubernetes-mixin"},
    {"cpu_quota.lost_share", 0.05, "share", "of step time: [own] tuned on healthy runs"},
};
constexpr std::string_view kSymptoms[] = {
    "every step is slow, but the machine is half idle",
    "steps take 100 ms, 200 ms or other multiples of 100 ms",
    "slower in the container than on the same machine outside",
    "more threads or workers make it slower",
};
constexpr Brings kBrings[] = {{"input_workers", slows_workers},
                              {"thread_oversubscription", mostly_explains},
                              {"straggler", mostly_explains}};

}  // namespace

extern const Rule kCpuQuota = {
    .id = "cpu_quota",
    .title = "the cgroup's CPU quota stops the job",
    .layer = Layer::kCpu,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "The job runs in a control group that may use the processors for only so long in each "
        "period (100 ms as a rule). "
        "When its threads have used that up, all of them stand still until the next period, even "
        "on an idle machine.",
    .signals =
        "cpu.stat of the tightest group: nr_periods, nr_throttled, throttled_time (v1) or "
        "throttled_usec (v2); "
        "cpu.cfs_quota_us and cpu.cfs_period_us (v1), cpu.max (v2); idle time of /proc/stat",
    .symptoms = kSymptoms,
    .verify = "cat cpu.stat; sleep 10; cat cpu.stat   # in the group's folder: nr_throttled grows",
    .fix =
        "Raise or remove the limit (docker --cpus, Kubernetes resources.limits.cpu), ask for whole "
        "processors, or use no more "
        "busy threads than the quota.",
    .check = check,
    .rule_out = rule_out,
    .brings = kBrings,
};

}  // namespace bedplate::doctor
