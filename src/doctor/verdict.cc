#include "doctor/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "doctor/cpu_facts.h"

namespace bedplate::doctor {
namespace {

using probe::Phase;

constexpr Threshold kVerdict[] = {
    {"verdict.lost_share", 0.15, "share",
     "of step time lost without an explanation makes a run unknown: [own] tuned on healthy runs"},
    {"verdict.idle_cpus", 0.05, "processors",
     "a job without steps that used no more all the time only waited: [own]"},
    {"verdict.idle_s", 20, "s", "of that before it is worth saying: [own]"},
};

// Use of the busiest of the machine's GPUs, 0…1.
double busiest_gpu(const RunView& run) {
  double most = 0;
  for (const auto gpu : run.series().subjects("gpu/")) {
    const auto mean = run.series().mean(gpu, "utilization_pct", run.window());
    most = std::max(most, mean.value_or(0) / 100);
  }
  return most;
}

// A job that hung before its first step: nobody saw what it waited for, and it is not healthy.
std::optional<std::string> only_waited(const RunView& run) {
  const auto used = job_cpus(run, run.window());
  if (run.has_steps() || !used || *used > run.threshold("verdict.idle_cpus")) return std::nullopt;
  const Nanos time = length(run.window());
  if (static_cast<double>(time) < run.threshold("verdict.idle_s") * 1e9) return std::nullopt;
  if (busiest_gpu(run) > 0.05) return std::nullopt;
  return fmt::format(
      "the job did next to nothing for {} (it used {:.3f} processors) and came to no training "
      "step; what it waited for was not seen. While it hangs, `py-spy dump --pid PID` shows where",
      human_duration(time), *used);
}

// Stalls of the whole job: `full` pressure says that every task of it that had work stood still.
LostTime stalled(const RunView& run) {
  return run.during(run.timeline([&](Window w) -> std::optional<double> {
    const auto memory = run.series().rate("cgroup/job", "psi.memory.full_us", w);
    const auto io = run.series().rate("cgroup/job", "psi.io.full_us", w);
    if (!memory && !io) return std::nullopt;
    return std::max(memory.value_or(0), io.value_or(0)) / 1e6;
  }));
}

// Where time may be lost without the phases showing it, only as far as the job does not use the
// machine's processors anyway.
LostTime waiting(const RunView& run) {
  const LostTime waits = larger(waiting_for_cpu(run), uneven_communication(run));
  return run.scaled(waits, run.timeline([&](Window w) -> std::optional<double> {
    const auto used = job_cpus(run, w);
    const auto usable = usable_cpus(run);
    if (!used || !usable || !(*usable > 0)) return std::nullopt;
    return std::clamp(1 - *used / *usable, 0.0, 1.0);
  }));
}

std::string finding_text(const RunView& run, const Finding& top) {
  if (top.rule == "crash") return top.title;
  return fmt::format("{}: up to {} of the {} time", top.title, human_share(top.gain_ceiling),
                     run.has_steps() ? "step" : "run");
}

}  // namespace

std::span<const Threshold> verdict_thresholds() { return kVerdict; }

LostTime uneven_communication(const RunView& run) {
  LostTime out = run.phase_time(Phase::kCommunication);
  struct Waits {
    double least = 0;
    std::size_t ranks = 0;
  };
  std::map<std::int64_t, Waits> joint;
  const auto& ranks = run.ranks();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t step = 0; step < ranks[rank].steps.size(); ++step) {
      Waits& waits = joint[ranks[rank].steps[step].index];
      const double wait = out.ns[rank][step];
      if (!(wait > 0) || ranks[rank].steps[step].usual_communication) continue;  // nobody looked
      waits.least = waits.ranks == 0 ? wait : std::min(waits.least, wait);
      ++waits.ranks;
    }
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t step = 0; step < ranks[rank].steps.size(); ++step) {
      const Waits& waits = joint.at(ranks[rank].steps[step].index);
      const bool comparable = waits.ranks == ranks.size() && waits.ranks > 1;
      out.ns[rank][step] = comparable ? out.ns[rank][step] - waits.least : 0;
    }
  }
  return out;
}

LostTime lost_time(const RunView& run) {
  LostTime lost = run.phase_time(Phase::kInputWait);
  lost = run.either(lost, run.phase_time(Phase::kCheckpoint));
  lost = run.either(lost, run.phase_time(Phase::kGc));
  lost = larger(lost, run.during(throttled(run)));
  lost = larger(lost, stalled(run));
  return run.either(lost, waiting(run));
}

void give_verdict(const RunView& run, Report& report) {
  if (!report.findings.empty()) {
    report.verdict = Verdict::kFinding;
    report.verdict_text = finding_text(run, report.findings.front());
    return;
  }
  const bool nothing_known = run.ranks().empty() || length(run.window()) == 0;
  if (nothing_known || (!run.has_steps() && !job_cpus(run, run.window()))) {
    report.verdict = Verdict::kUnknown;
    report.verdict_text =
        "nothing can be said: the run holds neither steps nor samples of its processes";
    return;
  }
  if (auto text = only_waited(run)) {
    report.verdict = Verdict::kUnknown;
    report.verdict_text = std::move(*text);
    return;
  }
  const double lost = run.share(lost_time(run));
  const char* time = run.has_steps() ? "step" : "run";
  if (lost >= run.threshold("verdict.lost_share")) {
    report.verdict = Verdict::kUnknown;
    report.verdict_text =
        fmt::format("{} of the {} time is lost and no rule explains it", human_share(lost), time);
    return;
  }
  report.verdict = Verdict::kHealthy;
  report.verdict_text =
      fmt::format("no cause of lost time was found ({} of the {} time waits for something)",
                  human_share(lost), time);
  if (!run.has_steps())
    report.verdict_text +=
        "; what happens inside a training step was not seen: no step events came";
}

}  // namespace bedplate::doctor
