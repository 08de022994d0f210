#include "doctor/compare.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "doctor/compare_stats.h"
#include "doctor/words.h"
#include "probe/run_file.h"

namespace bedplate::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRunsForATest = 4;  // 4 against 4 that do not overlap: p = 0.029
constexpr double kRunLevel = 0.05;
constexpr double kStepLevel = 0.01;    // the question that was asked
constexpr double kOtherLevel = 0.001;  // about thirty more are looked at
constexpr double kFarApart = 10;       // least differences, where a run is too short for a test
constexpr double kMeasuredSpread =
    1.0 / 3;  // of the assumed spread, where the real one was measured

std::vector<double> values_of(const std::vector<const Measure*>& side) {
  std::vector<double> values;
  for (const auto* one : side) values.push_back(one->value);
  return values;
}

double range_of(const std::vector<double>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return *high - *low;
}

// Each value of one side beyond each of the other.
bool apart(const std::vector<double>& a, const std::vector<double>& b) {
  const auto [low_a, high_a] = std::minmax_element(a.begin(), a.end());
  const auto [low_b, high_b] = std::minmax_element(b.begin(), b.end());
  return *low_b > *high_a || *low_a > *high_b;
}

// Runs too short for a test: a change is only what no drift of a run explains, ranges of single
// values that do not touch and a difference far beyond what runs of one job differ by.
void decide_on_ranges(const Measure& a, const Measure& b, double floor, MetricChange& change) {
  const double difference = std::fabs(change.difference());
  const bool far = a.range && b.range && difference > floor * kFarApart &&
                   (a.range->second < b.range->first || b.range->second < a.range->first);
  change.one_value = a.one_value;
  change.enough = std::max(a.enough, b.enough);
  change.noise = far ? floor * kFarApart : floor;
  change.state = far                  ? ChangeState::kChanged
                 : difference > floor ? ChangeState::kUnclear
                                      : ChangeState::kSame;
}

void decide_on_blocks(const Measure& a, const Measure& b, double floor, double level,
                      MetricChange& change) {
  if (a.blocks.empty() || b.blocks.empty()) {
    decide_on_ranges(a, b, floor, change);
    return;
  }
  const Shift shift = shift_between(a.blocks, b.blocks);
  change.p = shift.p;
  change.noise = std::max(floor, (shift.high - shift.low) / 2);
  const double difference = change.difference();
  const bool one_way = (difference > 0) == (shift.estimate > 0);
  const bool changed = shift.p < level && one_way && std::fabs(shift.estimate) > floor &&
                       std::fabs(difference) > floor;
  change.state = changed ? ChangeState::kChanged : ChangeState::kSame;
}

// With fewer than kRunsForATest a side: by how many spreads the two must lie apart, so that of 100
// pairs of equal groups at most some two are called changed (normal values, 200,000 simulated pairs
// for each size; the floor comes on top).
double spreads_apart(std::size_t a, std::size_t b) {
  if (a + b <= 3) return 8;
  if (a + b == 4) return 4;
  return std::min(a, b) >= 3 ? 1 : 2;
}

void decide_on_runs(const std::vector<double>& a, const std::vector<double>& b, double floor,
                    MetricChange& change) {
  const double spread = range_of(a) + range_of(b);
  const double difference = std::fabs(change.difference());
  if (a.size() >= kRunsForATest && b.size() >= kRunsForATest) {
    change.p = rank_sum_p(a, b);
    change.noise = std::max(floor * kMeasuredSpread, spread / 2);
    change.state = *change.p < kRunLevel && difference > floor * kMeasuredSpread
                       ? ChangeState::kChanged
                       : ChangeState::kSame;
    return;
  }
  change.noise = std::max(floor, spread * spreads_apart(a.size(), b.size()));
  change.state =
      apart(a, b) && difference > change.noise ? ChangeState::kChanged : ChangeState::kSame;
}

std::vector<const Measure*> side_of(const std::vector<MeasuredRun>& runs, std::string_view metric) {
  std::vector<const Measure*> side;
  for (const auto& run : runs) {
    if (const auto found = run.measures.find(metric); found != run.measures.end())
      side.push_back(&found->second);
  }
  return side;
}

MetricChange change_of(const Metric& metric, const std::vector<MeasuredRun>& runs_a,
                       const std::vector<MeasuredRun>& runs_b, double step_ms) {
  MetricChange change;
  change.metric = &metric;
  const auto side_a = side_of(runs_a, metric.name);
  const auto side_b = side_of(runs_b, metric.name);
  const auto a = values_of(side_a);
  const auto b = values_of(side_b);
  if (!a.empty()) change.a = median_of(a);
  if (!b.empty()) change.b = median_of(b);
  if (a.empty() || b.empty()) {
    change.state = ChangeState::kMissing;
    return change;
  }
  const double floor = std::max({metric.least_relative * std::fabs(*change.a),
                                 metric.least_absolute, metric.least_of_step * step_ms});
  if (a.size() > 1 || b.size() > 1) {
    decide_on_runs(a, b, floor, change);
  } else {
    decide_on_blocks(*side_a.front(), *side_b.front(), floor,
                     metric.layer == "steps" ? kStepLevel : kOtherLevel, change);
  }
  // Whatever could not be called a change lies inside the noise, by definition.
  if (change.state == ChangeState::kSame)
    change.noise = std::max(change.noise, std::fabs(change.difference()));
  return change;
}

