// What can be compared of two runs: each metric's name, layer, unit, direction, and the smallest
// difference worth a word; and the figures of one run, each with the values of its independent
// blocks where it has such.
//
//   const MeasuredRun a = measure("before", run, judge(run));
//   a.measures.at("step_ms").value;
//
// Only what was recorded is in `measures`: a metric that is absent is not 0. Pure; thread-safe.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doctor/finding.h"
#include "probe/run_data.h"

namespace bedplate::doctor {

enum class Better : std::uint8_t { kLower, kHigher, kNeither };
enum class MetricUnit : std::uint8_t {
  kMilliseconds,
  kSeconds,
  kPerSecond,
  kShare,
  kCores,
  kBytes,
  kBytesPerSecond,
  kCount
};

struct Metric {
  std::string_view name;   // in --fail-if and JSON
  std::string_view layer;  // "steps", "phases", "CPU", "pressure", "memory", "IO", "network", "run"
  std::string_view label;  // for people
  MetricUnit unit;
  Better better;
  // A difference below all of these is never called a change: of A's value, in the unit, of A's
  // step time.
  double least_relative;
  double least_absolute;
  double least_of_step = 0;
};

std::span<const Metric> all_metrics();
const Metric* find_metric(std::string_view name);

std::string metric_text(MetricUnit unit, double value);

struct Measure {
  double value = 0;
  std::vector<double> blocks;  // empty: one value a run, or too short a run
  bool one_value = false;      // of its nature: a peak, a length
  std::size_t enough = 0;      // single values that would have been long enough a run
  // Where the middle four fifths of the single values lie; none for fewer than kFewestValues.
  std::optional<std::pair<double, double>> range = std::nullopt;
};
constexpr std::size_t kFewestValues = 20;

struct MeasuredRun {
  std::string name;
  std::map<std::string, Measure, std::less<>> measures;
  Report report;
};

MeasuredRun measure(std::string name, const probe::RunData& run, Report report);

}  // namespace bedplate::doctor
