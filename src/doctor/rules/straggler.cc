// One rank of a job whose ranks meet in every step does more or runs slower; the others wait for it
// in collectives. The late rank is the one that waits least. If the late rank is another one in
// each step, it is not a slow rank but uneven work (sequence lengths); then the report says that in
// place of naming a rank.
//
// Ceiling: in each step the longest own work (compute, optimizer, other) less the median of all
// ranks, as far as others did wait for it in collectives: with the late rank as fast as the middle
// one, that is what the step gets shorter by. What makes a rank late in its input, its checkpoints
// or its garbage collector has rules of its own and is left out here, so that one loss is not
// blamed twice. DDP is not asked for its communication in every short step: steps in which the wait
// of some rank is unknown are taken to be like the others; where the ranks were never asked in the
// same step, their averages are compared.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "doctor/cite.h"
#include "doctor/compare_stats.h"
#include "doctor/cpu_facts.h"
#include "doctor/rule.h"
#include "doctor/verdict.h"

namespace bedplate::doctor {
namespace {

using probe::Phase;

double own_work(const StepView& step) {
  double sum = 0;
  for (const Phase phase : {Phase::kCompute, Phase::kOptimizer, Phase::kOther, Phase::kH2d}) {
    sum += static_cast<double>(step.phases[probe::index(phase)]);
  }
  return sum;
}

struct Skew {
  LostTime lost;
  // By rank, as in ranks(): time lost by its being the last, and steps in which it was the last by
  // more than a twentieth of the step.
  std::vector<double> late;
  std::vector<double> late_steps;
  double steps = 0;           // in which some rank was
  std::vector<double> waits;  // share of step time in collectives
};

// One step of all ranks: where it is in the list of each.
using Joint = std::vector<std::size_t>;

// What one rank did in a step, or on average: work of its own and waiting, in shares of the step.
struct Part {
  double own = 0;
  double wait = 0;
};

// The lower median: of two ranks the faster one, since that is what the slower could be like.
double reference(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2];
}

const StepView& at(const RunView& run, const Joint& joint, std::size_t rank) {
  return run.ranks()[rank].steps[joint[rank]];
}

double waited(const StepView& step) {
  return static_cast<double>(step.phases[probe::index(Phase::kCommunication)]);
}

bool wait_is_known(const StepView& step) { return waited(step) > 0 && !step.usual_communication; }

double length_of(const StepView& step) { return static_cast<double>(step.end - step.begin); }

// Steps that all ranks have and in which none wrote a checkpoint (the others then wait for that).
std::vector<Joint> joint_steps(const RunView& run) {
  std::map<std::int64_t, std::vector<std::pair<std::size_t, std::size_t>>> by_index;
  for (std::size_t rank = 0; rank < run.ranks().size(); ++rank) {
    const auto& steps = run.ranks()[rank].steps;
    for (std::size_t i = 0; i < steps.size(); ++i) by_index[steps[i].index].emplace_back(rank, i);
  }
  std::vector<Joint> out;
  for (const auto& [index, where] : by_index) {
    if (where.size() != run.ranks().size()) continue;
    Joint joint;
    bool saves = false;
    for (const auto& [rank, i] : where) {
      joint.push_back(i);
      saves |= run.ranks()[rank].steps[i].phases[probe::index(Phase::kCheckpoint)] > 0;
    }
    if (!saves) out.push_back(std::move(joint));
  }
  return out;
}

// Who is last, and by how much of the step the others wait for it.
std::pair<std::size_t, double> lateness(const std::vector<Part>& parts) {
  std::vector<double> own;
  double least = parts.front().wait;
  double most = parts.front().wait;
  for (const Part& part : parts) {
    own.push_back(part.own);
    least = std::min(least, part.wait);
    most = std::max(most, part.wait);
  }
  const auto last =
      static_cast<std::size_t>(std::max_element(own.begin(), own.end()) - own.begin());
  return {last, std::max(0.0, std::min(own[last] - reference(own), most - least))};
}

// Averages over the steps in which the wait of each rank is known; over all for a rank that was
// never seen to wait.
std::vector<Part> averages(const RunView& run, const std::vector<Joint>& joint) {
  const auto average = [&](std::size_t rank, bool known_only) -> std::optional<Part> {
    Part sum;
    double total = 0;
    for (const Joint& one : joint) {
      const StepView& step = at(run, one, rank);
      if (known_only && !wait_is_known(step)) continue;
      sum.own += own_work(step);
      sum.wait += waited(step);
      total += length_of(step);
    }
    if (!(total > 0)) return std::nullopt;
    return Part{sum.own / total, sum.wait / total};
  };
  std::vector<Part> out;
  for (std::size_t rank = 0; rank < run.ranks().size(); ++rank) {
    auto part = average(rank, true);
    if (!part) part = average(rank, false);
    out.push_back(part.value_or(Part{}));
  }
  return out;
}

void blame(const RunView& run, const Joint& joint, std::size_t rank, double share, Skew& skew) {
  const StepView& step = at(run, joint, rank);
  skew.lost.ns[rank][joint[rank]] = share * length_of(step);
  skew.late[rank] += share * length_of(step);
  if (share < 0.05) return;
  skew.late_steps[rank] += static_cast<double>(step.weight);
  skew.steps += static_cast<double>(step.weight);
}

Skew look(const RunView& run) {
  const std::size_t ranks = run.ranks().size();
  Skew skew;
  skew.late.resize(ranks);
  skew.late_steps.resize(ranks);
  const LostTime communication = run.phase_time(Phase::kCommunication);
  skew.lost = scaled(communication, 0);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    skew.waits.push_back(run.share_of(communication, rank));

  const std::vector<Joint> joint = joint_steps(run);
  std::vector<Joint> unknown;
  double lost = 0;
  double known = 0;
  for (const Joint& one : joint) {
    std::vector<Part> parts;
    double longest = 0;
    bool all = true;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const StepView& step = at(run, one, rank);
      all &= wait_is_known(step);
      longest = std::max(longest, length_of(step));
      parts.push_back({own_work(step), waited(step)});
    }
    if (!all || !(longest > 0)) {
      unknown.push_back(one);
      continue;
    }
    for (Part& part : parts) part = {part.own / longest, part.wait / longest};
    const auto [rank, share] = lateness(parts);
    known += longest;
    lost += share * longest;
    if (share > 0) blame(run, one, rank, share, skew);
  }
  if (joint.empty() || unknown.empty()) return skew;
  const bool few = (joint.size() - unknown.size()) * 10 < joint.size();
  const auto [last, apart] = lateness(averages(run, joint));
  const auto usual = static_cast<std::size_t>(std::max_element(skew.late.begin(), skew.late.end()) -
                                              skew.late.begin());
  // Where steps were compared, the others were like them; they do not say who was last in those.
  for (const Joint& one : unknown) {
    if (few && apart > 0) blame(run, one, last, apart, skew);
    if (!few && known > 0)
      skew.lost.ns[usual][one[usual]] = lost / known * length_of(at(run, one, usual));
  }
  return skew;
}

