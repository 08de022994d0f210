// The cgroup may read or write only so much a second (v1 blkio.throttle.*, v2 io.max): tasks stand
// still on IO while the device itself is idle. Measured: a cap of 4 MiB/s and 16 MiB of direct
// reads: IO pressure 3.99 s, the device busy for 9 ms. Pressure high and device idle is a throttle;
// with a slow device both are high.
//
// Ceiling: in windows of IO pressure, input wait as far as making batches was not user code, and
// the checkpoints; and where every task of the job stood still, all of it. Without the cap the
// device would have answered in its own time, which is known to be short because it was idle.
#include <algorithm>

#include "doctor/cite.h"
#include "doctor/rule.h"
#include "doctor/rules/conditions.h"
#include "doctor/rules/io_facts.h"

namespace bedplate::doctor {
namespace {

struct Limit {
  std::string device;
  std::string metric;   // io.read_bps …
  std::string counter;  // what counts against it
  double value = 0;
  double used = 0;  // share of the limit while tasks stood still
  bool reads = false;
};

constexpr std::pair<std::string_view, std::string_view> kLimits[] = {
    {"io.read_bps", "io.read_bytes"},
    {"io.write_bps", "io.write_bytes"},
    {"io.read_iops", "io.reads"},
    {"io.write_iops", "io.writes"}};

std::vector<Window> stalled_windows(const RunView& run) {
  std::vector<Window> out;
  for (const Window& w : run.grid()) {
    if (pressure(run, "io", "some", w).value_or(0) >= 0.1) out.push_back(w);
  }
  return out;
}

// Limits that are set, the one used most first.
std::vector<Limit> limits(const RunView& run) {
  std::vector<Limit> out;
  const auto windows = stalled_windows(run);
  for (const std::string_view subject : run.series().subjects("iolimit/")) {
    for (const auto& [metric, counter] : kLimits) {
      const auto value = run.series().last(subject, metric, run.window());
      if (!value || *value <= 0) continue;
      double moved = 0;
      Nanos time = 0;
      for (const Window& w : windows) {
        const auto grown = storage_traffic(run, counter, w);
        if (!grown) continue;
        moved += *grown;
        time += length(w);
      }
      const double rate = time > 0 ? moved / seconds(time) : 0;
      out.push_back({std::string(subject.substr(8)), std::string(metric), std::string(counter),
                     *value, rate / *value, counter.find("read") != std::string_view::npos});
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Limit& a, const Limit& b) { return a.used > b.used; });
  return out;
}

// How busy the device was while tasks of the job stood still on IO; nullopt when not recorded.
std::optional<double> device_busy(const RunView& run, const std::string& device) {
  double busy = 0;
  double time = 0;
  for (const Window& w : stalled_windows(run)) {
    const auto share = run.series().share("disk/" + device, "busy_ns", w);
    if (!share) continue;
    busy += std::min(1.0, *share) * static_cast<double>(length(w));
    time += static_cast<double>(length(w));
  }
  if (!(time > 0)) return std::nullopt;
  return busy / time;
}

LostTime lost_to_it(const RunView& run) {
  const Timeline pressed = run.timeline([&](Window w) -> std::optional<double> {
    return pressure(run, "io", "some", w).value_or(0) >= 0.1 ? 1.0 : 0.0;
  });
  const LostTime input = input_beyond_computing(run);
  const LostTime phases =
      run.scaled(run.either(input, run.phase_time(probe::Phase::kCheckpoint)), pressed);
  const LostTime stalls =
      run.during(run.timeline([&](Window w) { return pressure(run, "io", "full", w); }));
  return larger(phases, stalls);
}

std::optional<Finding> check(const RunView& run) {
  const auto set = limits(run);
  if (set.empty() || set.front().used < run.threshold("io_throttle.limit_used"))
    return std::nullopt;
  const Limit& limit = set.front();
  const auto busy = device_busy(run, limit.device);
  if (busy && *busy > run.threshold("io_throttle.device_busy")) return std::nullopt;
  const LostTime lost = lost_to_it(run);
  Finding f;
  f.gain_ceiling = run.share(lost);
  if (f.gain_ceiling < run.threshold("io_throttle.lost_share")) return std::nullopt;
  f.when = run.when(lost);
  f.status = busy ? Status::kEstablished : Status::kSupported;
  f.scope.device = limit.device;
  const std::string source = run.series().source("iolimit/" + limit.device, limit.metric);
  f.scope.path = source;
  const bool bytes = limit.metric.ends_with("_bps");
  const std::string cap =
      bytes ? human_bytes(limit.value) + "/s" : human_count(limit.value) + " requests a second";
  f.title = fmt::format("the cgroup may {} only {} on {}", limit.reads ? "read" : "write", cap,
                        limit.device);
  f.evidence.push_back(cite(source, "limit {}, {} of it used while tasks stood still", cap,
                            human_share(limit.used)));
  f.evidence.push_back(cite(pressure_source(run, "io", "some"),
                            "tasks stood still on IO {} of the time, all of them {}",
                            human_share(pressure(run, "io", "some", run.window()).value_or(0)),
                            human_share(pressure(run, "io", "full", run.window()).value_or(0))));
  if (busy)
    f.evidence.push_back(cite("/proc/diskstats",
                              "{} was busy {} of that time: it is not the device", limit.device,
                              human_share(*busy)));
  f.verify = fmt::format("cat {}; iostat -x 1 5   # %util low while reads wait", source);
  f.fix =
      "lift the limit, or stage the data to a device without one; fewer bytes: compressed shards, "
      "no second copy";
  f.undo = fmt::format("set {} back to {:.0f}", source.substr(source.rfind('/') + 1), limit.value);
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  const auto set = limits(run);
  if (set.empty()) return "no IO limit is set on the job's groups";
  if (set.front().used >= run.threshold("io_throttle.limit_used") / 2) return std::nullopt;
  return fmt::format("the job used {} of its tightest IO limit", human_share(set.front().used));
}

constexpr std::string_view kNeeds[] = {"cgroup.io", "cgroup.psi|host.psi"};
constexpr std::string_view kLookAlikes[] = {"memcg_thrash", "small_files", "checkpoint_stall"};
constexpr Threshold kThresholds[] = {
    {"io_throttle.limit_used", 0.5, "share",
     "of the limit while tasks stand still on IO: [own] tuned on healthy runs"},
    {"io_throttle.device_busy", 0.6, "share",
     "above it the device itself may be slow: [own]; measured 0.2 % under a throttle"},
    {"io_throttle.lost_share", 0.05, "share", "of step time: [own] tuned on healthy runs"},
};
constexpr std::string_view kSymptoms[] = {
    "tasks in state D while the disk is idle",
    "reads stay at one round figure a second",
    "GPU at 30 %",
};
constexpr Brings kBrings[] = {{"input_workers", explains_slow_input},
                              {"cold_cache", mostly_explains},
                              {"checkpoint_stall", mostly_explains},
                              {"small_files", mostly_explains},
                              {"memcg_thrash", mostly_explains}};

}  // namespace

extern const Rule kIoThrottle = {
    .id = "io_throttle",
    .title = "the cgroup's IO limit stops the job",
    .layer = Layer::kIo,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "The control group may move only so many bytes or requests a second to or from a device. "
        "Tasks wait in the kernel for their turn, while "
        "the device has nothing to do.",
    .signals =
        "blkio.throttle.*_device (v1), io.max (v2) of the job's groups; io.pressure; busy time of "
        "the device (/proc/diskstats)",
    .symptoms = kSymptoms,
    .verify = "cat blkio.throttle.*_device; iostat -x 1 5   # v2: cat io.max, up the tree",
    .fix = "Lift the limit, or stage the data elsewhere.",
    .check = check,
    .rule_out = rule_out,
    .brings = kBrings,
};

}  // namespace bedplate::doctor
