#include "doctor/fail_if.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "doctor/compare_samples.h"
#include "doctor/report_samples.h"

namespace bedplate::doctor {
namespace {

using ::testing::HasSubstr;

MeasuredRun measured(const RunShape& shape) {
  const probe::RunData run = noisy_run(shape);
  return measure("run", run, judge(run));
}

std::string refusal(std::string_view text) {
  try {
    parse_gate(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalid);
    return error.what();
  }
  return "";
}

TEST(ParseGate, ReadsMetricOperatorAndNumber) {
  const Gate gate = parse_gate("  step_ms>=+5.5 % ");
  EXPECT_EQ(gate.metric, "step_ms");
  EXPECT_EQ(gate.op, GateOperator::kAtLeast);
  EXPECT_EQ(gate.number, 5.5);
  EXPECT_TRUE(gate.percent);
  const Gate plain = parse_gate("peak_rss_bytes < 8e9");
  EXPECT_EQ(plain.op, GateOperator::kBelow);
  EXPECT_EQ(plain.number, 8e9);
  EXPECT_FALSE(plain.percent);
  EXPECT_EQ(parse_gate("steps_per_s < -3%").number, -3);
  EXPECT_EQ(parse_gate("cpu_quota > 0.1").metric, "cpu_quota");
}

TEST(ParseGate, SaysWhatIsWrong) {
  EXPECT_THAT(refusal("step_mss > 5%"), HasSubstr("did you mean step_ms?"));
  EXPECT_THAT(refusal("step_ms 5%"), HasSubstr("none of > >= < <="));
  EXPECT_THAT(refusal("step_ms > five"), HasSubstr("'five' is not a number"));
  EXPECT_THAT(refusal("step_ms > 5% and gc_ms > 1"), HasSubstr("give --fail-if once for each"));
  EXPECT_THAT(refusal("> 5%"), HasSubstr("names no metric"));
  EXPECT_THAT(refusal("step_ms > nan"), HasSubstr("not a number"));
  EXPECT_THAT(refusal(""), HasSubstr("none of"));
  EXPECT_THAT(refusal("\x1b[2J > 1"), ::testing::Not(HasSubstr("\x1b")));
}

TEST(Evaluate, HoldsForAChangeBeyondNoiseAndTheLimit) {
  const auto slower = compare({measured({})}, {measured({.step_ms = 56, .seed = 2})});
  EXPECT_EQ(evaluate(parse_gate("step_ms > 5%"), slower).outcome, GateOutcome::kHolds);
  EXPECT_EQ(evaluate(parse_gate("step_ms > 20%"), slower).outcome, GateOutcome::kDoesNotHold);
  EXPECT_EQ(evaluate(parse_gate("steps_per_s < -5%"), slower).outcome, GateOutcome::kHolds);
  EXPECT_EQ(evaluate(parse_gate("step_ms > 40"), slower).outcome, GateOutcome::kHolds);
  EXPECT_EQ(evaluate(parse_gate("step_ms > 100"), slower).outcome, GateOutcome::kDoesNotHold);
  EXPECT_THAT(evaluate(parse_gate("step_ms > 5%"), slower).why, HasSubstr("step_ms went from 50"));
}

TEST(Evaluate, NoiseNeverFailsABuild) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto same = compare({measured({.seed = seed})}, {measured({.seed = seed + 50})});
    const auto result = evaluate(parse_gate("step_ms > 0%"), same);
    EXPECT_EQ(result.outcome, GateOutcome::kDoesNotHold) << result.why;
  }
}

TEST(Evaluate, ALargeDifferenceInsideTheNoiseCannotTell) {
  Comparison result = compare({measured({})}, {measured({.seed = 2})});
  for (auto& change : result.metrics) {
    if (change.metric->name != "step_ms") continue;
    change.b = *change.a * 1.4;
    change.noise = *change.a * 0.5;
  }
  ASSERT_EQ(result.find("step_ms")->state, ChangeState::kSame);
  const auto gate = evaluate(parse_gate("step_ms > 5%"), result);
  EXPECT_EQ(gate.outcome, GateOutcome::kCannotTell) << gate.why;
  EXPECT_THAT(gate.why, HasSubstr("the noise is as large"));
  EXPECT_EQ(evaluate(parse_gate("step_ms > 50%"), result).outcome, GateOutcome::kDoesNotHold);
}

TEST(Evaluate, WhatIsNotSeenCannotTell) {
  const auto result = compare({measure("a", {}, {})}, {measure("b", {}, {})});
  EXPECT_EQ(evaluate(parse_gate("step_ms > 5%"), result).outcome, GateOutcome::kCannotTell);
  const auto brief =
      compare({measured({.steps = 12})}, {measured({.step_ms = 60, .steps = 12, .seed = 2})});
  EXPECT_EQ(evaluate(parse_gate("step_ms > 5%"), brief).outcome, GateOutcome::kCannotTell);
  EXPECT_EQ(evaluate(parse_gate("step_ms > 50%"), brief).outcome, GateOutcome::kDoesNotHold);
}

TEST(Evaluate, RulesAreMetricsToo) {
  const auto result = compare({MeasuredRun{"a", {}, sample_report("healthy")}},
                              {MeasuredRun{"b", {}, sample_report("full")}});
  EXPECT_EQ(evaluate(parse_gate("cpu_quota > 0.4"), result).outcome, GateOutcome::kHolds);
  EXPECT_EQ(evaluate(parse_gate("cpu_quota > 0.5"), result).outcome, GateOutcome::kDoesNotHold);
  EXPECT_EQ(evaluate(parse_gate("crash > 0"), result).outcome, GateOutcome::kDoesNotHold);
}

}  // namespace
}  // namespace bedplate::doctor
