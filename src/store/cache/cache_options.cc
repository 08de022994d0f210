#include "store/cache/cache_options.h"

#include <string>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::store {
namespace {

constexpr std::string_view kReadTypes[] = {"CACHE_PROMOTE", "CACHE", "NO_CACHE"};

std::int64_t size_of(std::string_view text, std::string_view whole) {
  const auto size = parse_size(text);
  if (!size || *size <= 0) {
    throw Error(Code::kInvalid, "'{}' in the cache '{}' is no size; give one like 200GB",
                to_utf8(text), to_utf8(whole));
  }
  return *size;
}

void take_folder(std::string_view part, std::string_view whole, CacheOptions& options) {
  if (!options.folder.empty()) {
    throw Error(Code::kInvalid, "the cache '{}' has two folders; give one", to_utf8(whole));
  }
  const auto colon = part.rfind(':');
  const bool sized =
      colon != std::string_view::npos && part.find('/', colon) == std::string_view::npos;
  if (sized) options.cap_bytes = size_of(part.substr(colon + 1), whole);
  options.folder = std::string(sized ? part.substr(0, colon) : part);
  if (options.folder.empty() || part.find('\0') != std::string_view::npos) {
    throw Error(Code::kInvalid, "the cache '{}' names no folder", to_utf8(whole));
  }
  if (!sized && parse_size(part)) {
    throw Error(Code::kInvalid,
                "'{}' in the cache '{}' is a size without a place; give one like "
                "/nvme/cache:{} or memory:{} (./{} is the folder of that name)",
                to_utf8(part), to_utf8(whole), to_utf8(part), to_utf8(part), to_utf8(part));
  }
}

}  // namespace

std::string_view name(ReadType type) { return kReadTypes[static_cast<std::size_t>(type)]; }

CacheOptions parse_cache(std::string_view text) {
  CacheOptions options;
  for (const std::string_view raw : split(text, ',')) {
    const std::string_view part = trim(raw);
    if (part.empty()) {
      throw Error(Code::kInvalid,
                  "the cache '{}' has an empty part; give one like /nvme/cache:200GB",
                  to_utf8(text));
    }
    bool known = false;
    for (std::size_t i = 0; i < std::size(kReadTypes); ++i) {
      if (part != kReadTypes[i]) continue;
      options.read_type = static_cast<ReadType>(i);
      known = true;
    }
    if (known) continue;
    if (part.starts_with("memory:")) {
      options.memory_bytes = size_of(part.substr(7), text);
    } else if (part == "memory") {
      throw Error(Code::kInvalid, "the cache '{}' gives memory no size; give one like memory:4GB",
                  to_utf8(text));
    } else {
      take_folder(part, text, options);
    }
  }
  if (options.folder.empty() && options.memory_bytes == 0) {
    throw Error(Code::kInvalid, "the cache '{}' names neither a folder nor memory", to_utf8(text));
  }
  return options;
}

}  // namespace bedplate::store
