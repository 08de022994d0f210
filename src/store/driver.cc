#include "store/driver.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::store {
namespace {

const Driver* driver_of(std::string_view scheme) {
  for (const Driver* driver : all_drivers()) {
    if (std::ranges::find(driver->schemes, scheme) != driver->schemes.end()) return driver;
  }
  return nullptr;
}

bool is_scheme(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '-' || c == '.';
  });
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c;
  return out;
}

Error unknown_scheme(std::string_view scheme) {
  std::vector<std::string_view> known;
  for (const Driver* driver : all_drivers())
    known.insert(known.end(), driver->schemes.begin(), driver->schemes.end());
  const std::string_view nearest = nearest_name(scheme, known);
  return {Code::kInvalid, "no store is known for {}://{}; there are: {}", to_utf8(scheme),
          nearest.empty() ? std::string() : fmt::format(" (did you mean {}://?)", nearest),
          fmt::join(known, ", ")};
}

}  // namespace

std::string Url::text() const {
  if (scheme == "file") return path;
  return fmt::format("{}://{}{}{}", scheme, authority, path.empty() ? "" : "/", path);
}

Url parse_url(std::string_view text) {
  if (text.empty()) throw Error(Code::kInvalid, "an empty path or URL was given");
  const auto at = text.find("://");
  // What looks like no scheme is a path, however odd: "a b://c" is a file's name.
  if (at == std::string_view::npos || !is_scheme(text.substr(0, at)))
    return {"file", "", std::string(text)};
  Url url{lower(text.substr(0, at)), "", ""};
  std::string_view rest = text.substr(at + 3);
  if (driver_of(url.scheme) == nullptr) throw unknown_scheme(url.scheme);
  const auto slash = std::min(rest.find('/'), rest.size());
  url.authority = rest.substr(0, slash);
  if (url.authority.find('@') != std::string::npos) {
    throw Error(Code::kInvalid,
                "a URL with a user name or password ({}://…@…) is not taken: it would end up in "
                "logs; use the environment or a credentials file",
                url.scheme);
  }
  if (url.scheme == "file" || url.scheme == "block") {
    if (!url.authority.empty() && url.authority != "localhost") {
      throw Error(Code::kInvalid, "{}://{}/… names another machine; write {}:///path", url.scheme,
                  url.authority, url.scheme);
    }
    url.authority.clear();
    url.path = rest.substr(slash);
    return url;
  }
  if (url.authority.empty())
    throw Error(Code::kInvalid, "{} names no {}", to_utf8(text),
                url.scheme == "s3" ? "bucket" : "host");
  url.path = slash < rest.size() ? rest.substr(slash + 1) : "";
  return url;
}

Place locate(std::string_view text, const StoreOptions& options) {
  const Url url = parse_url(text);
  return driver_of(url.scheme)->open(url, options);
}

}  // namespace bedplate::store
