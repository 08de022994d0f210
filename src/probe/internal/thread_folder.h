// The threads of one process: /proc/PID/task, opened once a visit so that each thread's files need
// only a short path.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "os/host_root.h"

namespace bedplate::probe {

class ThreadFolder {
 public:
  ThreadFolder(const os::HostRoot& host, int pid);

  // Thread numbers, ascending; empty when the process has ended.
  const std::vector<int>& threads() const { return threads_; }

  // A file of one thread; the text lies in `buffer`. nullopt when the thread has ended.
  std::optional<std::string_view> read(int tid, const char* name, std::string& buffer) const;

 private:
  os::UniqueFd folder_;
  std::vector<int> threads_;
};

// "RUN DELAY SLICES" of a thread's schedstat: how long it ran, and how long it could have run and
// waited for a processor.
struct SchedStat {
  Nanos run = 0;
  Nanos run_delay = 0;
};
std::optional<SchedStat> parse_schedstat(std::string_view text);

}  // namespace bedplate::probe
