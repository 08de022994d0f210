// What changed between two runs, or two groups of repeated runs, layer by layer; noise is never
// called a change.
//
//   const Comparison result = compare(load_runs("before/"), load_runs("after1,after2"));
//   fmt::print("{}", render_text(result, {.columns = 100}));                        //
//   compare_render.h
//
// One run a side: block values of the two runs are put to a rank-sum test (compare_stats.h), and
// the difference must also exceed what two runs of one job are known to differ by
// (Metric::least_*). Several runs a side: each run is one value, so that the spread between runs
// counts; with four or more a side a rank-sum test decides, with fewer every run of one side must
// lie beyond every run of the other by several spreads. What has one value a run and one run
// a side is shown, but nothing is claimed of it.
//
// Pure but for load_runs(), which throws what probe::read_run() does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/compare_metrics.h"
#include "doctor/judge.h"

namespace bedplate::doctor {

enum class ChangeState : std::uint8_t {
  kSame,  // no change beyond noise
  kChanged,
  kUnclear,  // the values differ, but nothing says whether that is more than noise
  kMissing,  // not recorded on one side
};
std::string_view name(ChangeState state);

struct MetricChange {
  const Metric* metric = nullptr;
  std::optional<double> a;  // medians over the runs of a side
  std::optional<double> b;
  double noise = 0;         // in the unit: differences up to this are no change
  std::optional<double> p;  // of the test that was made
  ChangeState state = ChangeState::kSame;
  bool one_value = false;  // one value a run by nature, and one run a side: noise cannot be known
  std::size_t enough = 0;  // single values that a run needs for a test, where it had too few

  double difference() const { return b.value_or(0) - a.value_or(0); }
  std::optional<double> relative() const;  // of a; nullopt when a is 0 or absent
  std::optional<double> relative_noise() const;
};

enum class FindingState : std::uint8_t { kAppeared, kGone, kInBoth, kSometimes, kNotVisible };
std::string_view name(FindingState state);

struct FindingChange {
  std::string rule;
  std::string title;
  FindingState state = FindingState::kInBoth;
  std::size_t in_a = 0;  // runs of a side that have it
  std::size_t in_b = 0;
  double ceiling_a = 0;  // the highest of its side
  double ceiling_b = 0;
};

struct Comparison {
  std::vector<std::string> runs_a;
  std::vector<std::string> runs_b;
  std::string verdict;  // "faster", "slower", "no change", "unclear"
  std::string verdict_text;
  std::vector<MetricChange>
      metrics;  // in the order of all_metrics(); those that neither side has are left out
  std::vector<FindingChange> findings;  // by the higher ceiling
  std::vector<std::string> remarks;     // what makes the two less comparable

  const MetricChange* find(std::string_view metric) const;
};

Comparison compare(const std::vector<MeasuredRun>& a, const std::vector<MeasuredRun>& b);

// The runs that `text` names: a run folder or run.db, a folder of run folders, or several of these
// between commas. Throws Error{kNotFound} when it names none.
std::vector<MeasuredRun> load_runs(std::string_view text, const Thresholds& thresholds = {});

}  // namespace bedplate::doctor
