// Python's cyclic collector visits every container object that lives. With millions of them
// (samples kept as Python objects, caches, graphs) a full collection stops the loop for as long as
// a second: marin#9205, 1.43 to 1.50 s for 4.67 million objects, at another step in every rank;
// sglang PR#9241, 41 s that freed nothing.
//
// Ceiling: the time in collections of at least 50 µs, as a phase of its own or inside another one,
// for ranks that meet in collectives the longest of each step; in workers their share of the making
// of batches, of the input wait. Frozen or postponed collections give back no more than that. Many
// short collections are the price of allocating and no cause: only pauses that a step can feel
// count.
#include <algorithm>
#include <cmath>

#include "doctor/cite.h"
#include "doctor/input_facts.h"
#include "doctor/rule.h"
#include "probe/trace_format.h"

namespace bedplate::doctor {
namespace {

struct Pauses {
  double count = 0;  // of ranks, by event
  Nanos longest = 0;
  double total_ns = 0;
  double collected = 0;  // objects that full collections found
  double full = 0;
};

void add_pauses(const RunView& run, int pid, Pauses& all) {
  const auto events = run.data().events.find(pid);
  if (events == run.data().events.end()) return;
  for (const probe::Event& event : events->second) {
    if (event.kind != static_cast<std::uint16_t>(probe::EventKind::kGc) || event.duration <= 0)
      continue;
    if (event.start < run.window().begin || event.start >= run.window().end) continue;
    ++all.count;
    all.total_ns += static_cast<double>(event.duration);
    all.longest = std::max(all.longest, event.duration);
    if ((event.arg & 0xFF) == 2) {
      ++all.full;
      all.collected += static_cast<double>(event.arg >> 8);
    }
  }
}

Pauses look(const RunView& run) {
  Pauses all;
  for (const int pid : run.job_pids()) add_pauses(run, pid, all);
  return all;
}

LostTime lost_to_it(const RunView& run) {
  // Collections inside another phase are missing from the phase `gc`; the counter has them all, but
  // smeared over half a second.
  const LostTime phase = run.phase_time(probe::Phase::kGc);
  const LostTime everywhere = run.during([&](const RankView& rank) {
    return run.timeline(
        [&](Window w) { return run.series().share(proc(rank.pid), "trace.gc_ns", w); });
  });
  const LostTime& in_ranks = run.share(everywhere) > 1.1 * run.share(phase) ? everywhere : phase;
  const LostTime in_workers =
      run.scaled(run.phase_time(probe::Phase::kInputWait), [&](const RankView& rank) {
        return run.timeline([&](Window w) -> std::optional<double> {
          double collecting = 0;
          double making = 0;
          for (const int pid : rank.workers) {
            collecting += run.series().growth(proc(pid), "trace.gc_ns", w).value_or(0);
            making += run.series().growth(proc(pid), "trace.fetch_wall_ns", w).value_or(0);
          }
          if (!(making > 0)) return std::nullopt;
          return std::min(1.0, collecting / making);
        });
      });
  return run.either(in_ranks, in_workers);
}

std::optional<Finding> check(const RunView& run) {
  const LostTime lost = lost_to_it(run);
  const Pauses pauses = look(run);
  Finding f;
  f.gain_ceiling = run.share(lost);
  if (f.gain_ceiling < run.threshold("python_gc.share")) return std::nullopt;
  if (milliseconds(pauses.longest) < run.threshold("python_gc.pause_ms")) return std::nullopt;
  f.status = Status::kEstablished;
  f.when = run.when(lost);
  f.title = fmt::format("Python's garbage collector stops the loop for up to {}",
                        human_duration(pauses.longest));
  f.evidence.push_back(cite("hook: gc.callbacks", "{} of step time in collections, the longest {}",
                            human_share(f.gain_ceiling), human_duration(pauses.longest)));
  if (pauses.full > 0) {
    f.evidence.push_back(
        cite("hook: gc.callbacks", "{}, which freed {} each on average",
             counted(pauses.full, "full collection", "full collections"),
             counted(std::round(pauses.collected / pauses.full), "object", "objects")));
  }
  f.verify =
      "python -c 'import gc, runpy, sys; gc.set_debug(gc.DEBUG_STATS); del sys.argv[0]; "
      "runpy.run_path(sys.argv[0], run_name=\"__main__\")' train.py 2>&1 | grep 'gc: done'";
  f.fix =
      "gc.collect() and gc.freeze() once everything is loaded; then gc.disable() and gc.collect(1) "
      "every some hundred steps, in all ranks at the "
      "same step; keep samples in numpy or arrow arrays in place of Python objects";
  f.undo = "gc.unfreeze(); gc.enable()";
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  const double share = run.share(lost_to_it(run));
  if (share >= run.threshold("python_gc.share") / 2) return std::nullopt;
  return fmt::format("collections took {} of the step", human_share(share));
}

constexpr std::string_view kNeeds[] = {"hook", "steps"};
constexpr std::string_view kLookAlikes[] = {"checkpoint_stall"};
constexpr Threshold kThresholds[] = {
    {"python_gc.share", 0.05, "share", "of step time: [own] tuned on healthy runs"},
    {"python_gc.pause_ms", 5, "ms",
     "the longest pause: [own], young collections take less; a full one with torch alone loaded "
     "takes "
     "40 to 70 ms, but comes seldom"},
};
constexpr std::string_view kSymptoms[] = {
    "every 100th step is slow",
    "step time grows over the run",
    "one rank stalls now and then, and at another step in each rank",
};

}  // namespace

extern const Rule kPythonGc = {
    .id = "python_gc",
    .title = "Python's garbage collector stops the loop",
    .layer = Layer::kFramework,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "A full collection visits every live container object. Jobs that keep millions of them "
        "stop for tens of milliseconds to seconds, "
        "again and again, and each rank at another step.",
    .signals = "gc.callbacks (hook): length, generation and objects freed of each collection",
    .symptoms = kSymptoms,
    .verify =
        "python -c 'import gc, runpy, sys; gc.set_debug(gc.DEBUG_STATS); del sys.argv[0]; "
        "runpy.run_path(sys.argv[0], run_name=\"__main__\")' train.py 2>&1 | grep 'gc: done'",
    .fix =
        "gc.freeze() after loading, gc.disable() with a collection every some hundred steps at the "
        "same step in all ranks, fewer Python objects.",
    .check = check,
    .rule_out = rule_out,
};

}  // namespace bedplate::doctor
