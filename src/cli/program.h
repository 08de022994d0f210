// `bedplate` as a function: finds the command, parses its options, runs it, says what was wrong.
//
//   int main(int argc, char** argv) { return bedplate::cli::run_program({argv, argv + argc}); }
//
// Usage errors name the nearest command or option and give exit code 2. Everything that is not data
// goes to stderr. Not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "cli/command.h"

namespace bedplate::cli {

int run_program(std::span<const char* const> arguments);

// A command's options, declared on an App of their own: for help and completion.
std::unique_ptr<CLI::App> declared_options(const Command& command);

std::string help_text();

}  // namespace bedplate::cli
