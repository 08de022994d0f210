#include "doctor/compare_render.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "doctor/layout.h"
#include "doctor/phase_bar.h"
#include "doctor/text_page.h"
#include "doctor/words.h"

namespace bedplate::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kValue = 13;  // columns of the table
constexpr std::size_t kChange = 10;
constexpr std::size_t kNoise = 9;
constexpr std::size_t kWord = 8;

std::string right(std::string_view text, std::size_t width) {
  const std::size_t wide = columns(text);
  return wide >= width ? " " + fit(text, width - 1)
                       : std::string(width - wide, ' ') + std::string(text);
}

std::string value_text(const MetricChange& change, const std::optional<double>& value) {
  return value ? metric_text(change.metric->unit, *value) : "n/a";
}

// Shares change by points of a hundred: from 1 % to 3 % is 2 points, "three times as much" would
// say too much.
std::string points(double share, std::string_view plus) {
  return fmt::format("{}{:.1f} pt", share < 0 ? "-" : plus, std::fabs(share) * 100);
}

// Relative where that says something, else in the unit.
std::string difference_text(const MetricChange& change) {
  if (change.state == ChangeState::kMissing) return "";
  if (change.metric->unit == MetricUnit::kShare) return points(change.difference(), "+");
  if (const auto relative = change.relative(); relative && std::fabs(*relative) < 10)
    return fmt::format("{:+.1f} %", *relative * 100);
  const double difference = change.difference();
  return (difference < 0 ? "-" : "+") + metric_text(change.metric->unit, std::fabs(difference));
}

std::string noise_text(const MetricChange& change) {
  if (change.state == ChangeState::kUnclear || change.state == ChangeState::kMissing)
    return "unknown";
  if (change.metric->unit == MetricUnit::kShare) return "±" + points(change.noise, "");
  if (const auto relative = change.relative_noise(); relative && *relative < 1)
    return fmt::format("±{:.1f} %", *relative * 100);
  return "±" + metric_text(change.metric->unit, change.noise);
}

std::string_view word_of(const MetricChange& change) {
  if (change.state == ChangeState::kUnclear) return change.one_value ? "1 value" : "unclear";
  if (change.state != ChangeState::kChanged) return "same";
  if (change.metric->better == Better::kNeither) return "changed";
  return (change.difference() < 0) == (change.metric->better == Better::kLower) ? "better"
                                                                                : "worse";
}

Ink ink_of(std::string_view word) {
  return word == "better"  ? Ink::kGreen
         : word == "worse" ? Ink::kRed
         : word == "same"  ? Ink::kDim
                           : Ink::kYellow;
}

void head(TextPage& page, const Comparison& result) {
  const auto side = [&](std::string_view letter, const std::vector<std::string>& runs) {
    const std::string text = runs.size() == 1
                                 ? runs.front()
                                 : fmt::format("{} runs: {}", runs.size(), fmt::join(runs, ", "));
    page.hanging(0, fmt::format("{:<9}", letter), 11, text, Ink::kBold, Ink::kDim);
  };
  side("A before", result.runs_a);
  side("B after", result.runs_b);
  page.blank();
  std::string word = result.verdict;
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const Ink ink = result.verdict == "faster"   ? Ink::kGreen
                  : result.verdict == "slower" ? Ink::kRed
                                               : Ink::kYellow;
  page.hanging(0, word, 11, result.verdict_text, ink, Ink::kBold);
}

std::map<std::string, double> phases_of(const Comparison& result, bool of_a) {
  std::map<std::string, double> phases;
  for (const auto phase : probe::kPhaseNames) {
    const MetricChange* change = result.find(std::string(phase) + "_ms");
    const auto value = change == nullptr ? std::nullopt : of_a ? change->a : change->b;
    if (value && *value > 0) phases[std::string(phase)] = *value;
  }
  return phases;
}

