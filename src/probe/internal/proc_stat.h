// One line of /proc/PID/stat or /proc/PID/task/TID/stat. Source: proc(5).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace bedplate::probe {

// In the kernel's units. What is missing from the line or is not a number is nullopt.
struct ProcStat {
  std::string_view comm;  // lies in the text that was parsed
  char state = '?';
  std::optional<std::int64_t> parent;
  std::optional<std::int64_t> minor_faults, major_faults;
  std::optional<std::int64_t> user_ticks, system_ticks;  // of USER_HZ
  std::optional<std::int64_t> threads;
  std::optional<std::int64_t> start_ticks;  // since boot
  std::optional<std::int64_t> resident_pages;
  std::optional<std::int64_t> io_delay_ticks;  // 0 unless kernel.task_delayacct is on
};

// nullopt when not even a state follows the command's name, which itself may hold blanks and
// parentheses.
std::optional<ProcStat> parse_proc_stat(std::string_view text);

}  // namespace bedplate::probe
