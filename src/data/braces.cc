#include "data/braces.h"

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::data {
namespace {

constexpr std::size_t kMostNames = 10'000'000;

// "3..11" or "08..11" → its numbers; nullopt when the text is no range.
std::optional<std::vector<std::string>> range_of(std::string_view inside) {
  const std::size_t dots = inside.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const std::string_view low = inside.substr(0, dots);
  const std::string_view high = inside.substr(dots + 2);
  std::int64_t from = 0;
  std::int64_t to = 0;
  const auto number = [](std::string_view text, std::int64_t& into) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
    return error == std::errc() && end == text.data() + text.size() && into >= 0;
  };
  if (!number(low, from) || !number(high, to)) return std::nullopt;
  if (to < from) throw Error(Code::kInvalid, "the range {{{}}} runs backwards", to_utf8(inside));
  if (static_cast<std::uint64_t>(to - from) >= kMostNames)
    throw Error(Code::kInvalid, "the range {{{}}} makes more than {} names", to_utf8(inside),
                kMostNames);
  const bool padded = low.size() > 1 && low.front() == '0';
  std::vector<std::string> out;
  for (std::int64_t n = from; n <= to; ++n)
    out.push_back(padded ? fmt::format("{:0{}}", n, low.size()) : fmt::format("{}", n));
  return out;
}

struct Choice {
  std::vector<std::string> texts;  // one of them comes here
};

std::vector<Choice> choices_of(std::string_view pattern) {
  std::vector<Choice> out;
  std::string plain;
  const auto end_plain = [&] {
    if (!plain.empty()) out.push_back({{plain}});
    plain.clear();
  };
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c == '\\' && at + 1 < pattern.size() &&
        (pattern[at + 1] == '{' || pattern[at + 1] == '}')) {
      plain += pattern[++at];
      continue;
    }
    if (c != '{') {
      plain += c;
      continue;
    }
    const std::size_t end = pattern.find('}', at);
    if (end == std::string_view::npos)
      throw Error(Code::kInvalid, "{}: a {{ without its }}; a brace in a name is written \\{{",
                  to_utf8(pattern));
    const std::string_view inside = pattern.substr(at + 1, end - at - 1);
    if (inside.find('{') != std::string_view::npos)
      throw Error(Code::kInvalid, "{}: braces within braces are not known", to_utf8(pattern));
    end_plain();
    if (auto numbers = range_of(inside)) {
      out.push_back({std::move(*numbers)});
    } else {
      Choice choice;
      for (const std::string_view one : split(inside, ',')) choice.texts.emplace_back(one);
      out.push_back(std::move(choice));
    }
    at = end;
  }
  end_plain();
  return out;
}

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::symlink_status(path, error));
}

// "~" and "~/a"; "~name" is a name.
std::string with_home(std::string path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0' || is_there(path)) return path;
  return home + path.substr(1);
}

std::vector<std::string> names_that_match(const std::string& pattern) {
  ::glob_t found{};
  const int failure = ::glob(pattern.c_str(), GLOB_MARK | GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> names(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (failure == GLOB_NOSPACE || failure == GLOB_ABORTED)
    throw Error(Code::kIo, "{}: the folders in it cannot be listed", to_utf8(pattern));
  if (names.empty()) throw Error(Code::kNotFound, "nothing here matches {}", to_utf8(pattern));
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::string escape_braces(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '{' || c == '}') out += '\\';
    out += c;
  }
  return out;
}

std::vector<std::string> expand_names(std::string_view pattern) {
  std::vector<std::string> out;
  for (std::string& name : expand_braces(pattern)) {
    if (name.find("://") != std::string::npos) {
      out.push_back(std::move(name));
      continue;
    }
    std::string path = with_home(std::move(name));
    if (path.find_first_of("*?[") == std::string::npos || is_there(path)) {
      out.push_back(std::move(path));
    } else {
      std::ranges::move(names_that_match(path), std::back_inserter(out));
    }
  }
  return out;
}

std::vector<std::string> expand_braces(std::string_view pattern) {
  std::vector<std::string> out = {""};
  for (const Choice& choice : choices_of(pattern)) {
    if (out.size() * choice.texts.size() > kMostNames)
      throw Error(Code::kInvalid, "{} makes more than {} names", to_utf8(pattern), kMostNames);
    std::vector<std::string> longer;
    longer.reserve(out.size() * choice.texts.size());
    for (const std::string& head : out) {
      for (const std::string& tail : choice.texts) longer.push_back(head + tail);
    }
    out = std::move(longer);
  }
  return out;
}

}  // namespace bedplate::data
