// What bedplate.data told of itself: its loaders, caches and remote stores, a process each.
//
//   for (const DataPlane& one : data_planes(run, run.whole())) …
//
// Pure functions of the run; a job without bedplate.data has none.
#pragma once

#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/run_view.h"

namespace bedplate::doctor {

// Of ranks and their workers, those of the lowest rank first. Counters are those of the window,
// names and the slow end of the remote reads those that were told last.
std::vector<DataPlane> data_planes(const RunView& run, Window window);
// That of one process; nullopt when it has none.
std::optional<DataPlane> data_plane_of(const RunView& run, int pid, Window window);

// The sum: names of the first, the largest data set and latency.
DataPlane together(const std::vector<DataPlane>& planes);

// What the text and the HTML report show: all of a few, else their sum.
std::vector<DataPlane> shown_planes(const std::vector<DataPlane>& planes);

struct DataLine {
  std::string label;  // "rank 0", then "cache" or "window", "remote" …
  std::string text;
};
std::vector<DataLine> data_lines(const DataPlane& plane);

}  // namespace bedplate::doctor
