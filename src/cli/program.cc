#include "cli/program.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "cli/build_info.h"
#include "cli/output.h"

namespace bedplate::cli {
namespace {

int usage_error(std::string_view text, std::string_view command = {}) {
  say(text);
  const std::string of = command.empty() ? std::string() : fmt::format(" {}", command);
  say(fmt::format("see: bedplate{} --help", of));
  return kExitUsage;
}

std::string did_you_mean(std::string_view given, const std::vector<std::string>& known) {
  const std::vector<std::string_view> views(known.begin(), known.end());
  const auto nearest = nearest_name(given, views);
  return nearest.empty() ? std::string() : fmt::format("; did you mean {}?", nearest);
}

using Commands = std::span<const Command* const>;

std::vector<std::string> names_of(Commands commands) {
  std::vector<std::string> names;
  for (const auto* command : commands) names.emplace_back(command->last_name());
  return names;
}

const Command* find_command(std::string_view name, Commands commands) {
  for (const auto* command : commands) {
    if (command->last_name() == name) return command;
  }
  return nullptr;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    for (const auto& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

bool is_flag(const CLI::Option& option) { return option.get_expected_max() == 0; }

// "--out DIR", "-q, --quiet", "RUN".
std::string how_to_write(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  std::vector<std::string> names;
  for (const auto& name : option.get_snames()) names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) names.push_back("--" + name);
  const std::string all = fmt::format("{}", fmt::join(names, ", "));
  if (is_flag(option)) return all;
  const auto type = option.get_type_name();  // "N:FLOAT in [0.1 - 20]" with a check
  return fmt::format("{} {}", all, type.substr(0, type.find(':')));
}

// `text` broken between words so that no line is longer than `width`.
std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines{""};
  for (const auto word : words(text)) {
    auto& line = lines.back();
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width) {
      lines.emplace_back(word);
    } else {
      if (!line.empty()) line += ' ';
      line += word;
    }
  }
  return lines;
}

std::string table(const std::vector<std::pair<std::string, std::string>>& rows) {
  constexpr std::size_t kWidest = 26;
  constexpr std::size_t kColumns = 100;
  std::size_t left = 0;
  for (const auto& row : rows) left = std::max(left, std::min(kWidest, display_width(row.first)));
  std::string text;
  for (const auto& [name, what] : rows) {
    const auto lines = wrap(what, kColumns - left - 4);
    const std::size_t pad = display_width(name) > left ? 0 : left - display_width(name);
    text += fmt::format("  {}{}  {}\n", name, std::string(pad, ' '), lines.front());
    for (std::size_t i = 1; i < lines.size(); ++i) {
      text += fmt::format("{}{}\n", std::string(left + 4, ' '), lines[i]);
    }
  }
  return text;
}

std::string indented(std::string_view lines) {
  std::string text;
  for (const auto line : split(lines, '\n')) {
    if (!trim(line).empty()) text += fmt::format("  {}\n", line);
  }
  return text;
}

std::string command_help(const Command& command, const CLI::App& app) {
  std::string usage = fmt::format("bedplate {} [options]", command.name);
  std::vector<std::pair<std::string, std::string>> positionals;
  std::vector<std::pair<std::string, std::string>> options;
  for (const auto* option : app.get_options()) {
    const auto how = how_to_write(*option);
    if (option->get_positional()) {
      if (command.usage.empty()) {
        usage += option->get_required() ? " " + how : fmt::format(" [{}]", how);
        if (option->get_expected_max() > 1) usage += "…";
      }
      positionals.emplace_back(how, option->get_description());
    } else {
      options.emplace_back(how, option->get_description());
    }
  }
  if (!command.usage.empty()) usage += fmt::format(" {}", command.usage);
  if (command.declare_with_job) usage += " -- COMMAND [ARGUMENT]…";
  std::string text =
      fmt::format("bedplate {}: {}\n\nUsage: {}\n", command.name, command.summary, usage);
  if (!positionals.empty()) text += "\n" + table(positionals);
  text += "\nOptions:\n" + table(options);
  if (!command.examples.empty()) text += "\nExamples:\n" + indented(command.examples);
  return text;
}

std::string family_help(const Command& command) {
  std::vector<std::pair<std::string, std::string>> rows;
  std::string examples;
  for (const auto* member : command.family()) {
    rows.emplace_back(member->last_name(), member->summary);
    examples += fmt::format("{}\n", member->examples.substr(0, member->examples.find('\n')));
  }
  return fmt::format(
      "bedplate {0}: {1}\n\nUsage: bedplate {0} COMMAND [options]\n\n{2}\nExamples:\n{3}\n"
      "bedplate {0} COMMAND --help says more.\n",
      command.name, command.summary, table(rows), indented(examples));
}

struct Declared {
  std::unique_ptr<CLI::App> app;
  std::function<int(std::vector<std::string>)> act;
};

Declared declare(const Command& command) {
  Declared declared;
  declared.app = std::make_unique<CLI::App>(std::string(command.summary),
                                            fmt::format("bedplate {}", command.name));
  declared.app->set_help_flag("-h,--help", "this text");
  declared.app->allow_extras();  // named by us, with the nearest known name
  if (command.family) {
    declared.act = {};  // its members have options
  } else if (command.declare_with_job) {
    declared.act = command.declare_with_job(*declared.app);
  } else {
    declared.act = [act = command.declare(*declared.app)](std::vector<std::string>) {
      return act();
    };
  }
  return declared;
}

// An option that was given with nothing, as a script does whose variable is empty: --out "$FOLDER".
std::optional<std::string> empty_option(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional() && option->get_expected_min() > 0 && option->count() > 0 &&
        option->results().back().empty())
      return fmt::format("{} has an empty value", option->get_name());
  }
  return std::nullopt;
}

