#include "base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/text.h"

namespace bedplate {
namespace {

std::string three_figures(double value, std::string_view unit) {
  const double size = std::fabs(value);
  if (size >= 99.95 || size == std::floor(size)) return fmt::format("{:.0f} {}", value, unit);
  if (size >= 9.995) return fmt::format("{:.1f} {}", value, unit);
  return fmt::format("{:.2f} {}", value, unit);
}

}  // namespace

std::optional<std::int64_t> parse_size(std::string_view text) {
  text = trim(text);
  const auto digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto number = to_double(text.substr(0, digits));
  std::string_view unit = trim(text.substr(digits));
  if (!number) return std::nullopt;
  double factor = 1;
  if (!unit.empty() && unit != "B" && unit != "b") {
    constexpr std::string_view kPrefixes = "kmgtp";
    const auto power = kPrefixes.find(static_cast<char>(unit[0] | 0x20));
    unit.remove_prefix(1);
    const bool binary = unit.empty() || unit == "i" || unit == "iB" || unit == "ib";
    const bool decimal = unit == "B" || unit == "b";
    if (power == std::string_view::npos || !(binary || decimal)) return std::nullopt;
    factor = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  const double bytes = *number * factor;
  if (!(bytes < 9.2e18)) return std::nullopt;
  return std::llround(bytes);
}

std::string human_bytes(double bytes) {
  constexpr std::array<std::string_view, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (std::fabs(bytes) >= 1023.5 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  return three_figures(bytes, kUnits[unit]);
}

std::string human_duration(Nanos t) {
  if (t < 0) return "-" + human_duration(-t);
  if (t < kMicrosecond) return fmt::format("{} ns", t);
  if (t < kMillisecond) return three_figures(static_cast<double>(t) / 1e3, "µs");
  if (t < kSecond) return three_figures(milliseconds(t), "ms");
  if (t < 120 * kSecond) return three_figures(seconds(t), "s");
  const std::int64_t s = t / kSecond;
  if (s < 7200) return fmt::format("{} min {} s", s / 60, s % 60);
  return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
}

std::string human_count(double n) {
  if (std::fabs(n) < 999.5)
    return n == std::floor(n) ? fmt::format("{:.0f}", n) : fmt::format("{:.1f}", n);
  if (std::fabs(n) < 999.5e3) return three_figures(n / 1e3, "k");
  if (std::fabs(n) < 999.5e6) return three_figures(n / 1e6, "M");
  return three_figures(n / 1e9, "G");
}

std::string human_share(double share) {
  const double percent = share * 100;
  if (percent == 0) return "0 %";
  if (percent > 0 && percent < 0.1) return "< 0.1 %";
  if (percent < 0.95) return fmt::format("{:.1f} %", percent);
  return fmt::format("{:.0f} %", percent);
}

}  // namespace bedplate
