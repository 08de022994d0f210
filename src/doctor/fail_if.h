// The regression gate: `bedplate compare A B --fail-if 'step_ms > 5%'`.
//
//   METRIC OP NUMBER       the value in B, in the metric's unit (names end in it):  'peak_rss_bytes
//   > 8e9' METRIC OP NUMBER%      the change from A to B: 'steps_per_s < -3%' OP is one of > >= <
//   <=
//
// METRIC is a metric (compare_metrics.h) or the id of a rule, whose value is its gain ceiling (0
// when it did not fire). One condition each; several are several gates. A change that is not beyond
// noise counts as none, whatever its size. Of metrics with one value a run (a peak, a length) and
// one run a side, where noise cannot be known, the figures decide and the answer says so. A run too
// short to know its noise, or a side that lacks the metric, cannot tell: a gate that sees nothing
// must not pass in silence.
#pragma once

#include <string>
#include <string_view>

#include "doctor/compare.h"

namespace bedplate::doctor {

enum class GateOperator : std::uint8_t { kAbove, kAtLeast, kBelow, kAtMost };

struct Gate {
  std::string text;  // as it was given
  std::string metric;
  GateOperator op = GateOperator::kAbove;
  double number = 0;
  bool percent = false;
};

// Throws Error{kInvalid} that says what is wrong, and the nearest name for a metric that does not
// exist.
Gate parse_gate(std::string_view text);

enum class GateOutcome : std::uint8_t { kHolds, kDoesNotHold, kCannotTell };

struct GateResult {
  Gate gate;
  GateOutcome outcome = GateOutcome::kCannotTell;
  std::string why;
};

GateResult evaluate(const Gate& gate, const Comparison& result);

}  // namespace bedplate::doctor
