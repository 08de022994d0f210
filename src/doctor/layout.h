// Text for a terminal: what may be printed, how wide it is, where its lines break.
//
//   for (const auto& line : wrap(printable(command), 90)) …
//
// Whatever a job wrote (a path, a command line, an exception) passes printable() before it is
// shown: after that it holds no byte that a terminal would obey. All other functions expect text
// that has passed. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace bedplate::doctor {

// `text` as one line of valid UTF-8. Line ends and tabs become a space; control characters (the
// eight-bit ones too: U+009B starts an escape sequence on some terminals) and those that turn or
// hide the text around them become U+FFFD.
std::string printable(std::string_view text);

// Terminal columns: 2 for East Asian wide characters and emoji, 0 for combining ones.
std::size_t columns(std::string_view text);

// Lines of at most `width` columns, broken at spaces; a word that is longer than a line is broken
// after a path separator where there is one in reach, else anywhere. At least one line. `width` is
// taken as at least 2.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

// The same for a shell command: lines end in " \" so that they can be pasted, and break only where
// a shell would join them again (outside quotes). A command that has no such place is broken as
// text.
std::vector<std::string> wrap_command(std::string_view text, std::size_t width);

// Exactly `width` columns: filled up with spaces, or cut with "…" at its end.
std::string fit(std::string_view text, std::size_t width);

}  // namespace bedplate::doctor
