#include "doctor/run_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "doctor/compare_stats.h"
#include "doctor/rule.h"
#include "doctor/verdict.h"
#include "probe/run_file.h"

namespace bedplate::doctor {
namespace {

using probe::Phase;

Nanos base_tick(const probe::RunData& run) {
  const auto it = run.meta.find(std::string(probe::run_meta::kSampleHz));
  const auto hz = it == run.meta.end() ? std::nullopt : to_double(it->second);
  if (!hz || !(*hz > 0.001) || !(*hz < 1000)) return kSecond / 2;
  return static_cast<Nanos>(1e9 / *hz);
}

// The recorded length; for a run that was cut short, the last thing that is known of it.
Window whole_run(const probe::RunData& run) {
  const auto it = run.meta.find(std::string(probe::run_meta::kDurationNs));
  if (it != run.meta.end()) {
    if (const auto duration = to_int(it->second); duration && *duration > 0) return {0, *duration};
  }
  Nanos last = 0;
  for (const auto& series : run.series) {
    if (!series.samples.empty()) last = std::max(last, series.samples.back().t);
  }
  for (const auto& step : run.steps)
    last = std::max(last, step.start + std::max<Nanos>(0, step.duration));
  return {0, last};
}

constexpr std::size_t kMostWindows = 4000;     // a day's run is looked at in windows of 20 s
constexpr std::size_t kMostMainProcesses = 8;  // of a job without steps
constexpr std::size_t kMostIntervals = 400;    // a picture is not finer

}  // namespace

RunView::RunView(const probe::RunData& run, const Thresholds& overrides)
    : run_(run),
      tick_(base_tick(run)),
      whole_(whole_run(run)),
      series_(run, whole_.end),
      window_(whole_) {
  for (const Rule* rule : all_rules()) {
    for (const Threshold& t : rule->thresholds) thresholds_.emplace(t.key, t.value);
  }
  for (const Threshold& t : verdict_thresholds()) thresholds_.emplace(t.key, t.value);
  for (const auto& [key, value] : overrides) thresholds_[key] = value;
  for (const auto& signal : run.signals) signals_[signal.name] = &signal;
  for (const auto& process : run.processes) {
    const probe::Process*& kept = processes_[process.pid];
    if (kept == nullptr || process.start >= kept->start) kept = &process;
  }
  for (const auto& note : run.notes)
    notes_.emplace(std::pair<std::string_view, int>(note.key, note.pid), &note);
  find_steps();
  if (!has_steps_) {
    cut_grid();
    find_main_processes();
  }
  find_workers();
  if (has_steps_) cut_grid();
}

double RunView::threshold(std::string_view key) const {
  const auto it = thresholds_.find(key);
  BEDPLATE_CHECK(it != thresholds_.end());
  return it->second;
}

bool RunView::seen(std::string_view name) const {
  for (const std::string_view one : split(name, '|')) {
    if (one == "steps" && has_steps_) return true;
    const auto it = signals_.find(one);
    if (it != signals_.end() && it->second->seen) return true;
  }
  return false;
}

std::string RunView::why_not_seen(std::string_view name) const {
  std::string out;
  for (const std::string_view one : split(name, '|')) {
    const auto it = signals_.find(one);
    const bool known = it != signals_.end() && !it->second->why.empty();
    if (!out.empty()) out += "; ";
    if (one == "steps") {
      out += "steps: none were seen";
      continue;
    }
    out += fmt::format("{}: {}", one, known ? it->second->why : "not recorded in this run");
  }
  return out;
}

const probe::Process* RunView::process(int pid) const {
  const auto it = processes_.find(pid);
  return it == processes_.end() ? nullptr : it->second;
}

std::string RunView::label(int pid) const {
  for (const RankView& rank : ranks_) {
    if (rank.pid == pid && rank.rank >= 0) return fmt::format("rank {} (pid {})", rank.rank, pid);
  }
  const probe::Process* known = process(pid);
  if (known == nullptr || known->comm.empty()) return fmt::format("pid {}", pid);
  if (known->rank >= 0 && known->role == "rank")
    return fmt::format("rank {} (pid {})", known->rank, pid);
  return fmt::format("pid {} ({})", pid, known->comm);
}

std::vector<std::string_view> RunView::notes(std::string_view key, int pid) const {
  std::vector<std::string_view> out;
  const auto [first, last] = notes_.equal_range({key, pid});
  for (auto it = first; it != last; ++it) out.push_back(it->second->value);
  return out;
}

std::vector<const probe::Note*> RunView::notes(std::string_view key) const {
  std::vector<const probe::Note*> out;
  for (auto it = notes_.lower_bound({key, std::numeric_limits<int>::min()});
       it != notes_.end() && it->first.first == key; ++it) {
    out.push_back(it->second);
  }
  return out;
}

std::optional<std::int64_t> RunView::meta_int(std::string_view key) const {
  const auto it = run_.meta.find(std::string(key));
  return it == run_.meta.end() ? std::nullopt : to_int(it->second);
}

const RankView* RunView::rank_of(int pid) const {
  for (const RankView& rank : ranks_) {
    if (rank.pid == pid || std::binary_search(rank.workers.begin(), rank.workers.end(), pid))
      return &rank;
  }
  return nullptr;
}

std::vector<int> RunView::job_pids() const {
  std::set<int> pids;
  for (const RankView& rank : ranks_) {
    pids.insert(rank.pid);
    pids.insert(rank.workers.begin(), rank.workers.end());
  }
  return {pids.begin(), pids.end()};
}

// --- steps
// ----------------------------------------------------------------------------------------------------------------

void RunView::find_steps() {
  std::map<int, RankView> by_pid;
  std::map<int, std::int64_t> rows;
  std::set<int> warmed_up;
  for (const probe::Step& step : run_.steps) {
    if (step.duration > 0 && step.weight > 0 && !step.evaluation) ++rows[step.pid];
  }
  for (const probe::Step& step : run_.steps) {
    if (step.duration <= 0 || step.weight <= 0 || step.evaluation) continue;
    RankView& rank = by_pid[step.pid];
    rank.pid = step.pid;
    if (step.rank >= 0) rank.rank = step.rank;
    // The first step is warm-up: libraries load, caches and thread pools are made. A rank with next
    // to nothing keeps it.
    if (step.weight == 1 && rows[step.pid] >= 4 && warmed_up.insert(step.pid).second) continue;
    warmed_up.insert(step.pid);
    probe::PhaseTimes phases = step.phases;
    for (Nanos& t : phases) t = std::clamp<Nanos>(t, 0, step.duration);
    rank.steps.push_back({step.index, step.start, step.start + step.duration, step.weight,
                          std::max(step.longest, step.duration / step.weight), phases});
  }
  Nanos communication = 0;
  for (auto& [pid, rank] : by_pid) {
    if (rank.steps.empty()) continue;
    std::sort(rank.steps.begin(), rank.steps.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    fill_in_communication(rank);
    for (const StepView& step : rank.steps)
      communication += step.phases[probe::index(Phase::kCommunication)];
    rank.process = process(pid);
    if (rank.rank < 0 && rank.process != nullptr) rank.rank = rank.process->rank;
    ranks_.push_back(std::move(rank));
  }
  std::sort(ranks_.begin(), ranks_.end(), [](const RankView& a, const RankView& b) {
    return std::pair(a.rank, a.pid) < std::pair(b.rank, b.pid);
  });
  has_steps_ = !ranks_.empty();
  coupled_ = ranks_.size() > 1 && communication > 0;
  if (!has_steps_) return;
  window_ = {ranks_.front().steps.front().begin, 0};
  for (const RankView& rank : ranks_) {
    window_.begin = std::min(window_.begin, rank.steps.front().begin);
    for (const StepView& step : rank.steps) window_.end = std::max(window_.end, step.end);
  }
}

// DDP's own all-reduce is measured in some of the short steps only, all others show it as compute.
void RunView::fill_in_communication(RankView& rank) const {
  if (notes("ddp_asked", rank.pid).empty()) return;
  std::vector<double> measured;
  for (const StepView& step : rank.steps) {
    const Nanos time = step.phases[probe::index(Phase::kCommunication)];
    if (time > 0) measured.push_back(static_cast<double>(time));
  }
  if (measured.empty()) return;
  const auto usual = static_cast<Nanos>(median_of(std::move(measured)));
  for (StepView& step : rank.steps) {
    Nanos& communication = step.phases[probe::index(Phase::kCommunication)];
    Nanos& compute = step.phases[probe::index(Phase::kCompute)];
    if (communication > 0 || step.weight > 1) continue;
    communication = std::min(usual, compute);
    compute -= communication;
    step.usual_communication = true;
  }
}

void RunView::cut_grid() {
  const Nanos total = length(window_);
  if (total == 0) return;
  const auto wanted = std::clamp<std::size_t>(
      static_cast<std::size_t>(total / std::max<Nanos>(1, tick_)), 1, kMostWindows);
  for (std::size_t i = 0; i < wanted; ++i) {
    const auto edge = [&](std::size_t n) {
      return window_.begin +
             static_cast<Nanos>(static_cast<double>(total) * static_cast<double>(n) /
                                static_cast<double>(wanted));
    };
    grid_.push_back({edge(i), i + 1 == wanted ? window_.end : edge(i + 1)});
  }
}

// A job without steps: its ranks if it has some, else those of its processes that use at least a
// tenth of its CPU time, else its first process. Each sampling period stands for a step; what the
// trace counted meanwhile gives the phases.
void RunView::find_main_processes() {
  std::vector<std::pair<double, const probe::Process*>> by_cpu;
  double total = 0;
  std::vector<const probe::Process*> chosen;
  for (const auto& [pid, process] : processes_) {
    if (process->role == "rank") chosen.push_back(process);
    const double cpu = series_.growth(proc(pid), "cpu.user_ns", whole_).value_or(0) +
                       series_.growth(proc(pid), "cpu.system_ns", whole_).value_or(0);
    total += cpu;
    by_cpu.emplace_back(cpu, process);
  }
  if (chosen.empty() && total > 0) {
    std::stable_sort(by_cpu.begin(), by_cpu.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [cpu, process] : by_cpu) {
      if (cpu >= total / 10 && chosen.size() < kMostMainProcesses) chosen.push_back(process);
    }
  }
  if (chosen.empty()) {
    const auto root = meta_int(probe::run_meta::kRootPid);
    if (root && process(static_cast<int>(*root)) != nullptr)
      chosen.push_back(process(static_cast<int>(*root)));
  }
  constexpr std::pair<Phase, std::string_view> kCounted[] = {
      {Phase::kInputWait, "trace.input_wait_ns"},
      {Phase::kH2d, "trace.h2d_ns"},
      {Phase::kCommunication, "trace.collective_ns"},
      {Phase::kCheckpoint, "trace.checkpoint_ns"},
      {Phase::kGc, "trace.gc_ns"}};
  for (const probe::Process* process : chosen) {
    RankView rank{process->rank, process->pid, process, {}, {}};
    const Window alive = {process->start, process->end.value_or(whole_.end)};
    for (const Window slice : grid_) {
      const Window w = overlap(slice, alive);
      if (length(w) == 0) continue;
      StepView step{static_cast<std::int64_t>(rank.steps.size()), w.begin, w.end, 1, length(w), {}};
      Nanos left = length(w);
      for (const auto& [phase, metric] : kCounted) {
        const auto grown =
            static_cast<Nanos>(series_.growth(proc(process->pid), metric, w).value_or(0));
        step.phases[probe::index(phase)] = std::min(left, grown);
        left -= step.phases[probe::index(phase)];
      }
      step.phases[probe::index(Phase::kOther)] = left;
      rank.steps.push_back(step);
    }
    if (!rank.steps.empty()) ranks_.push_back(std::move(rank));
  }
  std::sort(ranks_.begin(), ranks_.end(), [](const RankView& a, const RankView& b) {
    return std::pair(a.rank, a.pid) < std::pair(b.rank, b.pid);
  });
}

bool RunView::is_below(const probe::Process& process, int ancestor) const {
  const probe::Process* at = &process;
  for (int depth = 0; at != nullptr && depth < 64; ++depth) {
    if (at->ppid == ancestor) return true;
    at = at->ppid == at->pid ? nullptr : this->process(at->ppid);
  }
  return false;
}

void RunView::find_workers() {
  for (RankView& rank : ranks_) {
    for (const auto& [pid, process] : processes_) {
      if (process->role == "worker" && pid != rank.pid && is_below(*process, rank.pid))
        rank.workers.push_back(pid);
    }
  }
}

double RunView::mean_step_ns() const {
  double total = 0;
  double count = 0;
  for (const RankView& rank : ranks_) {
    for (const StepView& step : rank.steps) {
      total += static_cast<double>(step.end - step.begin);
      count += static_cast<double>(step.weight);
    }
  }
  return has_steps_ && count > 0 ? total / count : 0;
}

double RunView::steps_per_rank() const {
  double count = 0;
  for (const RankView& rank : ranks_) {
    for (const StepView& step : rank.steps) count += static_cast<double>(step.weight);
  }
  return has_steps_ ? count / static_cast<double>(ranks_.size()) : 0;
}

// --- lost time
// ------------------------------------------------------------------------------------------------------------

LostTime RunView::phase_time(Phase phase) const {
  LostTime out;
  for (const RankView& rank : ranks_) {
    auto& ns = out.ns.emplace_back();
    for (const StepView& step : rank.steps)
      ns.push_back(static_cast<double>(step.phases[probe::index(phase)]));
  }
  return out;
}

LostTime RunView::during(const Timeline& timeline) const {
  return during([&](const RankView&) { return timeline; });
}

LostTime RunView::during(const std::function<Timeline(const RankView&)>& timeline) const {
  LostTime out;
  for (const RankView& rank : ranks_) {
    const TimelineIntegral held(timeline(rank));
    auto& ns = out.ns.emplace_back();
    for (const StepView& step : rank.steps) {
      ns.push_back(
          std::min(held.over(step.begin, step.end), static_cast<double>(step.end - step.begin)));
    }
  }
  return out;
}

LostTime RunView::scaled(const LostTime& lost, const Timeline& timeline) const {
  return scaled(lost, [&](const RankView&) { return timeline; });
}

LostTime RunView::scaled(const LostTime& lost,
                         const std::function<Timeline(const RankView&)>& timeline) const {
  LostTime out = during(timeline);
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (std::size_t step = 0; step < ranks_[rank].steps.size(); ++step) {
      const auto& at = ranks_[rank].steps[step];
      const auto duration = static_cast<double>(at.end - at.begin);
      double& value = out.ns[rank][step];
      value = duration > 0 ? value / duration * lost.ns[rank][step] : 0;
    }
  }
  return out;
}

LostTime RunView::either(const LostTime& a, const LostTime& b) const {
  LostTime out = a;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (std::size_t step = 0; step < ranks_[rank].steps.size(); ++step) {
      const auto& at = ranks_[rank].steps[step];
      out.ns[rank][step] =
          std::min(static_cast<double>(at.end - at.begin), a.ns[rank][step] + b.ns[rank][step]);
    }
  }
  return out;
}

