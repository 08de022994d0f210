// bedplate completion: a script that teaches the shell bedplate's commands and options.
#include "cli/completion.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/output.h"

namespace bedplate::cli {
namespace {

std::function<int()> declare(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("SHELL", *shell, "bash, zsh or fish")->required();
  return [shell] {
    print(completion_script(*shell));
    return kExitFine;
  };
}

}  // namespace

extern const Command kCompletion = {
    .name = "completion",
    .summary = "completion of commands and options for bash, zsh or fish",
    .examples =
        "bedplate completion bash >> ~/.bash_completion\n"
        "bedplate completion zsh | install -Dm644 /dev/stdin ~/.zfunc/_bedplate  # with ~/.zfunc "
        "in fpath\n"
        "bedplate completion fish | install -Dm644 /dev/stdin "
        "~/.config/fish/completions/bedplate.fish",
    .declare = declare,
    .group = kGroupSelf,
};

}  // namespace bedplate::cli
