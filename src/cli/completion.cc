#include "cli/completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/program.h"

namespace bedplate::cli {
namespace {

enum class Value { kNone, kFolder, kFile, kOther };  // what follows an option

struct OptionFacts {
  std::vector<std::string> names;  // "-h", "--help"
  Value value = Value::kNone;
  std::string value_name;  // "DIR"
  std::string what;
};

struct CommandFacts {
  std::string name;  // the last word of it
  std::string what;
  bool with_job = false;
  std::vector<OptionFacts> options;
  std::vector<CommandFacts> family;
};

Value value_of(const std::string& type) {
  if (type == "DIR") return Value::kFolder;
  if (type == "FILE" || type == "RUN") return Value::kFile;
  return Value::kOther;
}

std::vector<CommandFacts> facts_of(std::span<const Command* const> commands) {
  std::vector<CommandFacts> all;
  for (const auto* command : commands) {
    CommandFacts facts{.name = std::string(command->last_name()),
                       .what = std::string(command->summary),
                       .with_job = command->declare_with_job != nullptr};
    if (command->family) facts.family = facts_of(command->family());
    const auto app = declared_options(*command);
    for (const auto* option : app->get_options()) {
      if (option->get_positional()) continue;
      OptionFacts each;
      for (const auto& name : option->get_snames()) each.names.push_back("-" + name);
      for (const auto& name : option->get_lnames()) each.names.push_back("--" + name);
      each.what = option->get_description();
      if (option->get_expected_max() > 0) {
        const auto type = option->get_type_name();
        each.value_name = type.substr(0, type.find(':'));
        each.value = value_of(each.value_name);
      }
      facts.options.push_back(std::move(each));
    }
    all.push_back(std::move(facts));
  }
  return all;
}

std::string names_of(const std::vector<CommandFacts>& all) {
  std::vector<std::string> names;
  for (const auto& command : all) names.push_back(command.name);
  return fmt::format("{}", fmt::join(names, " "));
}

// ---- bash ----

constexpr const char* kBashJob = R"(      for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
          if declare -F _command_offset >/dev/null; then
            _command_offset $((i + 1))
          elif ((i + 1 == COMP_CWORD)); then
            mapfile -t COMPREPLY < <(compgen -c -- "$cur")
          fi
          return
        fi
      done
)";

std::string bash_case(const CommandFacts& command, int depth);

// The names at word `depth`, and what comes behind each.
std::string bash_words(const std::vector<CommandFacts>& commands, std::string_view options,
                       int depth) {
  std::string text = fmt::format(
      "  if ((COMP_CWORD == {0})); then\n"
      "    mapfile -t COMPREPLY < <(compgen -W '{1} {2}' -- \"$cur\")\n"
      "    return\n"
      "  fi\n"
      "  case ${{COMP_WORDS[{0}]}} in\n",
      depth, names_of(commands), options);
  for (const auto& command : commands) text += bash_case(command, depth);
  return text + "  esac\n";
}

std::string bash_case(const CommandFacts& command, int depth) {
  if (!command.family.empty()) {
    return fmt::format("    {})\n{}      ;;\n", command.name,
                       bash_words(command.family, "--help", depth + 1));
  }
  std::vector<std::string> options;
  std::string values;
  for (const auto& option : command.options) {
    options.insert(options.end(), option.names.begin(), option.names.end());
    if (option.value == Value::kNone) continue;
    const auto how =
        option.value == Value::kFolder ? "mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"); "
        : option.value == Value::kFile ? "mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); "
                                       : "";
    values += fmt::format("        {}) {}return ;;\n", fmt::join(option.names, "|"), how);
  }
  if (command.with_job) options.emplace_back("--");
  std::string text = fmt::format("    {})\n{}", command.name, command.with_job ? kBashJob : "");
  if (!values.empty()) text += fmt::format("      case $prev in\n{}      esac\n", values);
  // Anything that does not look like an option falls through to file names (-o default).
  return text +
         fmt::format(
             "      [[ $cur == -* ]] && mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$cur\")\n"
             "      ;;\n",
             fmt::join(options, " "));
}

std::string bash(const std::vector<CommandFacts>& all) {
  return fmt::format(
      "# bash completion for bedplate; made by `bedplate completion bash`.\n"
      "_bedplate() {{\n"
      "  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} i\n"
      "  COMPREPLY=()\n"
      "{}  return 0\n}}\ncomplete -o default -F _bedplate bedplate\n",
      bash_words(all, "--help --version", 1));
}

// ---- zsh ----

// For the inside of a single-quoted _arguments specification.
std::string zsh_text(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted;
}

