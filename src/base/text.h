// Small pieces of text work that several rooms need.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bedplate {

std::string_view trim(std::string_view text);  // without white space at both ends

// The pieces between separators; empty pieces are kept. Views into `text`.
std::vector<std::string_view> split(std::string_view text, char separator);

// The words between runs of white space. Views into `text`.
std::vector<std::string_view> words(std::string_view text);

// The whole of `text` as a number; nullopt for anything else, overflow included.
std::optional<std::int64_t> to_int(std::string_view text, int base = 10);
std::optional<double> to_double(std::string_view text);

// CPU or node lists of the kernel, "0-3,8,10-11"; nullopt for what is not one. An empty text is an
// empty list.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);
std::string format_cpu_list(std::span<const int> cpus);  // ascending input → "0-3,8"

// `text` as valid UTF-8: each byte that is not part of a sequence becomes U+FFFD, control
// characters but \n and \t too.
std::string to_utf8(std::string_view text);

// Whether all of `text` is valid UTF-8, control characters included.
bool is_utf8(std::string_view text);

// The width of `text` in terminal columns, for the characters that Bedplate itself prints (no wide
// or combining ones).
std::size_t display_width(std::string_view utf8);

// Of `known`, the name nearest to `given` by edit distance, if it is near enough to be meant; empty
// if not.
std::string_view nearest_name(std::string_view given, std::span<const std::string_view> known);

// `text` as one word of a POSIX shell.
std::string shell_quote(std::string_view text);
std::string shell_join(std::span<const std::string> arguments);

}  // namespace bedplate