// Ranks that wait for a processor are late one after the other, however even their work is: what is
// lost beyond that wait is lost by the work.
double lost_by_work(const RunView& run, double lost_share) {
  return lost_share - run.share(waiting_for_cpu(run));
}

// Processors that a rank ran on and that it waited for.
struct RankUse {
  double ran = 0;
  double delay = 0;

  bool known() const { return ran + delay > 0; }
  // It neither runs nor waits for its turn.
  bool mostly_away() const { return known() && ran + delay < 0.6; }
};

RankUse use_of(const RunView& run, const RankView& rank) {
  const auto share = [&](const char* metric) {
    return run.series().share(proc(rank.pid), metric, run.window()).value_or(0);
  };
  return {share("cpu.run_ns"), share("cpu.run_delay_ns")};
}

std::optional<Finding> check(const RunView& run) {
  if (!run.coupled()) return std::nullopt;
  const Skew skew = look(run);
  Finding f;
  f.gain_ceiling = run.share(skew.lost);
  if (f.gain_ceiling < run.threshold("straggler.lost_share") || !(skew.steps > 0))
    return std::nullopt;
  const auto latest = static_cast<std::size_t>(
      std::max_element(skew.late.begin(), skew.late.end()) - skew.late.begin());
  const double stable = skew.late_steps[latest] / skew.steps;
  const RankView& late = run.ranks()[latest];
  const bool one_rank = stable >= run.threshold("straggler.same_rank_share");
  if (!one_rank && (f.gain_ceiling < run.threshold("straggler.uneven_share") ||
                    lost_by_work(run, f.gain_ceiling) < run.threshold("straggler.lost_share")))
    return std::nullopt;
  f.when = run.when(skew.lost);
  std::vector<double> others;
  for (std::size_t i = 0; i < skew.waits.size(); ++i) {
    if (i != latest) others.push_back(skew.waits[i]);
  }
  if (one_rank) {
    f.status = Status::kEstablished;
    f.title = fmt::format("the other ranks wait for {}", run.label(late.pid));
    if (late.rank >= 0) f.scope.ranks = {late.rank};
    f.scope.pids = {late.pid};
    f.evidence.push_back(
        cite("hook: steps",
             "{} had the longest own work in {} of the {:.0f} steps in which one was late",
             run.label(late.pid), human_share(stable), skew.steps));
    f.evidence.push_back(cite("hook: collectives",
                              "it waits in collectives {} of the step, the others {}",
                              human_share(skew.waits[latest]), human_share(median_of(others))));
    const RankUse use = use_of(run, late);
    if (use.known()) {
      f.evidence.push_back(cite("/proc/PID/schedstat",
                                "it used {:.1f} processors and waited for them {} of the time{}",
                                use.ran, human_share(std::min(1.0, use.delay)),
                                use.mostly_away() ? ": else it slept or was blocked" : ""));
    }
    f.fix =
        use.mostly_away()
            ? fmt::format(
                  "find what that rank waits for, as it mostly does not run (a sleep, a "
                  "lock, a file, a socket): py-spy dump --pid {} while it runs; then what "
                  "it does besides (logging, evaluation, saving)",
                  late.pid)
            : "look at what that rank does besides: its own CPUs (affinity, neighbours), its GPU's "
              "clocks, work that only it has (logging, evaluation, saving); "
              "move it to another machine and see if the delay moves along";
    f.verify = fmt::format(
        "top -b -n 1 -H -p {}   # while it runs, beside another rank: what does it do more?",
        late.pid);
    f.undo = "put the rank back";
  } else {
    f.status = Status::kSupported;
    f.title = "the ranks' work is uneven: another one is late in each step";
    f.evidence.push_back(
        cite("hook: steps",
             "no rank is the last in more than {} of the {:.0f} steps in which one was late",
             human_share(stable), skew.steps));
    f.evidence.push_back(cite("hook: collectives", "ranks wait in collectives {} of the step",
                              human_share(median_of(skew.waits))));
    f.fix =
        "give every rank the same amount of work in each step: batches by number of tokens, "
        "samples sorted into buckets by length, packing";
    f.verify =
        "grep -n 'in .*loader' train.py   # log the batch's size there, beside the step time: the "
        "late rank has most";
    f.undo = "use the old sampler";
  }
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  if (run.ranks().size() < 2) return "there is one rank";
  if (!run.coupled()) return "the ranks do not wait for one another";
  const double share = run.share(look(run).lost);
  if (share >= run.threshold("straggler.lost_share") / 2) return std::nullopt;
  return fmt::format("the slowest rank costs {} of the step", human_share(share));
}

