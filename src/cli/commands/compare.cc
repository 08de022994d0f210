// bedplate compare: what changed between two runs, and the regression gate.
#include "doctor/compare.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/config.h"
#include "cli/output.h"
#include "doctor/compare_render.h"
#include "doctor/fail_if.h"

namespace bedplate::cli {
namespace {

struct CompareOptions {
  std::string a;
  std::string b;
  std::vector<std::string> fail_if;
  std::string config;
  bool json = false;
  bool metrics = false;
};

int list_metrics() {
  std::string text;
  for (const auto& metric : doctor::all_metrics())
    text += fmt::format("{:<24} {}\n", metric.name, metric.label);
  print(text + "and the id of each rule: its gain ceiling, 0 when it did not fire\n");
  return kExitFine;
}

int exit_code(const std::vector<doctor::GateResult>& gates) {
  const auto any = [&](doctor::GateOutcome outcome) {
    return std::any_of(gates.begin(), gates.end(),
                       [&](const auto& gate) { return gate.outcome == outcome; });
  };
  if (any(doctor::GateOutcome::kHolds)) return kExitFindings;
  return any(doctor::GateOutcome::kCannotTell) ? kExitEnvironment : kExitFine;
}

int compare(const CompareOptions& options) {
  if (options.metrics) return list_metrics();
  if (options.a.empty() || options.b.empty())
    throw Error(Code::kInvalid, "compare takes two runs: A, before, and B, after");
  std::vector<doctor::Gate>
      conditions;  // all are read before the runs are, so that a mistake shows at once
  for (const auto& text : options.fail_if) conditions.push_back(doctor::parse_gate(text));
  const Config config = load_config(options.config);
  const auto result = doctor::compare(doctor::load_runs(options.a, config.thresholds),
                                      doctor::load_runs(options.b, config.thresholds));
  std::vector<doctor::GateResult> gates;
  for (const auto& condition : conditions) gates.push_back(doctor::evaluate(condition, result));
  print(options.json ? doctor::render_json(result, gates)
                     : doctor::render_text(result, gates, doctor::text_options_for(STDOUT_FILENO)));
  return exit_code(gates);
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<CompareOptions>();
  app.add_option("A", options->a,
                 "the run before: a run folder, a folder of them, or several with commas between");
  app.add_option("B", options->b, "the run after, in the same way");
  app.add_option("--fail-if", options->fail_if,
                 "METRIC OP NUMBER[%]: exit with 1 when it holds, with 3 when it cannot be told; "
                 "may be given again")
      ->type_name("CONDITION")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--json", options->json, "the comparison as JSON");
  app.add_flag("--metrics", options->metrics, "list the metrics that --fail-if knows");
  add_config_option(app, options->config);
  return [options] { return compare(*options); };
}

}  // namespace

extern const Command kCompare = {
    .name = "compare",
    .summary = "say what changed between two runs, layer by layer, and fail on a regression",
    .examples =
        "bedplate compare before after\n"
        "bedplate compare before after --fail-if 'step_ms > 500%'\n"
        "bedplate compare before,before after --json",
    .declare = declare,
    .group = kGroupRuns,
};

}  // namespace bedplate::cli
