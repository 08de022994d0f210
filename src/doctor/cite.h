// One line of evidence: where a figure was read and what it says.
//
//   cite("/proc/stat", "host {} idle meanwhile", human_share(idle))
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/units.h"
#include "doctor/finding.h"

namespace bedplate::doctor {

template <typename... Args>
Evidence cite(std::string source, fmt::format_string<Args...> format, Args&&... args) {
  return {std::move(source), fmt::format(format, std::forward<Args>(args)...)};
}

// "1 file", "2 files", "1.2 k files".
inline std::string counted(double n, const char* one, const char* many) {
  return fmt::format("{} {}", human_count(n), n == 1 ? one : many);
}

}  // namespace bedplate::doctor
