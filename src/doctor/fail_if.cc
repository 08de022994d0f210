#include "doctor/fail_if.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "doctor/rule.h"

namespace bedplate::doctor {
namespace {

struct OperatorText {
  std::string_view text;
  GateOperator op;
};
// Longer ones first.
constexpr std::array<OperatorText, 4> kOperators = {{{">=", GateOperator::kAtLeast},
                                                     {"<=", GateOperator::kAtMost},
                                                     {">", GateOperator::kAbove},
                                                     {"<", GateOperator::kBelow}}};

// A difference of this size that hides in the noise is no proof that nothing changed.
constexpr double kLargePercent = 10;

bool is_rule(std::string_view id) {
  return std::any_of(all_rules().begin(), all_rules().end(),
                     [&](const Rule* rule) { return rule->id == id; });
}

void check_metric(std::string_view metric) {
  if (find_metric(metric) != nullptr || is_rule(metric)) return;
  std::vector<std::string_view> known;
  for (const auto& one : all_metrics()) known.push_back(one.name);
  for (const Rule* rule : all_rules()) known.push_back(rule->id);
  const std::string_view nearest = nearest_name(metric, known);
  throw Error(Code::kInvalid, "there is no metric {}{}; `bedplate compare --metrics` lists them",
              to_utf8(metric),
              nearest.empty() ? std::string() : fmt::format(" (did you mean {}?)", nearest));
}

bool holds(GateOperator op, double value, double limit) {
  switch (op) {
    case GateOperator::kAbove:
      return value > limit;
    case GateOperator::kAtLeast:
      return value >= limit;
    case GateOperator::kBelow:
      return value < limit;
    case GateOperator::kAtMost:
      return value <= limit;
  }
  return false;
}

GateOutcome outcome_of(bool yes) { return yes ? GateOutcome::kHolds : GateOutcome::kDoesNotHold; }

// Rules have ceilings rather than noise.
GateResult evaluate_rule(const Gate& gate, const Comparison& result) {
  double a = 0;
  double b = 0;
  for (const auto& finding : result.findings) {
    if (finding.rule != gate.metric) continue;
    if (finding.state == FindingState::kNotVisible && finding.in_b == 0)
      return {gate, GateOutcome::kCannotTell, "B could not see " + gate.metric};
    a = finding.ceiling_a;
    b = finding.ceiling_b;
  }
  const double value = gate.percent ? (a > 0 ? (b - a) / a * 100 : b > 0 ? INFINITY : 0) : b;
  return {gate, outcome_of(holds(gate.op, value, gate.number)),
          fmt::format("{} has a ceiling of {:.4f} in A and {:.4f} in B", gate.metric, a, b)};
}

}  // namespace

Gate parse_gate(std::string_view text) {
  Gate gate;
  gate.text = to_utf8(trim(text));
  const auto bad = [&](std::string_view what) {
    return Error(Code::kInvalid,
                 "'{}' is no condition: {}; write METRIC OP NUMBER[%], as in 'step_ms > 5%'",
                 gate.text, what);
  };
  const auto at = gate.text.find_first_of("<>");
  if (at == std::string::npos) throw bad("it has none of > >= < <=");
  gate.metric = trim(std::string_view(gate.text).substr(0, at));
  std::string_view rest = std::string_view(gate.text).substr(at);
  for (const auto& one : kOperators) {
    if (!rest.starts_with(one.text)) continue;
    gate.op = one.op;
    rest.remove_prefix(one.text.size());
    break;
  }
  rest = trim(rest);
  if (gate.metric.empty()) throw bad("it names no metric");
  for (const auto word : words(rest)) {
    if (word == "and" || word == "or" || word == "&&" || word == "||")
      throw bad("it joins two; give --fail-if once for each");
  }
  if (rest.ends_with('%')) {
    gate.percent = true;
    rest = trim(rest.substr(0, rest.size() - 1));
  }
  if (rest.starts_with('+')) rest.remove_prefix(1);
  const auto number = to_double(rest);
  if (!number || !std::isfinite(*number)) throw bad(fmt::format("'{}' is not a number", rest));
  gate.number = *number;
  check_metric(gate.metric);
  return gate;
}

GateResult evaluate(const Gate& gate, const Comparison& result) {
  if (find_metric(gate.metric) == nullptr) return evaluate_rule(gate, result);
  const MetricChange* change = result.find(gate.metric);
  const bool needs_a = gate.percent;
  if (change == nullptr || !change->b || (needs_a && !change->a)) {
    return {gate, GateOutcome::kCannotTell,
            fmt::format("{} was not recorded in {}", gate.metric,
                        change == nullptr || !change->b ? "B" : "A")};
  }
  const MetricUnit unit = change->metric->unit;
  if (!gate.percent) {
    return {gate, outcome_of(holds(gate.op, *change->b, gate.number)),
            fmt::format("{} is {} in B", gate.metric, metric_text(unit, *change->b))};
  }
  const std::string both =
      fmt::format("{} went from {} to {}", gate.metric, metric_text(unit, *change->a),
                  metric_text(unit, *change->b));
  const double difference = change->difference();
  const double percent = change->relative() ? *change->relative() * 100
                         : difference == 0  ? 0
                                            : std::copysign(INFINITY, difference);
  const std::string size = std::isfinite(percent) ? fmt::format(" ({:+.1f} %)", percent) : "";
  const bool yes = holds(gate.op, percent, gate.number);
  switch (change->state) {
    case ChangeState::kChanged:
      return {gate, outcome_of(yes), both + size};
    case ChangeState::kSame: {
      // The change that is established is none: it is judged as 0.
      const std::string noise = change->relative_noise()
                                    ? fmt::format(" (±{:.1f} %)", *change->relative_noise() * 100)
                                    : "";
      if (yes && !holds(gate.op, 0, gate.number) && std::fabs(percent) >= kLargePercent) {
        return {gate, GateOutcome::kCannotTell,
                both + size + ": beyond the limit, but the noise is as large" + noise +
                    "; record longer runs, or several a side"};
      }
      return {gate, outcome_of(holds(gate.op, 0, gate.number)),
              both + size + ": no change beyond noise" + noise};
    }
    case ChangeState::kUnclear:
    case ChangeState::kMissing:
      break;
  }
  if (change->one_value)
    return {gate, outcome_of(yes), both + size + ": one value a side, its noise is not known"};
  return {gate, yes ? GateOutcome::kCannotTell : GateOutcome::kDoesNotHold,
          both + size +
              fmt::format(": too few independent values to tell it from noise ({} a run would be "
                          "enough); record a longer run, or several",
                          change->enough)};
}

}  // namespace bedplate::doctor
