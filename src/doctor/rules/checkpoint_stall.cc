// The loop stands still while a checkpoint is serialised, written and flushed to the device; in a
// distributed job the other ranks wait in their next collective for the one that writes.
//
// Ceiling: the checkpoint phase of the steps (torch.save, torch.distributed.checkpoint and the
// fsync calls with them), and in the steps that hold one what the script itself did longer than in
// others (gathering the state, renaming, deleting the last checkpoint: 28 of 190 ms measured for
// 100 MB). For ranks that meet in collectives the longest of each step. A checkpoint that is copied
// aside and written in the background costs the loop at most that much less. Validation and garbage
// collection give the same picture of a slow step every so often: they have phases of their own and
// write nothing.
#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "doctor/cite.h"
#include "doctor/compare_stats.h"
#include "doctor/rule.h"
#include "doctor/run_view.h"
#include "probe/trace_format.h"

namespace bedplate::doctor {
namespace {

using probe::Phase;

struct Checkpoints {
  double count = 0;
  double fsync_ns = 0;
  double written = 0;  // by the ranks to storage, whole window
  Nanos longest = 0;
};

Checkpoints look(const RunView& run) {
  Checkpoints all;
  for (const RankView& rank : run.ranks()) {
    const std::string subject = proc(rank.pid);
    const double count =
        run.series().growth(subject, "trace.checkpoints", run.window()).value_or(0);
    all.count = std::max(all.count, count);
    all.fsync_ns += run.series().growth(subject, "trace.fsync_ns", run.window()).value_or(0);
    all.written += run.series().growth(subject, "io.write_bytes", run.window()).value_or(0);
    const auto events = run.data().events.find(rank.pid);
    if (events == run.data().events.end()) continue;
    for (const probe::Event& event : events->second) {
      if (event.kind != static_cast<std::uint16_t>(probe::EventKind::kCheckpoint)) continue;
      all.longest = std::max(all.longest, event.duration);
    }
  }
  return all;
}

struct Spikes {
  double with = 0;  // mean length of steps that hold a checkpoint
  double without = 0;
  double others_waiting = 0;  // of such a step, in collectives, the rank that waits most
};

Spikes spikes(const RunView& run) {
  Spikes out;
  double with_count = 0;
  double without_count = 0;
  std::set<std::int64_t> saving;
  for (const RankView& rank : run.ranks()) {
    for (const StepView& step : rank.steps) {
      const auto duration = static_cast<double>(step.end - step.begin);
      if (step.phases[probe::index(Phase::kCheckpoint)] > 0) {
        saving.insert(step.index);
        out.with += duration;
        with_count += static_cast<double>(step.weight);
      }
    }
  }
  double waiting_of = 0;
  for (const RankView& rank : run.ranks()) {
    for (const StepView& step : rank.steps) {
      const auto duration = static_cast<double>(step.end - step.begin);
      const bool own = step.phases[probe::index(Phase::kCheckpoint)] > 0;
      if (saving.count(step.index) == 0) {
        out.without += duration;
        without_count += static_cast<double>(step.weight);
      } else if (!own) {
        out.others_waiting += static_cast<double>(step.phases[probe::index(Phase::kCommunication)]);
        waiting_of += duration;
      }
    }
  }
  out.with = with_count > 0 ? out.with / with_count : 0;
  out.without = without_count > 0 ? out.without / without_count : 0;
  out.others_waiting = waiting_of > 0 ? out.others_waiting / waiting_of : 0;
  return out;
}

// `lost`: the checkpoint phase of each step.
LostTime lost_to_it(const RunView& run, LostTime lost) {
  for (std::size_t rank = 0; rank < run.ranks().size(); ++rank) {
    const auto& steps = run.ranks()[rank].steps;
    const auto other = [](const StepView& step) {
      return static_cast<double>(step.phases[probe::index(Phase::kOther)]);
    };
    std::vector<double> usual;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (lost.ns[rank][i] <= 0)
        usual.push_back(other(steps[i]) / static_cast<double>(steps[i].weight));
    }
    if (usual.empty()) continue;
    const double without = median_of(std::move(usual));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (lost.ns[rank][i] <= 0) continue;
      lost.ns[rank][i] +=
          std::max(0.0, other(steps[i]) - without * static_cast<double>(steps[i].weight));
    }
  }
  return lost;
}