// What the options did not take; nullopt when there is nothing wrong with that.
std::optional<std::string> complaint(const CLI::App& app, bool with_job) {
  const auto extras = app.remaining();
  for (const auto& extra : extras) {
    const bool is_option = extra.size() >= 2 && extra[0] == '-' && extra != "--";
    if (is_option) {
      const auto name = extra.substr(0, extra.find('='));
      return fmt::format("unknown option {}{}", to_utf8(name),
                         did_you_mean(name, option_names(app)));
    }
    if (with_job) break;  // what follows is the job's
  }
  for (const auto& extra : extras) {
    if (extra == "--") continue;
    if (!with_job) return fmt::format("unexpected argument {}", to_utf8(extra));
    return fmt::format("the job comes after --, as in: {} -- {}", app.get_name(),
                       to_utf8(shell_join(extras)));
  }
  return std::nullopt;
}

int run_command(const Command& command, std::span<const char* const> rest) {
  const bool with_job = command.declare_with_job != nullptr;
  const auto dashes = with_job ? std::ranges::find(rest, std::string_view("--")) : rest.end();
  std::vector<std::string> job;
  if (dashes != rest.end()) job.assign(dashes + 1, rest.end());
  std::vector<std::string> own(rest.begin(), dashes);
  std::ranges::reverse(own);  // as CLI11 wants them

  auto declared = declare(command);
  try {
    declared.app->parse(std::move(own));
  } catch (const CLI::CallForHelp&) {
    print(command_help(command, *declared.app));
    return kExitFine;
  } catch (const CLI::ParseError& error) {
    const auto wrong = complaint(*declared.app, with_job);
    return usage_error(wrong ? *wrong : to_utf8(error.what()), command.name);
  }
  if (const auto wrong = complaint(*declared.app, with_job))
    return usage_error(*wrong, command.name);
  if (const auto wrong = empty_option(*declared.app)) return usage_error(*wrong, command.name);
  if (with_job && job.empty()) {
    return usage_error(
        fmt::format("no command was given, as in: bedplate {} -- python train.py", command.name),
        command.name);
  }
  return declared.act(std::move(job));
}

int exit_code_of(Code code) {
  switch (code) {
    case Code::kInvalid:
    case Code::kExists:
      return kExitUsage;
    case Code::kInternal:
      return kExitInternal;
    default:
      return kExitEnvironment;
  }
}

