// A recorded run as rules see it: ranks with their steady steps and workers, series, notes,
// thresholds, and the arithmetic of lost step time.
//
//   std::optional<Finding> check(const RunView& run) {
//     const auto throttled = run.series().share("cgroup/cpu", "cpu.throttled_ns", run.window());
//     if (!throttled || *throttled < run.threshold("cpu_quota.throttled_share")) return
//     std::nullopt; …
//   }
//
// Total: an empty run, one sample, absent series, windows of no length and merged steps all have
// answers; what was not recorded is nullopt, never 0. A job without steps (no optimizer, not
// Python) is cut into windows of one sampling period of its main processes, which then stand for
// steps. Borrows the run; immutable once made; thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/judge.h"
#include "doctor/lost_time.h"
#include "doctor/series_view.h"
#include "probe/run_data.h"

namespace bedplate::doctor {

struct StepView {
  std::int64_t index = 0;
  Nanos begin = 0;
  Nanos end = 0;
  std::int64_t weight = 1;
  Nanos longest = 0;
  probe::PhaseTimes phases{};
  // DDP was not asked for this step's communication; the rank's usual one stands for it.
  bool usual_communication = false;
};

// One process that trains (or, without steps, one of the job's main processes).
struct RankView {
  int rank = -1;
  int pid = 0;
  const probe::Process* process = nullptr;  // null when only its steps are known
  std::vector<int> workers;                 // pids of its DataLoader workers, ascending
  std::vector<StepView> steps;              // without warm-up and evaluation, ascending
};

class RunView {
 public:
  explicit RunView(const probe::RunData& run, const Thresholds& overrides = {});

  const probe::RunData& data() const { return run_; }
  const SeriesView& series() const { return series_; }
  double threshold(std::string_view key) const;  // aborts on a key that no rule declares

  // Signals. `name` may be "a|b": either.
  bool seen(std::string_view name) const;
  std::string why_not_seen(std::string_view name) const;  // "host.psi: this kernel has no PSI"

  // From the first to the last boundary of the steady steps; the whole run when there are none.
  Window window() const { return window_; }
  Window whole() const { return whole_; }
  const std::vector<Window>& grid() const { return grid_; }  // the window cut into sampling periods

  bool has_steps() const { return has_steps_; }
  bool coupled() const { return coupled_; }  // its ranks wait for one another in each step
  const std::vector<RankView>& ranks() const { return ranks_; }
  const RankView* rank_of(int pid) const;        // also of a worker's pid
  std::vector<int> job_pids() const;             // the ranks and their workers
  const probe::Process* process(int pid) const;  // the last of that pid
  std::string label(int pid) const;              // "rank 1 (pid 42)", "pid 42 (sh)"
  std::vector<std::string_view> notes(std::string_view key, int pid) const;
  std::vector<const probe::Note*> notes(std::string_view key) const;
  std::optional<std::int64_t> meta_int(std::string_view key) const;

  double mean_step_ns() const;    // of the steady steps, by weight; 0 when there are none
  double steps_per_rank() const;  // steady ones, by weight

  // Lost step time.
  LostTime phase_time(probe::Phase phase) const;
  LostTime during(const Timeline& timeline) const;
  LostTime during(const std::function<Timeline(const RankView&)>& timeline) const;
  // By the timeline's mean share in each step.
  LostTime scaled(const LostTime& lost, const Timeline& timeline) const;
  LostTime scaled(const LostTime& lost,
                  const std::function<Timeline(const RankView&)>& timeline) const;
  // As if the two never overlapped, but never beyond the step.
  LostTime either(const LostTime& a, const LostTime& b) const;
  // Of step time; ranks that wait for one another lose what the slowest loses.
  double share(const LostTime& lost) const;
  double share_of(const LostTime& lost, std::size_t rank) const;
  // Where a tenth or more of the time is lost; at most 400 intervals.
  std::vector<Interval> when(const LostTime& lost) const;

  // A timeline on the grid; windows for which `share` has no answer are left out.
  Timeline timeline(const std::function<std::optional<double>(Window)>& share) const;

 private:
  void find_steps();
  void fill_in_communication(RankView& rank) const;
  void find_main_processes();
  void find_workers();
  bool is_below(const probe::Process& process, int ancestor) const;
  void cut_grid();

  const probe::RunData& run_;
  std::map<std::string, double, std::less<>> thresholds_;
  std::map<std::string_view, const probe::SignalState*> signals_;
  std::map<int, const probe::Process*> processes_;
  std::multimap<std::pair<std::string_view, int>, const probe::Note*> notes_;
  Nanos tick_;
  Window whole_;
  SeriesView series_;
  Window window_;
  std::vector<Window> grid_;
  std::vector<RankView> ranks_;
  bool has_steps_ = false;
  bool coupled_ = false;
};

}  // namespace bedplate::doctor
