// Which of the processes that ended were killed for lack of memory.
//
// The kernel counts such kills in a group or on the machine, not by process: a kill is given to a
// process that died of SIGKILL about when the counter rose. One whose end nobody could wait for is
// taken only when it is the only one and the counter is that of the job's own group.
//
//   OomWatch watch;
//   watch.ended(process);                                      // each end, as far as it is known
//   for (const Process& killed : watch.look(group, host, now)) writer.process(killed);
//
// Not thread-safe; memory is bounded.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "probe/run_data.h"

namespace bedplate::probe {

class OomWatch {
 public:
  // Again for the same process when its wait status has become known.
  void ended(const Process& process);

  // The counters now: kills in the job's group (nullopt: not seen) and on the machine. Returns the
  // processes that have turned out to be killed, marked so.
  std::vector<Process> look(std::optional<std::int64_t> group, std::optional<std::int64_t> host,
                            Nanos now);

 private:
  std::optional<std::int64_t> last_group_, last_host_;
  std::int64_t kills_ = 0;  // not yet given to a process
  bool own_group_ = false;  // whose kills these are
  Nanos rose_ = 0;
  std::deque<Process> candidates_;
};

}  // namespace bedplate::probe