double RunView::share_of(const LostTime& lost, std::size_t rank) const {
  if (rank >= ranks_.size()) return 0;
  double sum = 0;
  double total = 0;
  for (std::size_t step = 0; step < ranks_[rank].steps.size(); ++step) {
    sum += lost.ns[rank][step];
    total += static_cast<double>(ranks_[rank].steps[step].end - ranks_[rank].steps[step].begin);
  }
  return total > 0 ? std::clamp(sum / total, 0.0, 1.0) : 0;
}

double RunView::share(const LostTime& lost) const {
  if (ranks_.empty()) return 0;
  if (!coupled_) {
    double sum = 0;
    double total = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (std::size_t step = 0; step < ranks_[rank].steps.size(); ++step) {
        sum += lost.ns[rank][step];
        total += static_cast<double>(ranks_[rank].steps[step].end - ranks_[rank].steps[step].begin);
      }
    }
    return total > 0 ? std::clamp(sum / total, 0.0, 1.0) : 0;
  }
  // Ranks that meet in every step: the step takes as long as the slowest one, so the losses of one
  // step do not average out over the ranks, the largest counts. Only steps that all ranks recorded
  // can be compared.
  struct Joint {
    std::size_t ranks = 0;
    double lost = 0;
    double duration = 0;
  };
  std::map<std::int64_t, Joint> joint;
  double alone = 0;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    alone = std::max(alone, share_of(lost, rank));
    for (std::size_t step = 0; step < ranks_[rank].steps.size(); ++step) {
      const auto& at = ranks_[rank].steps[step];
      Joint& j = joint[at.index];
      ++j.ranks;
      j.lost = std::max(j.lost, lost.ns[rank][step]);
      j.duration = std::max(j.duration, static_cast<double>(at.end - at.begin));
    }
  }
  double sum = 0;
  double total = 0;
  std::size_t complete = 0;
  for (const auto& [index, j] : joint) {
    if (j.ranks != ranks_.size()) continue;
    ++complete;
    sum += j.lost;
    total += j.duration;
  }
  if (complete * 2 < joint.size() || !(total > 0)) return alone;
  return std::clamp(sum / total, 0.0, 1.0);
}

