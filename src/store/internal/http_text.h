// How HTTP and URLs write things. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace bedplate::store {

struct HttpHeader {
  std::string name;
  std::string value;
};
using HttpHeaders = std::vector<HttpHeader>;

// The value of the first header of that name, spelled exactly so; empty when there is none.
std::string_view header(const HttpHeaders& headers, std::string_view name);

std::string ascii_lower(std::string_view text);

// "http://host/path?…": a URL for messages, since a query may hold a signature.
std::string without_query(std::string_view url);

// "127.0.0.1:8333" of "http://127.0.0.1:8333/a".
std::string_view host_of(std::string_view url);

// Text in which each byte but A-Z a-z 0-9 - . _ ~ and those of `also_plain` is %XX.
std::string percent_encode(std::string_view text, std::string_view also_plain = {});
// The bytes behind %XX, and a space for each "+", as forms have it; nullopt for a broken %XX.
std::optional<std::string> form_decode(std::string_view text);

// "bytes 0-9/100" (RFC 9110, section 14.4).
struct ContentRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t total = -1;  // -1: not told
};
std::optional<ContentRange> parse_content_range(std::string_view text);

// How long a Retry-After header asks to wait: seconds, or a date of HTTP.
std::optional<Nanos> parse_retry_after(std::string_view text, Nanos wall_now);

}  // namespace bedplate::store
