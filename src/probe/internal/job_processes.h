// Which processes belong to the job, now and since when.
//
// With a control group of the job's own its members are the job. Without one, the descendants of the first process are, found by
// their parents over /proc; a daemon that left the family keeps belonging to it once it was seen.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "os/cgroup.h"
#include "os/host_root.h"
#include "probe/run_data.h"
#include "probe/sampler.h"

namespace bedplate::probe {

class JobProcesses {
 public:
  JobProcesses(const os::HostRoot& host, const os::JobCgroup* job, int root_pid, Nanos started);

  // Looks again; `now` is run time. Times of processes are exact to the kernel's clock tick (10 ms).
  void update(Nanos now);

  std::span<const JobProcess> alive() const { return alive_; }
  const std::vector<Process>& ended() const { return ended_; }  // since the last update

  // The full record of a process that is alive, read at its first sight and again when it is a second old, for many begin as a
  // copy of their parent. nullptr when it is not known.
  Process* find(int pid);

  // Processes whose record is new or was read again in the last update.
  const std::vector<int>& described() const { return described_; }

  // Why a Python process has no hook, from what its /proc entry shows; empty when it is not Python or has nothing to hook.
  std::string why_no_hook(const Process& process, std::string_view hook_folder) const;

 private:
  struct Entry {
    Process record;
    std::int64_t start_ticks = 0;
    int looks = 0;
  };

  std::vector<int> members();
  std::vector<int> descendants() const;
  void describe(Entry& entry);

  const os::HostRoot& host_;
  const os::JobCgroup* job_;
  int root_pid_;
  Nanos started_;
  std::map<int, Entry> known_;
  std::vector<JobProcess> alive_;
  std::vector<Process> ended_;
  std::vector<int> described_;
};

}  // namespace bedplate::probe
