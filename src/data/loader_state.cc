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
    if (object.at("version").get<int>() != 1)
      throw Error(Code::kCorrupt, "the state is of version {}, this Bedplate knows version 1",
                  object.at("version").get<int>());
    LoaderState state;
    state.epoch = object.at("epoch").get<std::int64_t>();
    state.consumed = object.at("consumed").get<std::int64_t>();
    const auto data = object.at("data").get<std::string>();
    std::size_t used = 0;
    state.fingerprint = std::stoull(data, &used, 16);
    if (used != data.size() || state.epoch < 0 || state.consumed < 0)
      throw Error(Code::kCorrupt, "the state is no state of a loader: {}", to_utf8(text));
    return state;
  } catch (const nlohmann::ordered_json::exception& error) {
    throw Error(Code::kCorrupt, "the state is no state of a loader: {}", to_utf8(error.what()));
  } catch (const std::logic_error&) {  // of stoull
    throw Error(Code::kCorrupt, "the state is no state of a loader: {}", to_utf8(text));
  }
}

}  // namespace bedplate::data
