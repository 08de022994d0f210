// How the describers read /proc and /sys: short valid texts, checked numbers, "" and nullopt for
// what is absent or nonsense.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/host_root.h"

namespace bedplate::host {

// `text` without white space at its ends, its first line, at most 256 bytes of valid UTF-8.
std::string tidy(std::string_view text);

// The tidy content of a file; "" when absent.
std::string word(const os::HostRoot& root, std::string_view path);

// A number that cannot be negative by its nature (a size, a count).
std::optional<std::int64_t> amount(const os::HostRoot& root, std::string_view path);
std::optional<std::int64_t> to_amount(std::string_view text);

// An amount in a unit → in the base unit; nullopt on overflow. times(amount, 1024): KiB → bytes.
std::optional<std::int64_t> times(std::optional<std::int64_t> value, std::int64_t factor);

// A small number (an id, lanes) in [lowest, highest].
std::optional<int> small_number(std::string_view text, int lowest, int highest);

std::vector<int> cpu_list(const os::HostRoot& root, std::string_view path);

// "always [madvise] never" → "madvise"; a text without brackets stays as it is.
std::string chosen(std::string_view text);

// The value after "Name:" in a file of such lines (/proc/meminfo, /proc/self/status); "" when
// absent.
std::string_view field(std::string_view text, std::string_view name);

// The same for /proc/cpuinfo, whose names are followed by tabs; the first of that name.
std::string_view field_of_cpuinfo(std::string_view text, std::string_view name);

// Takes the first line off `rest`; nullopt at the end. Costs no memory, whatever the file's size.
std::optional<std::string_view> next_line(std::string_view& rest);

}  // namespace bedplate::host
