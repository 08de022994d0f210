// What a command prints.
#pragma once

#include <string_view>

namespace bedplate::cli {

// Data, to stdout, flushed. Throws Error{kIo | kNoSpace} when it cannot be written.
void print(std::string_view text);

// Talk, to stderr; "bedplate: " is put in front and a line end after it. Never fails: there is
// nobody left to tell.
void say(std::string_view text);

// The same as it is, for text of several lines.
void tell(std::string_view text);

}  // namespace bedplate::cli
