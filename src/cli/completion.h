// Completion scripts for shells, made from the commands' own declarations.
#pragma once

#include <string>

namespace bedplate::cli {

// `shell`: "bash", "zsh" or "fish"; throws Error{kInvalid} for another.
std::string completion_script(const std::string& shell);

}  // namespace bedplate::cli
