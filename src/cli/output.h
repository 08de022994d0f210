// What a command prints.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace bedplate::cli {

// Throws Error{kInvalid} when a report would be written over a recording, or two of `files` are the
// same file; empty names and standard output ("-") may repeat.
void check_report_files(std::span<const std::string> files);

// Data, to stdout, flushed. Throws Error{kIo | kNoSpace} when it cannot be written.
void print(std::string_view text);

// Talk, to stderr; "bedplate: " is put in front and a line end after it. Never fails: there is
// nobody left to tell.
void say(std::string_view text);

// The same as it is, for text of several lines.
void tell(std::string_view text);

}  // namespace bedplate::cli
