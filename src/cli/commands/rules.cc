// bedplate rules: the causes that Bedplate knows, with their signals, thresholds and remedies.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/output.h"
#include "doctor/catalogue.h"

namespace bedplate::cli {
namespace {

struct RulesOptions {
  std::string rule;
  bool markdown = false;
  bool json = false;
};

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<RulesOptions>();
  app.add_option("RULE", options->rule, "everything about this one; left out: one line a rule");
  auto* markdown =
      app.add_flag("--markdown", options->markdown,
                   "all rules as the catalogue and the symptom index of docs/doctor.md");
  app.add_flag("--json", options->json, "all rules as JSON")->excludes(markdown);
  return [options] {
    print(options->markdown ? doctor::catalogue_markdown()
          : options->json   ? doctor::catalogue_json()
                            : doctor::catalogue_text(options->rule));
    return kExitFine;
  };
}

}  // namespace

extern const Command kRules = {
    .name = "rules",
    .summary = "the causes that Bedplate knows: signals, thresholds, how to verify and mend each",
    .examples =
        "bedplate rules\n"
        "bedplate rules cpu_quota  # everything about one",
    .declare = declare,
    .group = kGroupSelf,
};

}  // namespace bedplate::cli
