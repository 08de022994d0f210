#include "doctor/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "doctor/cite.h"
#include "probe/run_file.h"
#include "probe/trace_format.h"

namespace bedplate::doctor {
namespace {

// A duration and how many steps had it.
using Weighted = std::pair<double, double>;

double quantile(std::vector<Weighted>& values, double q) {
  double total = 0;
  for (const auto& [value, weight] : values) total += weight;
  if (!(total > 0)) return 0;
  std::sort(values.begin(), values.end());
  double below = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    below += values[i].second;
    // The middle of an even number of steps lies between two of them.
    if (below == total * q && i + 1 < values.size())
      return (values[i].first + values[i + 1].first) / 2;
    if (below > total * q) return values[i].first;
  }
  return values.back().first;
}

RankSteps summary_of(const RankView& rank) {
  RankSteps out;
  out.rank = rank.rank;
  out.pid = rank.pid;
  std::vector<Weighted> typical;
  std::vector<Weighted> longest;
  double total = 0;
  std::array<double, probe::kPhaseCount> phases{};
  for (const StepView& step : rank.steps) {
    const auto weight = static_cast<double>(step.weight);
    const auto duration = static_cast<double>(step.end - step.begin);
    out.count += step.weight;
    total += duration;
    typical.emplace_back(duration / weight, weight);
    // Of merged steps only the longest is known by itself.
    if (step.weight > 1) {
      const double others =
          std::max(0.0, duration - static_cast<double>(step.longest)) / (weight - 1);
      longest.emplace_back(others, weight - 1);
      longest.emplace_back(static_cast<double>(step.longest), 1);
    } else {
      longest.emplace_back(duration, 1);
    }
    for (std::size_t i = 0; i < phases.size(); ++i)
      phases[i] += static_cast<double>(step.phases[i]);
  }
  out.median_ms = quantile(typical, 0.5) / 1e6;
  out.p99_ms = quantile(longest, 0.99) / 1e6;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    out.phases[std::string(probe::kPhaseNames[i])] = total > 0 ? phases[i] / total : 0;
  }
  return out;
}

// What the threads of one process did, as their events say.
struct ThreadWork {
  std::map<std::uint32_t, std::int64_t> steps;  // by thread
  std::map<std::uint32_t, Nanos> waits;         // for batches to train with
};

ThreadWork thread_work(const std::vector<probe::Event>& events) {
  constexpr std::uint64_t kNoBatch = 7;  // evaluation, exhausted, starting
  const auto is = [](const probe::Event& event, probe::EventKind kind) {
    return event.kind == static_cast<std::uint16_t>(kind);
  };
  const bool by_user = std::any_of(events.begin(), events.end(), [&](const probe::Event& event) {
    return is(event, probe::EventKind::kUserStep);
  });
  const auto boundary = by_user ? probe::EventKind::kUserStep : probe::EventKind::kStep;
  ThreadWork work;
  for (const probe::Event& event : events) {
    if (is(event, boundary)) ++work.steps[event.tid];
    if (is(event, probe::EventKind::kInputWait) && (event.arg & kNoBatch) == 0)
      work.waits[event.tid] += std::clamp<Nanos>(event.duration, 0, 3600 * kSecond);
  }
  return work;
}

// Empty when the phases are what they seem.
std::string about_threads(const RunView& run, const RankView& rank, const ThreadWork& work) {
  constexpr std::int64_t kFewSteps = 10;
  std::int64_t steps = 0;
  std::pair<std::uint32_t, std::int64_t> first{0, 0};  // the thread that steps most
  for (const auto& [tid, count] : work.steps) {
    steps += count;
    if (count > first.second) first = {tid, count};
  }
  if (steps < kFewSteps) return {};
  const auto stepping = std::count_if(work.steps.begin(), work.steps.end(),
                                      [&](const auto& one) { return one.second * 10 >= steps; });
  if (stepping > 1) {
    return fmt::format(
        "{}: {} threads take steps; the phases above are those of the thread that ended each step",
        run.label(rank.pid), stepping);
  }
  Nanos inside = 0;
  Nanos elsewhere = 0;
  for (const auto& [tid, time] : work.waits) (tid == first.first ? inside : elsewhere) += time;
  if (inside >= elsewhere) return {};
  return fmt::format(
      "{}: another thread than the one that steps asks the loader for batches; what the steps wait "
      "for them stands under compute and other, not under input wait",
      run.label(rank.pid));
}

}  // namespace

StepSummary step_summary(const RunView& run) {
  StepSummary out;
  if (!run.has_steps()) return out;
  double total = 0;
  const RankSteps* most = nullptr;
  for (const RankView& rank : run.ranks()) out.ranks.push_back(summary_of(rank));
  for (std::size_t i = 0; i < out.ranks.size(); ++i) {
    const RankSteps& rank = out.ranks[i];
    double duration = 0;
    for (const StepView& step : run.ranks()[i].steps)
      duration += static_cast<double>(step.end - step.begin);
    total += duration;
    for (const auto& [name, share] : rank.phases) out.phases[name] += share * duration;
    if (most == nullptr || rank.count > most->count) most = &rank;
  }
  for (auto& [name, share] : out.phases) share = total > 0 ? share / total : 0;
  if (most != nullptr) {
    out.count = most->count;
    out.median_ms = most->median_ms;
    out.p99_ms = most->p99_ms;
  }
  // The step that a job of several ranks feels is its slowest rank's.
  for (const RankSteps& rank : out.ranks) {
    out.median_ms = std::max(out.median_ms, rank.median_ms);
    out.p99_ms = std::max(out.p99_ms, rank.p99_ms);
  }
  return out;
}

