// Pieces of an HTML page. Whatever comes from a job passes escaped(): it can then neither start an
// element nor end an attribute, holds no control character and nothing that turns the direction of
// the text after it.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace bedplate::doctor {

std::string escaped(std::string_view text);

// Appends to the page; arguments are put in as they are, so texts are passed through escaped() by
// the caller.
template <typename... Args>
void put(std::string& page, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(page), format, std::forward<Args>(args)...);
}

}  // namespace bedplate::doctor
