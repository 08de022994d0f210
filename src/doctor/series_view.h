// The series of a run by name: growth of counters and levels of gauges over any window.
//
//   const SeriesView series(run);
//   series.growth("cgroup/cpu", "cpu.throttled_ns", window);   // nullopt: not recorded then; 0:
//   recorded, and stood still series.share("proc/42", "cpu.run_ns", window);             //
//   nanoseconds a nanosecond
//
// What was not recorded is nullopt and never 0. A counter that goes backwards (its group was made
// anew) loses that decrease and counts on from there. Between two samples a counter is taken to
// grow evenly: the run file stores the last sample before each change, so where it stood still two
// samples say so. Windows may be empty, reversed or outside the run. Borrows the run; immutable;
// thread-safe.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/finding.h"
#include "probe/run_data.h"

namespace bedplate::doctor {

using Window = Interval;

inline Nanos length(Window w) { return w.end > w.begin ? w.end - w.begin : 0; }
inline Window overlap(Window a, Window b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

std::string proc(int pid);  // "proc/42"

class SeriesView {
 public:
  SeriesView(const probe::RunData& run, Nanos end);  // `end`: when the recording stopped

  bool has(std::string_view subject, std::string_view metric) const {
    return find(subject, metric) != nullptr;
  }
  const probe::Series* find(std::string_view subject, std::string_view metric) const;
  // Those that begin so ("disk/"), each once, sorted.
  std::vector<std::string_view> subjects(std::string_view prefix) const;
  // The file; the names when it was not recorded.
  std::string source(std::string_view subject, std::string_view metric) const;

  // Counters.
  std::optional<double> growth(std::string_view subject, std::string_view metric, Window w) const;
  std::optional<double> rate(std::string_view subject, std::string_view metric,
                             Window w) const;  // a second
  std::optional<double> share(std::string_view subject, std::string_view metric,
                              Window w) const;  // ns a ns

  // share() for counters that are read seldom (every two seconds), beside an edge of the steady
  // window: a growth that lies half outside `inside` says little of what happens inside, so the
  // nearest one that lies wholly inside stands for it.
  std::optional<double> share_inside(std::string_view subject, std::string_view metric, Window w,
                                     Window inside) const;

  // Gauges. `last` is the level at the window's end.
  std::optional<double> mean(std::string_view subject, std::string_view metric, Window w) const;
  std::optional<double> highest(std::string_view subject, std::string_view metric, Window w) const;
  std::optional<double> last(std::string_view subject, std::string_view metric, Window w) const;

 private:
  struct Entry {
    const probe::Series* series;
    std::vector<double> grown;  // since the first sample, without decreases; counters only
  };
  struct Growth {
    double amount;
    Nanos over;
  };
  const Entry* entry(std::string_view subject, std::string_view metric) const;
  std::optional<Growth> grown(std::string_view subject, std::string_view metric, Window w) const;
  static double at(const Entry& entry, Nanos t);
  template <typename Visit>  // (level, how long) for each level inside the window
  static void levels(const Entry& entry, Window w, Visit visit);

  std::map<std::pair<std::string_view, std::string_view>, Entry> entries_;
  Nanos end_;
};

}  // namespace bedplate::doctor