std::vector<probe::ResourceUse> main_resources(const RunView& run) {
  std::vector<probe::ResourceUse> out;
  const auto add = [&](int pid) {
    for (const auto& use : run.data().resources) {
      if (use.pid == pid) {
        out.push_back(use);
        return;
      }
    }
  };
  for (const RankView& rank : run.ranks()) {
    if (run.has_steps() || (rank.process != nullptr && rank.process->role == "rank")) add(rank.pid);
  }
  if (out.empty()) {
    if (const auto root = run.meta_int(probe::run_meta::kRootPid)) add(static_cast<int>(*root));
  }
  return out;
}

std::vector<std::string> resource_remarks(const RunView& run,
                                          const std::vector<probe::ResourceUse>& resources) {
  std::vector<std::string> out;
  if (resources.empty()) return out;
  probe::ResourceUse all;
  const probe::ResourceUse* largest = &resources.front();
  for (const auto& use : resources) {
    if (use.peak_rss_bytes > largest->peak_rss_bytes) largest = &use;
    all.major_faults += std::max<std::int64_t>(0, use.major_faults);
    all.voluntary_switches += std::max<std::int64_t>(0, use.voluntary_switches);
    all.involuntary_switches += std::max<std::int64_t>(0, use.involuntary_switches);
    all.read_bytes += std::max<std::int64_t>(0, use.read_bytes);
    all.user += std::max<Nanos>(0, use.user);
    all.system += std::max<Nanos>(0, use.system);
  }
  const double run_seconds = std::max(1e-3, seconds(length(run.whole())));
  const double steps = run.steps_per_rank() * static_cast<double>(run.ranks().size());

  std::string memory = fmt::format("Maximum resident set size: {} at most ({})",
                                   human_bytes(static_cast<double>(largest->peak_rss_bytes)),
                                   run.label(largest->pid));
  const auto limit = run.series().last("cgroup/memory", "memory.limit_bytes", run.whole());
  const auto total = run.series().last("host", "mem.total_bytes", run.whole());
  const double room = limit && *limit > 0 ? *limit : total.value_or(0);
  if (room > 0) {
    memory += fmt::format(
        ", {} of {} ({})", human_share(static_cast<double>(largest->peak_rss_bytes) / room),
        human_bytes(room), limit && *limit > 0 ? "its group's limit" : "the machine's memory");
  }
  out.push_back(std::move(memory));

  // Loading torch from a cold disk alone takes some hundred.
  const double ranks = std::max<double>(1, static_cast<double>(run.ranks().size()));
  const bool thrashing = static_cast<double>(all.major_faults) / run_seconds >= 20 &&
                         static_cast<double>(all.major_faults) / ranks >= 1000;
  out.push_back(fmt::format("Major (requiring I/O) page faults: {}: {}",
                            human_count(static_cast<double>(all.major_faults)),
                            thrashing ? "mapped pages had to be read from storage again and again"
                            : all.major_faults > 0
                                ? "the usual loading of programs and libraries"
                                : "nothing that was mapped had to be read from storage"));

  std::string voluntary = fmt::format("Voluntary context switches: {}",
                                      human_count(static_cast<double>(all.voluntary_switches)));
  const double waits = static_cast<double>(all.voluntary_switches) / std::max(1.0, steps);
  if (steps >= 1)
    voluntary += waits < 1 ? " (less than one a step)"
                           : fmt::format(" ({} a step)", human_count(std::round(waits)));
  voluntary += waits < 1 ? ": the processes hardly ever had to wait"
                         : ": the processes had to wait for something (input, locks, other ranks)";
  out.push_back(std::move(voluntary));

  const double cpu_seconds = std::max(1e-3, seconds(all.user + all.system));
  const double preempted = static_cast<double>(all.involuntary_switches) / cpu_seconds;
  out.push_back(fmt::format("Involuntary context switches: {}: {}",
                            human_count(static_cast<double>(all.involuntary_switches)),
                            preempted >= 50 ? "the processor was often taken away while it was "
                                              "wanted: more runnable threads than processors"
                                            : "the processor was seldom taken away"));

  const double read_rate = static_cast<double>(all.read_bytes) / run_seconds;
  out.push_back(
      fmt::format("File system inputs: {}: {}", human_bytes(static_cast<double>(all.read_bytes)),
                  all.read_bytes == 0 ? "what was read came from the page cache"
                  : read_rate < static_cast<double>(kMiB)
                      ? "hardly anything had to come from storage"
                      : fmt::format("{} a second came from storage", human_bytes(read_rate))));
  return out;
}

std::vector<std::string> thread_remarks(const RunView& run) {
  std::vector<std::string> remarks;
  for (const RankView& rank : run.ranks()) {
    const auto events = run.data().events.find(rank.pid);
    if (events == run.data().events.end()) continue;
    if (auto remark = about_threads(run, rank, thread_work(events->second)); !remark.empty())
      remarks.push_back(std::move(remark));
  }
  return remarks;
}

std::vector<std::string> permission_remarks(const RunView& run) {
  std::string names;
  for (const auto& signal : run.data().signals) {
    if (signal.seen || !signal.why.starts_with("not permitted")) continue;
    if (!names.empty()) names += ", ";
    names += signal.name;
  }
  if (names.empty()) return {};
  return {fmt::format("as root the report would also have: {}", names)};
}

}  // namespace bedplate::doctor
