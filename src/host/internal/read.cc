#include "host/internal/read.h"

#include <limits>

#include "base/text.h"

namespace bedplate::host {
namespace {

constexpr std::size_t kMostBytes = 256;

}  // namespace

std::string tidy(std::string_view text) {
  text = trim(text);
  text = trim(text.substr(0, text.find('\n')));
  std::string valid = to_utf8(text.substr(0, kMostBytes));
  for (char& c : valid) {
    if (c == '\t') c = ' ';
  }
  // The texts end up on terminals: eight-bit control characters (U+0080…9F) and those that turn the
  // direction of what follows (U+202A…E, U+2066…9) become U+FFFD.
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  for (std::size_t i = 0; i < valid.size(); ++i) {
    const auto at = [&](std::size_t k) {
      return i + k < valid.size() ? static_cast<unsigned char>(valid[i + k]) : 0;
    };
    if (at(0) == 0xC2 && at(1) < 0xA0) valid.replace(i, 2, kReplacement);
    const bool turns = at(0) == 0xE2 && ((at(1) == 0x80 && at(2) >= 0xAA && at(2) <= 0xAE) ||
                                         (at(1) == 0x81 && at(2) >= 0xA6 && at(2) <= 0xA9));
    if (turns) valid.replace(i, 3, kReplacement);
  }
  return valid;
}

std::string word(const os::HostRoot& root, std::string_view path) {
  const auto text = root.read(path);
  return text ? tidy(*text) : std::string();
}

std::optional<std::int64_t> to_amount(std::string_view text) {
  const auto value = to_int(trim(text));
  if (!value || *value < 0) return std::nullopt;
  return value;
}

std::optional<std::int64_t> amount(const os::HostRoot& root, std::string_view path) {
  const auto text = root.read(path);
  return text ? to_amount(*text) : std::nullopt;
}

std::optional<std::int64_t> times(std::optional<std::int64_t> value, std::int64_t factor) {
  if (!value || *value < 0 || *value > std::numeric_limits<std::int64_t>::max() / factor) {
    return std::nullopt;
  }
  return *value * factor;
}

std::optional<int> small_number(std::string_view text, int lowest, int highest) {
  const auto value = to_int(trim(text));
  if (!value || *value < lowest || *value > highest) return std::nullopt;
  return static_cast<int>(*value);
}

std::vector<int> cpu_list(const os::HostRoot& root, std::string_view path) {
  const auto text = root.read(path);
  if (!text) return {};
  return parse_cpu_list(*text).value_or(std::vector<int>());
}

std::string chosen(std::string_view text) {
  const auto open = text.find('[');
  const auto close = text.find(']', open);
  if (open == std::string_view::npos || close == std::string_view::npos) return tidy(text);
  return tidy(text.substr(open + 1, close - open - 1));
}

std::string_view field(std::string_view text, std::string_view name) {
  while (const auto line = next_line(text)) {
    if (line->size() > name.size() && line->starts_with(name) && (*line)[name.size()] == ':') {
      return trim(line->substr(name.size() + 1));
    }
  }
  return {};
}

std::string_view field_of_cpuinfo(std::string_view text, std::string_view name) {
  while (const auto line = next_line(text)) {
    const auto colon = line->find(':');
    if (colon != std::string_view::npos && trim(line->substr(0, colon)) == name) {
      return trim(line->substr(colon + 1));
    }
  }
  return {};
}

std::optional<std::string_view> next_line(std::string_view& rest) {
  if (rest.empty()) return std::nullopt;
  const auto end = rest.find('\n');
  const auto line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

}  // namespace bedplate::host