std::vector<Interval> RunView::when(const LostTime& lost) const {
  std::vector<Interval> parts;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (std::size_t step = 0; step < ranks_[rank].steps.size(); ++step) {
      const auto& at = ranks_[rank].steps[step];
      if (lost.ns[rank][step] >= static_cast<double>(at.end - at.begin) / 10 && at.end > at.begin) {
        parts.push_back({at.begin, at.end});
      }
    }
  }
  std::sort(parts.begin(), parts.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  // Gaps that a picture could not show are closed, the wider the more intervals there are.
  for (Nanos gap = std::max<Nanos>(1, length(window_) / 10'000);; gap *= 2) {
    std::vector<Interval> joined;
    for (const Interval& part : parts) {
      if (!joined.empty() && part.begin <= joined.back().end + gap) {
        joined.back().end = std::max(joined.back().end, part.end);
      } else {
        joined.push_back(part);
      }
    }
    if (joined.size() <= kMostIntervals) return joined;
    parts = std::move(joined);
  }
}

Timeline RunView::timeline(const std::function<std::optional<double>(Window)>& share) const {
  Timeline out;
  for (const Window& w : grid_) {
    const auto value = share(w);
    if (value && std::isfinite(*value) && *value > 0)
      out.push_back({w.begin, w.end, std::min(*value, 1.0)});
  }
  return out;
}

}  // namespace bedplate::doctor