constexpr std::string_view kNeeds[] = {"hook"};
constexpr std::string_view kLookAlikes[] = {"input_workers", "checkpoint_stall", "python_gc"};
constexpr Threshold kThresholds[] = {
    {"straggler.lost_share", 0.10, "share", "of step time: [own] tuned on healthy runs"},
    {"straggler.uneven_share", 0.15, "share",
     "of step time when another rank is late each time, as jitter makes it: [own] two ranks on two "
     "processors lose up to 10 % by jitter"},
    {"straggler.same_rank_share", 0.75, "share",
     "of late steps by one rank that make it the straggler: [own] tuned on uneven data"},
};
constexpr std::string_view kSymptoms[] = {
    "all ranks but one wait in all-reduce",
    "adding ranks makes each step slower",
    "GPU at 100 % on all ranks but the step is slow",
    "collectives time out",
};

}  // namespace

extern const Rule kStraggler = {
    .id = "straggler",
    .title = "the other ranks wait for one",
    .layer = Layer::kCoordination,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "Synchronous training goes at the pace of its slowest rank. The others finish their part "
        "and wait in the next collective; the late rank "
        "is the one that waits least.",
    .signals =
        "own work and time in collectives of every rank and step (hook, DDP's communication "
        "included); processor time and delay of the late rank",
    .symptoms = kSymptoms,
    .verify =
        "top -b -n 1 -H -p PID   # of the late rank, beside another; then swap their machines",
    .fix =
        "Mend what slows that rank; if the late rank changes from step to step, even out the work.",
    .check = check,
    .rule_out = rule_out,
};

}  // namespace bedplate::doctor
