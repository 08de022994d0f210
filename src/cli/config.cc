#include "cli/config.h"

#include <fmt/format.h>

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "doctor/layout.h"
#include "doctor/rule.h"
#include "doctor/verdict.h"

namespace bedplate::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTables[] = {"thresholds"};

std::vector<const doctor::Threshold*> all_thresholds() {
  std::vector<const doctor::Threshold*> all;
  for (const doctor::Rule* rule : doctor::all_rules()) {
    for (const auto& threshold : rule->thresholds) all.push_back(&threshold);
  }
  for (const auto& threshold : doctor::verdict_thresholds()) all.push_back(&threshold);
  return all;
}

std::string place(std::string_view file, const toml::source_region& source) {
  return fmt::format("{}:{}", to_utf8(file), source.begin.line);
}

// Keys may be written quoted, dotted or as tables of tables: all come out dotted.
void flatten(const toml::table& table, const std::string& prefix, std::string_view file,
             std::map<std::string, double>& out, std::map<std::string, std::string>& places) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const auto* inner = node.as_table()) {
      flatten(*inner, name + ".", file, out, places);
      continue;
    }
    const auto number = node.is_number() ? node.value<double>() : std::nullopt;
    if (!number)
      throw Error(Code::kInvalid, "{}: {} must be a number", place(file, node.source()),
                  to_utf8(name));
    out[name] = *number;
    places[name] = place(file, node.source());
  }
}

// The file of the user, when nobody named one; empty when there is no home.
fs::path usual_file() {
  const auto from = [](const char* variable) {
    const char* value = std::getenv(variable);
    return fs::path(value == nullptr ? "" : value);
  };
  if (const auto folder = from("XDG_CONFIG_HOME"); folder.is_absolute())
    return folder / "bedplate.toml";
  if (const auto home = from("HOME"); home.is_absolute()) return home / ".config" / "bedplate.toml";
  return {};
}

std::string read_file(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error))
    throw Error(Code::kNotFound, "there is no configuration file {}", to_utf8(path.string()));
  if (!fs::is_regular_file(path, error) && path != "/dev/null") {
    throw Error(Code::kInvalid, "the configuration file {} is not a regular file",
                to_utf8(path.string()));
  }
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in)
    throw Error(Code::kPermission, "cannot read the configuration file {}", to_utf8(path.string()));
  return text.str();
}

double value_of(const doctor::Threshold& threshold, const Config& config) {
  const auto given = config.thresholds.find(threshold.key);
  return given == config.thresholds.end() ? threshold.value : given->second;
}

}  // namespace

Config parse_config(std::string_view text, std::string_view file) {
  Config config;
  config.file = file;
  toml::table root;
  try {
    root = toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    throw Error(Code::kInvalid, "{}: {}", place(file, error.source()),
                to_utf8(error.description()));
  }
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    if (std::find(std::begin(kTables), std::end(kTables), name) == std::end(kTables)) {
      const auto nearest = nearest_name(name, kTables);
      throw Error(Code::kInvalid, "{}: there is no table {}{}; the only one is [thresholds]",
                  place(file, node.source()), to_utf8(name),
                  nearest.empty() ? std::string() : fmt::format(" (did you mean {}?)", nearest));
    }
    if (!node.is_table())
      throw Error(Code::kInvalid, "{}: {} is a table: write [{}]", place(file, node.source()), name,
                  name);
  }
  if (const auto* thresholds = root["thresholds"].as_table()) {
    std::map<std::string, double> given;
    std::map<std::string, std::string> places;
    flatten(*thresholds, "", file, given, places);
    for (const auto& [key, value] : given) {
      try {
        config.thresholds.merge(doctor::check_thresholds({{key, value}}));
      } catch (const Error& error) {
        throw Error(error.code(), "{}: {}", places.at(key), to_utf8(error.what()));
      }
    }
  }
  return config;
}

Config load_config(std::string_view given) {
  fs::path path(given);
  if (path.empty()) {
    if (const char* named = std::getenv("BEDPLATE_CONFIG"); named != nullptr && *named != '\0')
      path = named;
  }
  if (path.empty()) {
    path = usual_file();
    std::error_code error;
    if (path.empty() || !fs::exists(path, error)) return {};
  }
  return parse_config(read_file(path), path.string());
}

void add_config_option(CLI::App& app, std::string& value) {
  app.add_option("--config", value,
                 "configuration file (default: $BEDPLATE_CONFIG, then ~/.config/bedplate.toml)")
      ->type_name("FILE");
}

std::string explain_key(std::string_view key, const Config& config) {
  for (const auto* threshold : all_thresholds()) {
    if (threshold->key != key) continue;
    const bool changed = config.thresholds.contains(threshold->key);
    std::string text =
        fmt::format("{} = {} {}\n", key, value_of(*threshold, config), threshold->unit);
    if (changed)
      text += fmt::format("  set in {}; built in: {}\n", to_utf8(config.file), threshold->value);
    for (const auto& line : doctor::wrap(threshold->why, 98)) text += "  " + line + "\n";
    return text;
  }
  doctor::check_thresholds({{std::string(key), 0}});  // names the nearest
  throw Error(Code::kInternal, "the threshold {} is known but not listed", key);
}

std::string show_config(const Config& config) {
  std::string text = config.file.empty() ? "# no configuration file: all is as built in\n"
                                         : fmt::format("# {}\n", doctor::printable(config.file));
  text += "[thresholds]\n";
  for (const auto* threshold : all_thresholds()) {
    const bool changed = config.thresholds.contains(threshold->key);
    const std::string line = fmt::format("{} = {}", threshold->key, value_of(*threshold, config));
    text += fmt::format("{:<48}  # {}{}\n", line, threshold->unit,
                        changed ? fmt::format("; built in: {}", threshold->value) : "");
  }
  return text;
}

}  // namespace bedplate::cli
