// bedplate config: the configuration in force, and what its keys mean.
#include "cli/config.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/output.h"

namespace bedplate::cli {
namespace {

struct ConfigOptions {
  std::string action;
  std::string key;
  std::string config;
};

int run(const ConfigOptions& options) {
  const Config config = load_config(options.config);
  if (options.action == "show") {
    if (!options.key.empty())
      throw Error(Code::kInvalid,
                  "`config show` takes no key; `bedplate config explain {}` tells of one",
                  options.key);
    print(show_config(config));
  } else {
    if (options.key.empty())
      throw Error(Code::kInvalid, "which key? `bedplate config show` lists them");
    print(explain_key(options.key, config));
  }
  return kExitFine;
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<ConfigOptions>();
  app.add_option("ACTION", options->action,
                 "show: all keys with their values; explain: what one key means")
      ->required()
      ->check(CLI::IsMember({"show", "explain"}));
  app.add_option("KEY", options->key, "with explain: the key");
  add_config_option(app, options->config);
  return [options] { return run(*options); };
}

}  // namespace

extern const Command kConfig = {
    .name = "config",
    .summary = "show the configuration in force, or explain one of its keys",
    .examples =
        "bedplate config show\n"
        "bedplate config explain cpu_quota.throttled_share",
    .declare = declare,
    .group = kGroupSelf,
};

}  // namespace bedplate::cli