std::optional<Finding> check(const RunView& run) {
  const LostTime saving = run.phase_time(Phase::kCheckpoint);
  const double saving_share = run.share(saving);
  if (saving_share < run.threshold("checkpoint_stall.share")) return std::nullopt;
  const LostTime lost = lost_to_it(run, saving);
  const double share = run.share(lost);
  const Checkpoints saved = look(run);
  const Spikes step = spikes(run);
  Finding f;
  f.status = Status::kEstablished;
  f.gain_ceiling = share;
  f.when = run.when(lost);
  for (std::size_t i = 0; i < run.ranks().size(); ++i) {
    if (run.share_of(lost, i) < share / 4) continue;
    f.scope.pids.push_back(run.ranks()[i].pid);
    if (run.ranks()[i].rank >= 0) f.scope.ranks.push_back(run.ranks()[i].rank);
  }
  if (f.scope.ranks.size() == run.ranks().size()) f.scope.ranks.clear();
  const auto paths = run.notes("ckpt_path");
  if (!paths.empty()) f.scope.path = paths.back()->value;
  f.title = "the loop stands still while checkpoints are written";
  f.evidence.push_back(cite(
      "hook: torch.save", "{} of the step in checkpoints{}", human_share(saving_share),
      saved.longest > 0 ? fmt::format(", the longest {}", human_duration(saved.longest)) : ""));
  if (step.without > 0) {
    f.evidence.push_back(cite("hook: steps", "a step with a checkpoint takes {}, one without {}",
                              human_duration(static_cast<Nanos>(step.with)),
                              human_duration(static_cast<Nanos>(step.without))));
  }
  double saving_ns = 0;
  for (const auto& rank : saving.ns) {
    for (const double ns : rank) saving_ns += ns;
  }
  const double flushed = saving_ns > 0 ? std::min(1.0, saved.fsync_ns / saving_ns) : 0;
  if (saved.count > 0) {
    f.evidence.push_back(cite("hook: fsync, /proc/PID/io",
                              "{}, {} of their time in fsync; {} went to storage meanwhile",
                              counted(std::round(saved.count), "checkpoint", "checkpoints"),
                              human_share(flushed), human_bytes(saved.written)));
  }
  if (step.others_waiting > 0.05) {
    f.evidence.push_back(cite("hook: collectives",
                              "ranks that do not write wait in collectives {} of such a step",
                              human_share(step.others_waiting)));
  }
  const auto commits = run.series().growth("host", "bpf.journal_commits", run.window());
  const auto commit_ns = run.series().growth("host", "bpf.journal_commit_ns", run.window());
  if (commits && commit_ns && *commits > 0) {
    f.evidence.push_back(cite("bpf: jbd2", "{} of the file system's journal, {} each",
                              counted(*commits, "commit", "commits"),
                              human_duration(static_cast<Nanos>(*commit_ns / *commits))));
  }
  f.verify =
      "strace -f -T -e trace=fsync,fdatasync,rename COMMAND   # a copy of the run: seconds at the "
      "end of each line";
  f.fix = flushed > 0.5
              ? "write checkpoints in the background (torch.distributed.checkpoint.async_save, or "
                "a thread that gets a copy on the "
                "CPU), to local storage first; flush once a checkpoint, not once a file; save less "
                "often"
              : "write checkpoints in the background (torch.distributed.checkpoint.async_save, or "
                "a thread that gets a copy on the "
                "CPU); save less often; let every rank write its own part";
  f.undo = "save in the loop again";
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  const double share = run.share(run.phase_time(Phase::kCheckpoint));
  if (share >= run.threshold("checkpoint_stall.share") / 2) return std::nullopt;
  return share > 0 ? fmt::format("checkpoints take only {} of the step", human_share(share))
                   : std::string("no checkpoint was written during the steps");
}

constexpr std::string_view kNeeds[] = {"hook"};
constexpr std::string_view kLookAlikes[] = {"python_gc", "io_throttle"};
constexpr Threshold kThresholds[] = {
    {"checkpoint_stall.share", 0.05, "share", "of step time: [own] tuned on healthy runs"},
};
constexpr std::string_view kSymptoms[] = {
    "every 100th step is slow",
    "all ranks stop every few minutes",
    "the loop hangs for seconds while files grow",
    "collectives time out around checkpoints",
};

}  // namespace

extern const Rule kCheckpointStall = {
    .id = "checkpoint_stall",
    .title = "the loop stands still while checkpoints are written",
    .layer = Layer::kIo,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "torch.save and torch.distributed.checkpoint.save return when everything is serialised and "
        "handed to the file system, with fsync when "
        "it is on the device. Until then the rank computes nothing, and the others wait for it in "
        "their next collective.",
    .signals =
        "time inside torch.save, torch.distributed.checkpoint and fsync (hook); wait in "
        "collectives of the other ranks; "
        "write_bytes of /proc/PID/io; journal commits (BPF, jbd2)",
    .symptoms = kSymptoms,
    .verify = "strace -f -T -e trace=fsync,fdatasync,rename COMMAND   # a copy of the run",
    .fix =
        "Save in the background (torch.distributed.checkpoint.async_save), to local storage first, "
        "with one flush a checkpoint; save less often.",
    .check = check,
    .rule_out = rule_out,
};

}  // namespace bedplate::doctor