struct Seen {
  std::size_t runs = 0;
  double ceiling = 0;
  std::string title;
  bool visible = true;  // in every run of the side
};

Seen seen_of(const std::vector<MeasuredRun>& runs, std::string_view rule) {
  Seen seen;
  for (const auto& run : runs) {
    for (const auto& finding : run.report.findings) {
      if (finding.rule != rule) continue;
      ++seen.runs;
      if (finding.gain_ceiling >= seen.ceiling) seen.title = title_of(finding);
      seen.ceiling = std::max(seen.ceiling, finding.gain_ceiling);
    }
    for (const auto& one : run.report.not_seen) {
      if (one.rule == rule) seen.visible = false;
    }
  }
  return seen;
}

std::vector<FindingChange> findings_of(const std::vector<MeasuredRun>& a,
                                       const std::vector<MeasuredRun>& b) {
  std::set<std::string> rules;
  for (const auto* side : {&a, &b}) {
    for (const auto& run : *side) {
      for (const auto& finding : run.report.findings) rules.insert(finding.rule);
    }
  }
  std::vector<FindingChange> changes;
  for (const auto& rule : rules) {
    const Seen in_a = seen_of(a, rule);
    const Seen in_b = seen_of(b, rule);
    FindingChange change{rule,
                         in_b.runs > 0 ? in_b.title : in_a.title,
                         FindingState::kSometimes,
                         in_a.runs,
                         in_b.runs,
                         in_a.ceiling,
                         in_b.ceiling};
    if (in_a.runs == a.size() && in_b.runs == b.size()) {
      change.state = FindingState::kInBoth;
    } else if ((in_a.runs == 0 && !in_a.visible) || (in_b.runs == 0 && !in_b.visible)) {
      change.state = FindingState::kNotVisible;
    } else if (in_a.runs == 0 && in_b.runs == b.size()) {
      change.state = FindingState::kAppeared;
    } else if (in_b.runs == 0 && in_a.runs == a.size()) {
      change.state = FindingState::kGone;
    }
    changes.push_back(std::move(change));
  }
  std::stable_sort(changes.begin(), changes.end(), [](const auto& x, const auto& y) {
    return std::max(x.ceiling_a, x.ceiling_b) > std::max(y.ceiling_a, y.ceiling_b);
  });
  return changes;
}

std::vector<std::string> remarks_of(const std::vector<MeasuredRun>& a,
                                    const std::vector<MeasuredRun>& b) {
  std::vector<std::string> remarks;
  const auto differ = [&](auto value, const char* text) {
    std::set<decltype(value(a.front().report))> kinds;
    for (const auto* side : {&a, &b}) {
      for (const auto& run : *side) kinds.insert(value(run.report));
    }
    if (kinds.size() > 1) remarks.emplace_back(text);
  };
  differ([](const Report& r) { return r.steps.ranks.size(); },
         "the runs have different numbers of ranks");
  differ([](const Report& r) { return r.version; },
         "the runs were recorded by different versions of Bedplate");
  for (const auto* side : {&a, &b}) {
    for (const auto& run : *side) {
      if (!run.report.complete)
        remarks.push_back(fmt::format("the recording {} was cut short", run.name));
      if (run.report.signal || run.report.exit_code.value_or(0) != 0)
        remarks.push_back(fmt::format("{} ended with {}", run.name, ending_text(run.report)));
    }
  }
  if (a.size() == 1 && b.size() == 1) {
    remarks.emplace_back(
        "one run a side: the spread between runs is assumed, not measured; name several runs a "
        "side to measure it");
  } else if (std::min(a.size(), b.size()) < kRunsForATest) {
    remarks.push_back(
        fmt::format("with {} or more runs a side a rank-sum test decides; here every run of one "
                    "side must lie beyond the other side",
                    kRunsForATest));
  }
  return remarks;
}

// The relative change of steps a second, where it says the contrary of the median step.
std::optional<double> opposite_rate(const Comparison& result, bool faster) {
  constexpr double kNotNoise = 0.1;  // smaller ones are left to the test of the rate itself
  const MetricChange* rate = result.find("steps_per_s");
  if (rate == nullptr) return std::nullopt;
  const auto change = rate->relative();
  if (!change || std::fabs(*change) < kNotNoise || (*change > 0) == faster) return std::nullopt;
  return change;
}