// One step of each side as bars to one scale.
void picture(TextPage& page, const Comparison& result) {
  auto a = phases_of(result, true);
  auto b = phases_of(result, false);
  const auto total = [](const std::map<std::string, double>& phases) {
    double sum = 0;
    for (const auto& [unused, ms] : phases) sum += ms;
    return sum;
  };
  const double longest = std::max(total(a), total(b));
  if (!(longest > 0) || a.empty() || b.empty()) return;
  page.heading("A STEP", fmt::format("on average, stalls included; shares of {}",
                                     total(a) >= total(b) ? "A" : "B"));
  const std::size_t room = page.width() - 4;
  const auto cells = [&](double ms) {
    return std::max<std::size_t>(
        1, static_cast<std::size_t>(std::lround(ms / longest * static_cast<double>(room))));
  };
  page.line("  A " + phase_bar(page, a, cells(total(a))));
  page.line("  B " + phase_bar(page, b, cells(total(b))));
  auto& shown = total(a) >= total(b) ? a : b;
  for (auto& [unused, ms] : shown) ms /= longest;
  phase_legend(page, shown);
}

void table(TextPage& page, const Comparison& result) {
  const bool wide = page.width() >= 80;
  const std::size_t fixed = 2 * kValue + kChange + (wide ? kNoise + 2 + kWord : 0);
  const std::size_t label = page.width() > fixed + 2 ? page.width() - fixed - 2 : 1;
  page.heading("FIGURES", "");
  page.line(page.ink("  " + std::string(label, ' ') + right("A", kValue) + right("B", kValue) +
                         right("change", kChange) + (wide ? right("noise", kNoise) : ""),
                     Ink::kDim));
  std::vector<std::string> same;
  std::vector<std::string> missing;
  std::string_view layer;
  for (const auto& change : result.metrics) {
    if (change.metric->unit == MetricUnit::kCount) continue;  // the causes are listed by name
    if (change.a == 0.0 && change.b == 0.0) continue;
    if (change.state == ChangeState::kMissing) {
      missing.push_back(fmt::format("{} (only {})", change.metric->label, change.a ? "A" : "B"));
      continue;
    }
    if (change.state == ChangeState::kSame && change.metric->layer != "steps") {
      same.emplace_back(change.metric->label);
      continue;
    }
    if (layer != change.metric->layer) page.line("  " + page.ink(change.metric->layer, Ink::kDim));
    layer = change.metric->layer;
    const std::string_view word = word_of(change);
    std::string line = fit("    " + std::string(change.metric->label), label + 2) +
                       right(value_text(change, change.a), kValue) +
                       right(value_text(change, change.b), kValue);
    line += page.ink(right(difference_text(change), kChange), ink_of(word));
    if (wide)
      line += page.ink(right(noise_text(change), kNoise), Ink::kDim) + "  " +
              page.ink(word, ink_of(word));
    page.line(line);
  }
  if (!same.empty())
    page.hanging(2, "no change beyond noise:", 24, fmt::format("{}", fmt::join(same, ", ")),
                 Ink::kDim, Ink::kDim);
  if (!missing.empty())
    page.hanging(2, "seen on one side only:", 24, fmt::format("{}", fmt::join(missing, ", ")),
                 Ink::kYellow, Ink::kDim);
}

void findings(TextPage& page, const Comparison& result) {
  if (result.findings.empty()) return;
  page.heading("CAUSES", "");
  const auto ceiling = [](double share, std::size_t runs) {
    return runs == 0 ? std::string("–") : share > 0 ? "at most " + human_share(share) : "found";
  };
  for (const auto& one : result.findings) {
    const Ink ink = one.state == FindingState::kGone       ? Ink::kGreen
                    : one.state == FindingState::kAppeared ? Ink::kRed
                                                           : Ink::kYellow;
    std::string state(name(one.state));
    if (one.state == FindingState::kSometimes) {
      state = fmt::format("in {} of {} runs of A, {} of {} of B", one.in_a, result.runs_a.size(),
                          one.in_b, result.runs_b.size());
    }
    page.hanging(2, state, std::max<std::size_t>(columns(state) + 2, 10),
                 fmt::format("{}: {} → {}: {}", one.rule, ceiling(one.ceiling_a, one.in_a),
                             ceiling(one.ceiling_b, one.in_b), one.title),
                 ink);
  }
}

