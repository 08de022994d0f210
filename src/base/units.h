// Quantities with their units in the type's name, and as people read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bedplate {

// Times are int64 nanoseconds: of CLOCK_MONOTONIC where they are points, plain lengths where they
// are durations.
using Nanos = std::int64_t;

constexpr Nanos kMicrosecond = 1'000;
constexpr Nanos kMillisecond = 1'000'000;
constexpr Nanos kSecond = 1'000'000'000;

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
constexpr std::int64_t kGiB = 1024 * kMiB;

constexpr double seconds(Nanos t) { return static_cast<double>(t) / 1e9; }
constexpr double milliseconds(Nanos t) { return static_cast<double>(t) / 1e6; }

// "200GB", "1.5 TiB", "64k", "4096": decimal units with a B, binary ones with an i or with nothing.
std::optional<std::int64_t> parse_size(std::string_view text);

std::string human_bytes(double bytes);  // "1.5 MiB"; three significant figures, binary prefixes
std::string human_duration(Nanos t);    // "740 µs", "12.3 ms", "4.00 s", "2 min 5 s", "3 h 12 min"
std::string human_count(double n);      // "950", "12.3 k", "4.1 M"
// 0.414 → "41 %"; below 1 % one decimal; "< 0.1 %" for what is not zero.
std::string human_share(double share);

}  // namespace bedplate
