#include "probe/internal/proc_stat.h"

#include "probe/internal/sampling.h"

namespace bedplate::probe {

std::optional<ProcStat> parse_proc_stat(std::string_view text) {
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return std::nullopt;
  Words words(text.substr(close + 1));
  const std::string_view state = words.next();
  if (state.size() != 1) return std::nullopt;
  ProcStat stat;
  stat.comm = text.substr(open + 1, close - open - 1);
  stat.state = state.front();
  for (int field = 4; field <= 42; ++field) {  // numbered as in proc(5)
    const auto value = natural(words.next());
    switch (field) {
      case 4:
        stat.parent = value;
        break;
      case 10:
        stat.minor_faults = value;
        break;
      case 12:
        stat.major_faults = value;
        break;
      case 14:
        stat.user_ticks = value;
        break;
      case 15:
        stat.system_ticks = value;
        break;
      case 20:
        stat.threads = value;
        break;
      case 22:
        stat.start_ticks = value;
        break;
      case 24:
        stat.resident_pages = value;
        break;
      case 42:
        stat.io_delay_ticks = value;
        break;
      default:
        break;
    }
  }
  return stat;
}

}  // namespace bedplate::probe
