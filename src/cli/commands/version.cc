// bedplate version: what this is and what it was built with.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/output.h"

namespace bedplate::cli {
namespace {

struct VersionOptions {
  bool features = false;
  bool json = false;
};

std::string as_json() {
  nlohmann::ordered_json all = {{"version", version()}, {"features", nlohmann::json::object()}};
  for (const auto& feature : features()) {
    all["features"][std::string(feature.name)] = {{"on", feature.on}, {"note", feature.note}};
  }
  return all.dump(2) + "\n";
}

std::string as_text(const VersionOptions& options) {
  std::string text = fmt::format("bedplate {}\n", version());
  if (!options.features) return text;
  for (const auto& feature : features()) {
    text += fmt::format("  {:<10} {}", feature.name, feature.on ? "on" : "off");
    if (!feature.note.empty()) text += fmt::format(": {}", feature.note);
    text += "\n";
  }
  return text;
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<VersionOptions>();
  app.add_flag("--features", options->features,
               "optional parts: which are in, and why others are not");
  app.add_flag("--json", options->json, "the same as JSON, features included");
  return [options] {
    print(options->json ? as_json() : as_text(*options));
    return kExitFine;
  };
}

}  // namespace

extern const Command kVersion = {
    .name = "version",
    .summary = "what this program is and what it was built with",
    .examples = "bedplate version --features",
    .declare = declare,
    .group = kGroupSelf,
};

}  // namespace bedplate::cli
