#include "store/internal/http_text.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/text.h"

namespace bedplate::store {

std::string_view header(const HttpHeaders& headers, std::string_view name) {
  const auto found = std::ranges::find(headers, name, &HttpHeader::name);
  return found == headers.end() ? std::string_view() : std::string_view(found->value);
}

std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c;
  return out;
}

std::string without_query(std::string_view url) {
  const auto question = url.find('?');
  if (question == std::string_view::npos) return to_utf8(url);
  return to_utf8(url.substr(0, question)) + "?…";
}

std::string_view host_of(std::string_view url) {
  const auto scheme = url.find("://");
  if (scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  return url.substr(0, url.find_first_of("/?#"));
}

std::string percent_encode(std::string_view text, std::string_view also_plain) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' ||
                       also_plain.find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::optional<std::string> form_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      out += ' ';
    } else if (text[i] == '%') {
      const auto digits = text.substr(i + 1, 2);
      const auto byte = digits.size() == 2 ? to_int(digits, 16) : std::nullopt;
      if (!byte || *byte < 0) return std::nullopt;
      out += static_cast<char>(*byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const auto slash = text.find('/');
  const auto dash = text.find('-');
  if (slash == std::string_view::npos || dash == std::string_view::npos) return std::nullopt;
  if (dash > slash) return std::nullopt;
  const auto first = to_int(trim(text.substr(0, dash)));
  const auto last = to_int(trim(text.substr(dash + 1, slash - dash - 1)));
  if (!first || !last) return std::nullopt;
  return ContentRange{*first, *last, to_int(trim(text.substr(slash + 1))).value_or(-1)};
}

std::optional<Nanos> parse_retry_after(std::string_view text, Nanos wall_now) {
  text = trim(text);
  constexpr std::int64_t kLongest = 10L * 365 * 24 * 3600;
  if (const auto length = to_int(text)) {
    if (*length < 0) return std::nullopt;
    return std::min(*length, kLongest) * kSecond;
  }
  const time_t date = curl_getdate(std::string(text).c_str(), nullptr);
  if (date < 0) return std::nullopt;
  const std::int64_t left = static_cast<std::int64_t>(date) - wall_now / kSecond;
  return std::clamp<std::int64_t>(left, 0, kLongest) * kSecond;
}

}  // namespace bedplate::store
