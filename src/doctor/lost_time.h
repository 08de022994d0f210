// Step time that a cause took, rank by rank and step by step: what gain ceilings are made of.
//
//   LostTime lost = view.phase_time(Phase::kInputWait);          // all of the input wait …
//   lost = view.scaled(lost, fetch_blocked);                     // … as far as the fetches were
//   blocked meanwhile finding.gain_ceiling = view.share(lost);                     // share of step
//   time, 0…1
//
// A ceiling is a union of step time, never a sum over 100 %: either() adds up two causes inside one
// step but never beyond the step. Where a cause is known only by windows of samples (half a second,
// many short steps), a Timeline gives the share of each window during which it held, and a step
// inside the window gets that share.
#pragma once

#include <vector>

#include "doctor/finding.h"

namespace bedplate::doctor {

// During [begin, end) something held for `share` of the time. Slices ascend and do not overlap;
// what lies between is 0.
struct Slice {
  Nanos begin = 0;
  Nanos end = 0;
  double share = 0;
};
using Timeline = std::vector<Slice>;

// The integral of a timeline over any interval, in O(log n).
class TimelineIntegral {
 public:
  explicit TimelineIntegral(const Timeline& timeline);
  double over(Nanos begin, Nanos end) const;  // nanoseconds during which it held

 private:
  double until(Nanos t) const;
  std::vector<Slice> slices_;
  std::vector<double> before_;  // integral up to each slice's begin
};

// Nanoseconds lost, [rank][step], in the order of RunView::ranks() and their steps. Never above the
// step's own duration.
struct LostTime {
  std::vector<std::vector<double>> ns;
};

// At most the smaller of the two in each step.
LostTime both(const LostTime& a, const LostTime& b);
// The larger: causes that overlap as far as they can.
LostTime larger(const LostTime& a, const LostTime& b);
// What of `a` is left when `b` is taken out, not below 0.
LostTime less(const LostTime& a, const LostTime& b);
// `factor` is held inside 0…1.
LostTime scaled(const LostTime& a, double factor);

}  // namespace bedplate::doctor