// Offers the names at the second word, or goes on with what comes behind the one that is there.
std::string zsh_words(const std::vector<CommandFacts>& commands, std::string_view list) {
  std::string text = fmt::format("  local -a {}=(\n", list);
  for (const auto& command : commands)
    text += fmt::format("    '{}:{}'\n", command.name, zsh_text(command.what));
  text += fmt::format(
      "  )\n  if ((CURRENT == 2)); then\n    _describe command {}\n    return\n  fi\n"
      "  case ${{words[2]}} in\n",
      list);
  for (const auto& command : commands) {
    text += fmt::format("    {})\n      shift words\n      ((CURRENT--))\n", command.name);
    if (!command.family.empty()) {
      text += zsh_words(command.family, command.name + "_names") + "      ;;\n";
      continue;
    }
    if (command.with_job) {
      text +=
          "      local dashes=${words[(ie)--]}\n"
          "      if ((dashes < CURRENT)); then\n"
          "        shift $dashes words\n        ((CURRENT -= dashes))\n        _normal -p "
          "bedplate\n        "
          "return\n"
          "      fi\n";
    }
    text += "      _arguments \\\n";
    for (const auto& option : command.options) {
      const std::string value = option.value == Value::kNone ? ""
                                : option.value == Value::kFolder
                                    ? ":" + option.value_name + ":_files -/"
                                : option.value == Value::kFile ? ":" + option.value_name + ":_files"
                                                               : ":" + option.value_name + ": ";
      for (const auto& name : option.names) {
        text += fmt::format("        '{}[{}]{}' \\\n", name, zsh_text(option.what), value);
      }
    }
    text += "        '*:file:_files'\n      ;;\n";
  }
  return text + "  esac\n";
}

std::string zsh(const std::vector<CommandFacts>& all) {
  return fmt::format(
      "#compdef bedplate\n# zsh completion for bedplate; made by `bedplate completion zsh`.\n"
      "_bedplate() {{\n{}}}\nif [[ $funcstack[1] == _bedplate ]]; then _bedplate; else compdef "
      "_bedplate bedplate; fi\n",
      zsh_words(all, "names"));
}

// ---- fish ----

std::string fish_text(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

// After the "--", the job's own completions.
constexpr const char* kFishJob = R"(function __bedplate_job
  set -l tokens (commandline -opc)
  set -l dashes (contains -i -- -- $tokens)
  set -l job (string escape -- $tokens[(math $dashes + 1)..-1]) (commandline -ct)
  complete -C (string join ' ' -- $job)
end
)";

// `behind`: a condition that holds behind the names so far; `here`: one that holds where the next
// name is to be written.
std::string fish_command(const CommandFacts& command, const std::string& behind,
                         const std::string& here) {
  const std::string seen = fmt::format("{}__fish_seen_subcommand_from {}", behind, command.name);
  std::string text = fmt::format("complete -c bedplate -n '{}' -f -a {} -d {}\n", here,
                                 command.name, fish_text(command.what));
  std::vector<std::string> names;
  for (const auto& member : command.family) names.push_back(member.name);
  for (const auto& member : command.family) {
    text += fish_command(
        member, seen + "; and ",
        fmt::format("{}; and not __fish_seen_subcommand_from {}", seen, fmt::join(names, " ")));
  }
  if (!command.family.empty()) return text;
  const auto condition = fmt::format(
      "'{}{}'", seen, command.with_job ? "; and not contains -- -- (commandline -opc)" : "");
  for (const auto& option : command.options) {
    std::string line = fmt::format("complete -c bedplate -n {}", condition);
    for (const auto& name : option.names) {
      line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    switch (option.value) {
      case Value::kNone:
        break;
      case Value::kFolder:
        line += " -x -a '(__fish_complete_directories)'";
        break;
      case Value::kFile:
        line += " -r -F";
        break;
      case Value::kOther:
        line += " -x";
        break;
    }
    text += fmt::format("{} -d {}\n", line, fish_text(option.what));
  }
  if (command.with_job) {
    text += fmt::format(
        "complete -c bedplate -n '{}; and contains -- -- (commandline -opc)' -x -a "
        "'(__bedplate_job)'\n",
        seen);
  }
  return text;
}

std::string fish(const std::vector<CommandFacts>& all) {
  std::string text = fmt::format(
      "# fish completion for bedplate; made by `bedplate completion fish`.\n{}"
      "complete -c bedplate -n __fish_use_subcommand -f -l help -d 'help'\n"
      "complete -c bedplate -n __fish_use_subcommand -f -l version -d 'version'\n",
      kFishJob);
  for (const auto& command : all) text += fish_command(command, "", "__fish_use_subcommand");
  return text;
}

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return bash(facts_of(all_commands()));
  if (shell == "zsh") return zsh(facts_of(all_commands()));
  if (shell == "fish") return fish(facts_of(all_commands()));
  throw Error(Code::kInvalid, "no completion for {}: give bash, zsh or fish", to_utf8(shell));
}

}  // namespace bedplate::cli
