// JSON that others wrote: lines, indexes, schemas, states. The one way in, so that hostile text
// ends in an error and nothing is changed in silence.
//
//   const nlohmann::ordered_json document = parse_json(text);
//
// Error{kInvalid}, which says what and where, for what is no JSON, and for what could not be kept
// as it is: more than kMostJsonDepth arrays and objects in each other (what walks over them calls
// itself), a name that comes twice in an object, an integer that 64 bits do not hold.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/error.h"

namespace bedplate::data {

constexpr int kMostJsonDepth = 200;

// `what` is the text, in messages; `code` that of the errors.
nlohmann::ordered_json parse_json(std::string_view text, std::string_view what = "it",
                                  Code code = Code::kInvalid);

// Only looks at text that is kept as it is. Names and numbers may be any; the depth is what readers
// can be trusted with.
void check_json(std::string_view text);

}  // namespace bedplate::data
