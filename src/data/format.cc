#include "data/format.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::data {

const Format& format_of_name(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Format* format : all_formats()) {
    if (format->name == name) return *format;
    names.push_back(format->name);
  }
  const std::string_view nearest = nearest_name(name, names);
  throw Error(Code::kInvalid, "there is no format {}{}; there are {}", to_utf8(name),
              nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest),
              fmt::join(names, ", "));
}

const Format* format_of_shard(std::string_view key) {
  const auto formats = all_formats();
  const auto found =
      std::ranges::find_if(formats, [&](const Format* f) { return f->is_shard(key); });
  return found == formats.end() ? nullptr : *found;
}

}  // namespace bedplate::data
