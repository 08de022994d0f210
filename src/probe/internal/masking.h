// Command lines as they may be stored: without the secrets that people put there.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace bedplate::probe {

// The arguments as a shell would take them, valid UTF-8, at most `most` bytes ("…" where it was
// cut). Masked with "***": the value of an option or variable whose name speaks of a secret
// (--token X, --api-key=X, HF_TOKEN=X), and passwords in URLs.
std::string masked_command(std::span<const std::string_view> arguments, std::size_t most = 4096);

}  // namespace bedplate::probe
