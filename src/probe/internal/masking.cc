#include "probe/internal/masking.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace bedplate::probe {
namespace {

constexpr std::string_view kMask = "***";

bool speaks_of_a_secret(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  // "tokens" and "tokenizer" are what language models are about; a token is a secret only at a
  // name's end.
  for (const std::string_view word :
       {"password", "passwd", "secret", "credential", "api_key", "api-key", "apikey", "access_key",
        "access-key", "private_key", "private-key"}) {
    if (lower.find(word) != std::string::npos) return true;
  }
  return lower == "token" || lower.ends_with("-token") || lower.ends_with("_token") ||
         lower == "--token" || lower.ends_with("_key") || lower == "--key" || lower == "--pass";
}

std::string mask_url(std::string text) {
  const auto scheme = text.find("://");
  if (scheme == std::string::npos) return text;
  const auto from = scheme + 3;
  const auto at = text.find('@', from);
  const auto colon = text.find(':', from);
  if (at == std::string::npos || colon == std::string::npos || colon > at ||
      text.find('/', from) < at)
    return text;
  return text.replace(colon + 1, at - colon - 1, kMask);
}

}  // namespace

std::string masked_command(std::span<const std::string_view> arguments, std::size_t most) {
  std::string command;
  bool mask_next = false;
  for (const auto argument : arguments) {
    std::string word(argument);
    const auto equals = argument.find('=');
    if (mask_next && !argument.starts_with("-")) {
      word = kMask;
    } else if (equals != std::string_view::npos && speaks_of_a_secret(argument.substr(0, equals))) {
      word = std::string(argument.substr(0, equals + 1)) + std::string(kMask);
    }
    mask_next = equals == std::string_view::npos && argument.starts_with("-") &&
                speaks_of_a_secret(argument);
    if (!command.empty()) command += ' ';
    command += word == kMask ? word : shell_quote(to_utf8(mask_url(std::move(word))));
    if (command.size() > most) {
      std::size_t cut = most;
      while (cut > 0 && (static_cast<unsigned char>(command[cut]) & 0xC0) == 0x80) --cut;
      return command.substr(0, cut) + "…";
    }
  }
  return command;
}

}  // namespace bedplate::probe
