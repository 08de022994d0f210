// Which control groups speak of the job: its own, and those that limit it.
//
//   const os::Cgroup own = own_group(context, "cpuacct");  // throws when the job has none
//   GoverningGroups governing(context, "cpu");             // throws when there is no such
//   controller governing.refresh(processes);                          // now and then: processes
//   may be moved for (const os::Cgroup& group : governing.groups()) …   // of all processes, with
//   all parents, each once
//
// Not thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/cgroup.h"
#include "probe/sampler.h"

namespace bedplate::probe {

// The group that holds the job and nothing else: the one Bedplate made; else the group of the job's
// first process, when that is another one than Bedplate's (a container that Bedplate attached to).
// `controller` as in JobCgroup::group(). Throws Error{kUnsupported | kPermission} with the reason
// why there is none.
os::Cgroup own_group(const SampleContext& context, std::string_view controller);

class GoverningGroups {
 public:
  // Throws Error{kUnsupported} when no hierarchy has the controller, or the job's group cannot be
  // seen from here.
  GoverningGroups(const SampleContext& context, std::string controller);

  // Looks where the job's processes are; of very many processes at a part each time. Groups that
  // were removed are forgotten.
  void refresh(std::span<const JobProcess> processes);

  const std::vector<os::Cgroup>& groups() const { return groups_; }  // nearest first
  const std::vector<os::Cgroup>& leaves() const {
    return leaves_;
  }  // those that the processes are in

 private:
  void rebuild();

  const os::HostRoot& host_;
  const os::CgroupTree& tree_;
  std::string controller_;
  std::vector<os::Cgroup> leaves_;
  std::vector<os::Cgroup> groups_;
  std::size_t next_ = 0;
};

}  // namespace bedplate::probe