std::string_view name_of(GateOutcome outcome) {
  return outcome == GateOutcome::kHolds         ? "holds"
         : outcome == GateOutcome::kDoesNotHold ? "does not hold"
                                                : "cannot tell";
}

void put_gates(TextPage& page, const std::vector<GateResult>& gates) {
  if (gates.empty()) return;
  page.heading("FAIL IF", "");
  for (const auto& one : gates) {
    const Ink ink = one.outcome == GateOutcome::kDoesNotHold ? Ink::kGreen : Ink::kRed;
    page.hanging(2, name_of(one.outcome), 15, one.gate.text + ": " + one.why, ink);
  }
}

Json number(double value, MetricUnit unit) {
  if (!std::isfinite(value)) return {};
  if (unit == MetricUnit::kBytes || unit == MetricUnit::kCount)
    return static_cast<std::int64_t>(std::llround(value));
  return std::round(value * 1e4) / 1e4;
}

Json metric_json(const MetricChange& change) {
  const MetricUnit unit = change.metric->unit;
  const auto maybe = [&](const std::optional<double>& value) {
    return value ? number(*value, unit) : Json();
  };
  const bool known = change.state == ChangeState::kSame || change.state == ChangeState::kChanged;
  return {{"metric", change.metric->name},
          {"layer", change.metric->layer},
          {"a", maybe(change.a)},
          {"b", maybe(change.b)},
          {"change", change.relative() ? Json(std::round(*change.relative() * 1e4) / 1e4) : Json()},
          {"noise", known && change.relative_noise()
                        ? Json(std::round(*change.relative_noise() * 1e4) / 1e4)
                        : Json()},
          {"state", name(change.state)},
          {"word", change.state == ChangeState::kMissing ? "n/a" : word_of(change)}};
}

}  // namespace

std::string render_text(const Comparison& result, const std::vector<GateResult>& gates,
                        const TextOptions& options) {
  TextPage page(std::max<std::size_t>(options.columns, 40), options.colour);
  head(page, result);
  picture(page, result);
  table(page, result);
  findings(page, result);
  put_gates(page, gates);
  if (!result.remarks.empty()) page.heading("REMARKS", "");
  for (const auto& remark : result.remarks) page.hanging(2, "·", 2, remark, Ink::kDim);
  return page.text();
}

std::string render_json(const Comparison& result, const std::vector<GateResult>& gates) {
  const auto texts = [](const std::vector<std::string>& list) {
    Json out = Json::array();
    for (const auto& text : list) out.push_back(to_utf8(text));
    return out;
  };
  Json metrics = Json::array();
  for (const auto& change : result.metrics) metrics.push_back(metric_json(change));
  Json findings = Json::array();
  for (const auto& one : result.findings) {
    findings.push_back({{"rule", one.rule},
                        {"title", to_utf8(one.title)},
                        {"state", name(one.state)},
                        {"runs_a", one.in_a},
                        {"runs_b", one.in_b},
                        {"ceiling_a", std::round(one.ceiling_a * 1e4) / 1e4},
                        {"ceiling_b", std::round(one.ceiling_b * 1e4) / 1e4}});
  }
  Json fail_if = Json::array();
  for (const auto& one : gates)
    fail_if.push_back(
        {{"condition", one.gate.text}, {"outcome", name_of(one.outcome)}, {"why", one.why}});
  const Json out = {{"schema", 1},
                    {"a", texts(result.runs_a)},
                    {"b", texts(result.runs_b)},
                    {"verdict", {{"status", result.verdict}, {"text", result.verdict_text}}},
                    {"metrics", metrics},
                    {"findings", findings},
                    {"fail_if", fail_if},
                    {"remarks", texts(result.remarks)}};
  return out.dump(2) + "\n";
}

}  // namespace bedplate::doctor