int run_member(const Command& family, std::span<const char* const> rest) {
  const std::string_view name = rest.empty() ? "" : rest.front();
  if (name == "--help" || name == "-h" || (name == "help" && rest.size() == 1)) {
    print(family_help(family));
    return kExitFine;
  }
  const auto names = names_of(family.family());
  if (name.empty()) {
    return usage_error(
        fmt::format("bedplate {} is followed by one of: {}", family.name, fmt::join(names, ", ")),
        family.name);
  }
  if (name.starts_with("-")) {
    return usage_error(
        fmt::format("unknown option {}{}", to_utf8(name), did_you_mean(name, {"--help"})),
        family.name);
  }
  const char* const help[] = {"--help"};
  const bool asks = name == "help";
  const std::string_view wanted = asks ? rest[1] : name;
  const auto* member = find_command(wanted, family.family());
  if (!member) {
    const auto hint = did_you_mean(wanted, names);
    return usage_error(
        fmt::format("bedplate {} has no command {}{}", family.name, to_utf8(wanted),
                    hint.empty() ? fmt::format("; there are {}", fmt::join(names, ", ")) : hint),
        family.name);
  }
  return run_command(*member, asks ? std::span<const char* const>(help) : rest.subspan(1));
}

int run(const Command& command, std::span<const char* const> rest) {
  return command.family ? run_member(command, rest) : run_command(command, rest);
}

int dispatch(std::span<const char* const> arguments) {
  const std::string_view first = arguments.size() > 1 ? arguments[1] : "";
  const bool lone_help = first == "help" && arguments.size() == 2;
  if (first == "--help" || first == "-h" || lone_help) {
    print(help_text());
    return kExitFine;
  }
  if (first == "--version" || first == "-V") {
    print(fmt::format("bedplate {}\n", version()));
    return kExitFine;
  }
  if (arguments.size() < 2) {
    say("no command was given");
    return usage_error(fmt::format("commands: {}", fmt::join(names_of(all_commands()), ", ")));
  }
  if (first == "help") {
    if (const auto* command = find_command(arguments[2], all_commands())) {
      const bool of_member = command->family && arguments.size() > 3;
      const char* const help[] = {of_member ? arguments[3] : "--help", "--help"};
      return run(*command, std::span(help).first(of_member ? 2 : 1));
    }
  }
  const std::string_view name = first == "help" ? arguments[2] : first;
  if (name.starts_with("-")) {
    return usage_error(fmt::format("unknown option {}{}", to_utf8(name),
                                   did_you_mean(name, {"--help", "--version"})));
  }
  const auto* command = find_command(name, all_commands());
  if (!command) {
    auto hint = did_you_mean(name, names_of(all_commands()));
    if (hint.empty() && first != "help") {
      const std::vector<std::string> job(arguments.begin() + 1, arguments.end());
      hint = fmt::format("; a job is run by: bedplate run -- {}", to_utf8(shell_join(job)));
    }
    return usage_error(fmt::format("unknown command {}{}", to_utf8(name), hint));
  }
  return run(*command, arguments.subspan(2));
}

}  // namespace

std::unique_ptr<CLI::App> declared_options(const Command& command) { return declare(command).app; }

std::string help_text() {
  std::string text =
      "Bedplate finds the wall that an AI training job runs into.\n\n"
      "Usage: bedplate COMMAND [options]\n";
  std::vector<std::string_view> groups;
  for (const auto* command : all_commands()) {
    if (std::ranges::find(groups, command->group) == groups.end()) groups.push_back(command->group);
  }
  for (const auto group : groups) {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const auto* command : all_commands()) {
      if (command->group == group) rows.emplace_back(command->name, command->summary);
    }
    text += fmt::format("\n{}:\n{}", group, table(rows));
  }
  std::string examples;
  for (const auto* command : all_commands()) {
    const auto first = command->examples.substr(0, command->examples.find('\n'));
    if (!first.empty()) examples += fmt::format("{}\n", first);
  }
  text += "\nExamples:\n" + indented(examples);
  text += "\nbedplate COMMAND --help says more; bedplate --version says which this is.\n";
  return text;
}

int run_program(std::span<const char* const> arguments) {
  try {
    return dispatch(arguments);
  } catch (const Error& error) {
    say(to_utf8(error.what()));
    return exit_code_of(error.code());
  } catch (const std::exception& error) {
    say(fmt::format("internal error: {}", to_utf8(error.what())));
    return kExitInternal;
  }
}

}  // namespace bedplate::cli
