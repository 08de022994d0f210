// The configuration file: one TOML file, whose unknown keys are errors.
//
//   [thresholds]
//   cpu_quota.throttled_share = 0.2     # over the rule's own; `bedplate config explain
//   cpu_quota.throttled_share`
//
// Which file: the --config option, else $BEDPLATE_CONFIG, else $XDG_CONFIG_HOME/bedplate.toml, else
// ~/.config/bedplate.toml. Only of the last two it is fine that they do not exist.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "doctor/judge.h"

namespace CLI {
class App;
}

namespace bedplate::cli {

struct Config {
  doctor::Thresholds thresholds;
  std::string file;  // where it came from; empty: there is none, all is as built in
};

// `given`: the option's value, empty when it was not used. Throws Error{kNotFound | kInvalid |
// kPermission}; the message names the file and the line, and for an unknown key the nearest one.
Config load_config(std::string_view given = {});

// From the text of a file; `file` is for messages.
Config parse_config(std::string_view text, std::string_view file);

// Declares --config FILE.
void add_config_option(CLI::App& app, std::string& value);

// What a key means: its value now, its built-in value, unit, and why it has that. Throws
// Error{kInvalid} for no such key.
std::string explain_key(std::string_view key, const Config& config);

// All keys with their values, as a configuration file that would give exactly this.
std::string show_config(const Config& config);

}  // namespace bedplate::cli