void give_verdict(Comparison& result) {
  const MetricChange* step = result.find("step_ms");
  if (step == nullptr || !step->a || !step->b) {
    result.verdict = "unclear";
    const MetricChange* length = result.find("duration_s");
    result.verdict_text = "no step time on both sides to compare";
    if (length != nullptr && length->a && length->b) {
      result.verdict_text +=
          fmt::format("; the runs took {} and {}", metric_text(MetricUnit::kSeconds, *length->a),
                      metric_text(MetricUnit::kSeconds, *length->b));
    }
    return;
  }
  const std::string both =
      fmt::format("median step {} → {}", milliseconds_text(*step->a), milliseconds_text(*step->b));
  const double noise = step->relative_noise().value_or(0) * 100;
  if (step->state == ChangeState::kUnclear) {
    result.verdict = "unclear";
    result.verdict_text =
        fmt::format("{}: too few independent steps to tell it from noise; {} a run would be enough",
                    both, step->enough);
  } else if (step->state == ChangeState::kChanged) {
    const bool faster = step->difference() < 0;
    if (const auto rate = opposite_rate(result, faster)) {
      result.verdict = "unclear";
      result.verdict_text = fmt::format(
          "{}, yet {:+.1f} % steps a second: a few long steps hold what the median does not show; "
          "look at their cause, and compare several longer runs a side",
          both, *rate * 100);
    } else {
      result.verdict = faster ? "faster" : "slower";
      result.verdict_text = fmt::format("{}: {:+.1f} %, {:.2f} times as {}; noise is ±{:.1f} %",
                                        both, step->relative().value_or(0) * 100,
                                        faster ? *step->a / *step->b : *step->b / *step->a,
                                        faster ? "fast" : "slow", noise);
    }
  } else {
    result.verdict = "no change";
    result.verdict_text = fmt::format("{}: no change beyond noise (±{:.1f} %)", both, noise);
    const MetricChange* rate = result.find("steps_per_s");
    if (rate != nullptr && rate->state == ChangeState::kChanged) {
      const bool faster = rate->difference() > 0;
      result.verdict = faster ? "faster" : "slower";
      result.verdict_text += fmt::format(", but {:+.1f} % steps a second: {} single long steps",
                                         rate->relative().value_or(0) * 100,
                                         faster ? "fewer or shorter" : "more or longer");
    }
  }
}

bool is_run(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path / "run.db", error) ||
         (fs::is_regular_file(path, error) && path.extension() == ".db");
}

std::vector<fs::path> find_runs(const fs::path& path) {
  if (is_run(path)) return {path};
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (is_run(entry.path())) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::string_view name(ChangeState state) {
  switch (state) {
    case ChangeState::kSame:
      return "same";
    case ChangeState::kChanged:
      return "changed";
    case ChangeState::kUnclear:
      return "unclear";
    case ChangeState::kMissing:
      return "missing";
  }
  return "";
}

std::string_view name(FindingState state) {
  switch (state) {
    case FindingState::kAppeared:
      return "appeared";
    case FindingState::kGone:
      return "gone";
    case FindingState::kInBoth:
      return "in both";
    case FindingState::kSometimes:
      return "in some runs";
    case FindingState::kNotVisible:
      return "could not be seen on one side";
  }
  return "";
}

std::optional<double> MetricChange::relative() const {
  if (!a || !b || *a == 0) return std::nullopt;
  return difference() / std::fabs(*a);
}

std::optional<double> MetricChange::relative_noise() const {
  if (!a || *a == 0) return std::nullopt;
  return noise / std::fabs(*a);
}

const MetricChange* Comparison::find(std::string_view metric) const {
  const auto found = std::find_if(metrics.begin(), metrics.end(), [&](const MetricChange& change) {
    return change.metric->name == metric;
  });
  return found == metrics.end() ? nullptr : &*found;
}

Comparison compare(const std::vector<MeasuredRun>& a, const std::vector<MeasuredRun>& b) {
  BEDPLATE_CHECK(!a.empty() && !b.empty());
  Comparison result;
  for (const auto& run : a) result.runs_a.push_back(run.name);
  for (const auto& run : b) result.runs_b.push_back(run.name);
  const auto steps = values_of(side_of(a, "step_ms"));
  for (const auto& metric : all_metrics()) {
    MetricChange change = change_of(metric, a, b, median_of(steps));
    if (change.a || change.b) result.metrics.push_back(change);
  }
  result.findings = findings_of(a, b);
  result.remarks = remarks_of(a, b);
  give_verdict(result);
  return result;
}

std::vector<MeasuredRun> load_runs(std::string_view text, const Thresholds& thresholds) {
  std::vector<fs::path> paths;
  std::error_code error;
  if (fs::exists(fs::path(text), error)) {
    paths = find_runs(fs::path(text));  // a comma may be part of a name
    if (paths.empty())
      throw Error(Code::kNotFound,
                  "{} holds no run: there is no run.db in it or in a folder below it",
                  to_utf8(text));
  } else {
    for (const auto piece : split(text, ',')) {
      const auto found = find_runs(fs::path(piece));
      if (found.empty())
        throw Error(Code::kNotFound,
                    "there is no run {}; give the folder that `bedplate run` printed",
                    to_utf8(piece));
      paths.insert(paths.end(), found.begin(), found.end());
    }
  }
  std::vector<MeasuredRun> runs;
  for (const auto& path : paths) {
    const probe::RunData data = probe::read_run(path);
    runs.push_back(measure(path.string(), data, judge(data, thresholds)));
  }
  return runs;
}

}  // namespace bedplate::doctor
