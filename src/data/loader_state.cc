#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "data/json_text.h"
#include "data/loader.h"

namespace bedplate::data {

std::string LoaderState::to_json() const {
  return nlohmann::ordered_json{
      {"version", 1},
      {"epoch", epoch},
      {"consumed", consumed},
      {"data", fmt::format("{:016x}", fingerprint)},
  }
      .dump();
}

LoaderState LoaderState::from_json(std::string_view text) {
  try {
    const auto object = parse_json(text, "the state is no state of a loader: it", Code::kCorrupt);
    // get<>() alone would take 1.5 and true as 1, and casts 1e300 without a look.
    const auto integer = [&](const char* name) {
      const auto& value = object.at(name);
      return value.is_number_integer() ? value.get<std::int64_t>() : -1;
    };
    const std::int64_t version = integer("version");
    if (version >= 0 && version != 1)
      throw Error(Code::kCorrupt, "the state is of version {}, this Bedplate knows version 1",
                  version);
    LoaderState state{.epoch = integer("epoch"), .consumed = integer("consumed")};
    const auto data = object.at("data").get<std::string>();
    state.fingerprint = std::stoull(data, nullptr, 16);
    // The very text, since stoull() reads signs, spaces and what stands before other letters, too.
    if (version < 0 || state.epoch < 0 || state.consumed < 0 ||
        fmt::format("{:016x}", state.fingerprint) != data)
      throw Error(Code::kCorrupt, "the state is no state of a loader: {}", to_utf8(text));
    return state;
  } catch (const nlohmann::ordered_json::exception& error) {
    throw Error(Code::kCorrupt, "the state is no state of a loader: {}", to_utf8(error.what()));
  } catch (const std::logic_error&) {  // of stoull
    throw Error(Code::kCorrupt, "the state is no state of a loader: {}", to_utf8(text));
  }
}

}  // namespace bedplate::data
