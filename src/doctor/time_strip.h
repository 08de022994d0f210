// A run on one time axis, cut into columns for a picture: step time and phases, and what the
// machine did meanwhile.
//
//   const TimeStrip strip = make_time_strip(run, 960);   // a column a pixel
//
// Each column keeps the lowest, the mean and the highest of what it covers, so that a spike of one
// sample survives any width. What was not recorded in a column is absent from it and never 0. Pure;
// thread-safe.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "probe/run_data.h"

namespace bedplate::doctor {

struct Level {
  double low = 0;
  double mean = 0;
  double high = 0;
};

struct StepColumn {
  double steps = 0;  // that began here, over all ranks
  Level ms;          // their durations; of those that cover it when none began
  std::array<double, probe::kPhaseCount> phases;  // shares of the ranks' step time, sum to 1
  bool evaluation = false;
};

enum class LaneUnit : std::uint8_t { kShare, kCores, kBytesPerSecond, kPerSecond };

struct Lane {
  std::string name;   // "CPU pressure"
  std::string group;  // lanes that are drawn over each other: "pressure"
  LaneUnit unit = LaneUnit::kShare;
  std::string source;  // the file
  double top = 0;      // the scale: 1 for shares, the CPUs for cores, else the highest
  double highest = 0;
  double mean = 0;
  std::vector<std::optional<Level>> columns;

  bool quiet() const;  // never worth a look: stays under 1 % or 1 MiB/s
};

struct TimeStrip {
  Nanos begin = 0;
  Nanos end = 0;
  std::vector<std::optional<StepColumn>> steps;
  bool has_steps = false;
  double highest_ms = 0;
  std::vector<Lane> lanes;  // those that were recorded, in the order in which they are read

  std::size_t columns() const { return steps.size(); }
  Nanos column_width() const {
    return columns() == 0 ? 0 : (end - begin) / static_cast<Nanos>(columns());
  }
};

// The run's recorded end or, when there is none, the last thing that was recorded.
Nanos end_of(const probe::RunData& run);

TimeStrip make_time_strip(const probe::RunData& run, std::size_t columns);

std::string level_text(LaneUnit unit, double value);  // "43 %", "1.8 cores", "40 MiB/s"

}  // namespace bedplate::doctor
