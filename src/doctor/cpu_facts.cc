#include "doctor/cpu_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>

#include "base/text.h"

namespace bedplate::doctor {
namespace {

// Of a processor, run or waited for: a compute thread wants most of one, those of communication
// and input some per cent.
constexpr double kBusyThread = 0.25;

std::optional<double> sum_of(const RunView& run, std::string_view subject,
                             std::initializer_list<std::string_view> metrics, Window w) {
  std::optional<double> sum;
  for (const std::string_view metric : metrics) {
    if (const auto value = run.series().share(subject, metric, w)) sum = sum.value_or(0) + *value;
  }
  return sum;
}

// All processors' time during the window, in processors.
std::optional<double> busy_cpus(const RunView& run, Window w) {
  return sum_of(run, "host",
                {"cpu.user_ns", "cpu.nice_ns", "cpu.system_ns", "cpu.irq_ns", "cpu.softirq_ns"}, w);
}

std::optional<double> throttled_at(const RunView& run, Window w) {
  const auto throttled = run.series().share("cgroup/cpu", "cpu.throttled_ns", w);
  if (!throttled) return std::nullopt;
  double share = std::min(1.0, *throttled);
  const auto used = job_cpus(run, w);
  const auto online = host_cpus(run);
  if (used && online && *online > 0) share = std::min(share, std::max(0.0, 1 - *used / *online));
  return share;
}

// Processors that a rank's threads may use: its own mask, else the machine.
double processors_of(const RunView& run, int pid) {
  const auto notes = run.notes("affinity", pid);
  const auto mask = notes.empty() ? std::nullopt : parse_cpu_list(notes.back());
  if (mask && !mask->empty()) return static_cast<double>(mask->size());
  return host_cpus(run).value_or(1e9);
}

// The share of the window in which some thread of the rank was runnable but not running. Of threads
// that fit on their processors the delays come from others and are taken as independent; threads
// that do not fit delay one another: at any time one of them waits, and the delays add up.
std::optional<double> rank_delay(const RunView& run, const RankView& rank,
                                 const std::vector<std::string>& threads, Window w) {
  double none_waits = 1;
  double sum = 0;
  double wanted = 0;
  bool any = false;
  for (const std::string& thread : threads) {
    const auto delay = run.series().share_inside(thread, "cpu.run_delay_ns", w, run.window());
    if (!delay) continue;
    any = true;
    const auto ran = run.series().share_inside(thread, "cpu.run_ns", w, run.window());
    none_waits *= 1 - std::min(1.0, *delay);
    sum += *delay;
    wanted += *delay + ran.value_or(0);
  }
  if (any) return wanted > 1.2 * processors_of(run, rank.pid) ? std::min(1.0, sum) : 1 - none_waits;
  const auto all = run.series().share_inside(proc(rank.pid), "cpu.run_delay_ns", w, run.window());
  if (!all) return std::nullopt;
  return std::min(1.0, *all);
}

std::vector<std::string> threads_of(const RunView& run, int pid) {
  std::vector<std::string> out;
  for (const std::string_view subject : run.series().subjects(fmt::format("thread/{}/", pid)))
    out.emplace_back(subject);
  return out;
}

// How torch's own threads that are no part of a compute pool call themselves: communication,
// stores, the autograd engine. OpenMP's threads keep the process's name.
constexpr std::string_view kHelperNames[] = {"pt_", "gloo", "nccl", "NCCL", "cuda", "tensorpipe"};

// The subjects of the threads of a process that named themselves so.
std::set<std::string> helper_threads(const RunView& run, int pid) {
  std::set<std::string> out;
  for (const std::string_view note : run.notes("thread_name", pid)) {
    const auto space = note.find(' ');
    if (space == std::string_view::npos) continue;
    const std::string_view name = note.substr(space + 1);
    const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
    if (std::ranges::any_of(kHelperNames, begins))
      out.insert(fmt::format("thread/{}/{}", pid, note.substr(0, space)));
  }
  return out;
}

}  // namespace

std::optional<double> host_cpus(const RunView& run) {
  const auto online = run.series().highest("host", "cpu.online", run.whole());
  if (online && *online >= 1) return online;
  const auto each = run.series().subjects("cpu/");
  if (each.empty()) return std::nullopt;
  return static_cast<double>(each.size());
}

std::optional<double> host_idle(const RunView& run, Window w) {
  const auto idle = sum_of(run, "host", {"cpu.idle_ns", "cpu.iowait_ns"}, w);
  const auto online = host_cpus(run);
  if (!idle || !online || !(*online > 0)) return std::nullopt;
  return std::clamp(*idle / *online, 0.0, 1.0);
}

std::optional<double> job_cpus(const RunView& run, Window w) {
  if (const auto used = run.series().share("cgroup/job", "cpu.usage_ns", w)) return used;
  std::optional<double> sum;
  for (const probe::Process& process : run.data().processes) {
    const Window alive = overlap(w, {process.start, process.end.value_or(run.whole().end)});
    if (length(alive) == 0 || length(w) == 0) continue;
    const auto used = sum_of(run, proc(process.pid), {"cpu.user_ns", "cpu.system_ns"}, alive);
    if (used)
      sum = sum.value_or(0) +
            *used * static_cast<double>(length(alive)) / static_cast<double>(length(w));
  }
  return sum;
}

std::optional<double> outside_cpus(const RunView& run, Window w) {
  if (const auto used = run.series().share("cgroup/others", "cpu.usage_ns", w)) return used;
  const auto busy = busy_cpus(run, w);
  const auto job = job_cpus(run, w);
  if (!busy || !job) return std::nullopt;
  return std::max(0.0, *busy - *job);
}

std::optional<double> stolen(const RunView& run, Window w) {
  const auto steal = run.series().share("host", "cpu.steal_ns", w);
  const auto online = host_cpus(run);
  if (!steal || !online || !(*online > 0)) return std::nullopt;
  return std::clamp(*steal / *online, 0.0, 1.0);
}

std::optional<std::vector<int>> allowed_cpus(const RunView& run) {
  std::set<int> all;
  for (const int pid : run.job_pids()) {
    const auto notes = run.notes("affinity", pid);
    if (notes.empty()) continue;
    const auto cpus = parse_cpu_list(notes.back());
    if (cpus) all.insert(cpus->begin(), cpus->end());
  }
  if (all.empty()) return std::nullopt;
  return std::vector<int>(all.begin(), all.end());
}

std::optional<double> quota_cpus(const RunView& run) {
  const auto quota = run.series().last("cgroup/cpu", "cpu.quota_us", run.window());
  const auto period = run.series().last("cgroup/cpu", "cpu.period_us", run.window());
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

std::optional<double> usable_cpus(const RunView& run) {
  std::optional<double> cpus = host_cpus(run);
  if (const auto allowed = allowed_cpus(run)) {
    const auto count = static_cast<double>(allowed->size());
    cpus = cpus ? std::min(*cpus, count) : count;
  }
  if (const auto quota = quota_cpus(run)) cpus = cpus ? std::min(*cpus, *quota) : *quota;
  return cpus;
}

Timeline throttled(const RunView& run) {
  return run.timeline([&](Window w) { return throttled_at(run, w); });
}

int busy_threads(const RunView& run, const RankView& rank) {
  const auto helpers = helper_threads(run, rank.pid);
  int count = 0;
  for (const std::string& thread : threads_of(run, rank.pid)) {
    if (helpers.contains(thread)) continue;
    const auto wanted = sum_of(run, thread, {"cpu.run_ns", "cpu.run_delay_ns"}, run.window());
    if (wanted && *wanted >= kBusyThread) ++count;
  }
  return count;
}

LostTime ranks_waiting_for_cpu(const RunView& run) {
  return run.during([&](const RankView& rank) {
    const auto threads = threads_of(run, rank.pid);
    return run.timeline([&](Window w) -> std::optional<double> {
      const auto delay = rank_delay(run, rank, threads, w);
      if (!delay) return std::nullopt;
      return std::max(0.0, *delay - throttled_at(run, w).value_or(0));
    });
  });
}

LostTime waiting_for_cpu(const RunView& run) {
  const auto workers_wait = [&](const RankView& rank) {
    return run.timeline([&](Window w) -> std::optional<double> {
      double delay = 0;
      double busy = 0;
      for (const int pid : rank.workers) {
        delay +=
            run.series().share_inside(proc(pid), "cpu.run_delay_ns", w, run.window()).value_or(0);
        busy += run.series().share_inside(proc(pid), "cpu.run_ns", w, run.window()).value_or(0);
      }
      if (!(delay + busy > 0)) return std::nullopt;
      return std::max(0.0, delay / (delay + busy) - throttled_at(run, w).value_or(0));
    });
  };
  const LostTime input = run.phase_time(probe::Phase::kInputWait);
  return run.either(ranks_waiting_for_cpu(run), run.scaled(input, workers_wait));
}

std::optional<double> delay_ratio(const RunView& run) {
  double delay = 0;
  double busy = 0;
  for (const int pid : run.job_pids()) {
    delay += run.series().growth(proc(pid), "cpu.run_delay_ns", run.window()).value_or(0);
    busy += run.series().growth(proc(pid), "cpu.run_ns", run.window()).value_or(0);
  }
  if (!(busy > 0)) return std::nullopt;
  const double stopped =
      run.series().growth("cgroup/cpu", "cpu.throttled_ns", run.window()).value_or(0);
  return std::max(0.0, delay - stopped) / busy;
}

}  // namespace bedplate::doctor
