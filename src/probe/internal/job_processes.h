// Which processes belong to the job, now and since when.
//
// With a control group of the job's own its members are the job. Without one, the descendants of
// the first process are, found by their parents over /proc; a daemon that left the family keeps
// belonging to it once it was seen. Processes that speak through the trace are the job's either
// way. Only processes that are new in /proc are looked at: a look at all of them twice a second
// would cost a whole percent of a processor on an ordinary machine.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "os/cgroup.h"
#include "os/host_root.h"
#include "probe/run_data.h"
#include "probe/sampler.h"
#include "probe/trace_ring.h"

namespace bedplate::probe {

class JobProcesses {
 public:
  JobProcesses(const os::HostRoot& host, const os::JobCgroup* job, int root_pid, Nanos started);

  // Looks again; `now` is run time. Times of processes are exact to the kernel's clock tick (10
  // ms).
  void update(Nanos now);

  std::span<const JobProcess> alive() const { return alive_; }
  const std::vector<Process>& ended() const { return ended_; }  // since the last update

  // A process known from elsewhere to be the job's; it is looked for from the next update on.
  void adopt(int pid);

  // Who has this number in its own PID namespace; see PidFinder.
  PidAnswer find_inside(int pid, int ppid) const;

  // The full record of a process that is alive, read at its first sight, again when it is a second
  // old, for many begin as a copy of their parent, and when its name changes, as by exec. nullptr
  // when it is not known.
  Process* find(int pid);

  // Processes whose record is new or was read again in the last update.
  const std::vector<int>& described() const { return described_; }

  // Why a process has no hook, from what its /proc entry and the hook's own log in the run folder
  // show; empty when it has nothing to hook (no Python, or no torch so far).
  std::string why_no_hook(const Process& process, std::string_view hook_folder,
                          std::string_view run_folder) const;

 private:
  struct Entry {
    Process record;
    std::int64_t start_ticks = 0;
    int pid_inside = 0;  // in its own PID namespace
    int told_rank = -1;  // by its environment, which children inherit
    int looks = 0;
    std::string own_role;  // as told by /proc; another one in the record comes from the hook
  };

  std::vector<int> members();
  std::vector<int> family();
  void describe(Entry& entry);

  const os::HostRoot& host_;
  const os::JobCgroup* job_;
  int root_pid_;
  Nanos started_;
  std::map<int, Entry> known_;
  std::set<int> adopted_;
  bool by_family_ = true;    // members are found by their parents
  std::vector<int> listed_;  // in /proc at the last look, ascending
  int looks_ = 0;
  std::vector<JobProcess> alive_;
  std::vector<Process> ended_;
  std::vector<int> described_;
};

}  // namespace bedplate::probe
