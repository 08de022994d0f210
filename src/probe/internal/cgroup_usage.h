// Processor time of one control group, v1 or v2.
#pragma once

#include <optional>

#include "os/cgroup.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {

class CgroupUsage {
 public:
  struct Reading {
    Nanos usage = 0;
    std::optional<Nanos> user, system;
  };

  // Throws Error{kUnsupported | kPermission} when the group keeps no account.
  CgroupUsage(const os::HostRoot& host, const os::Cgroup& group);

  std::optional<Reading> read();  // nullopt once the group is gone
  const std::string& source() const { return usage_.path(); }

 private:
  bool unified_;
  TickFile usage_, user_, system_;
};

// The group that accounts for the job alone: v1 cpuacct, else v2, whose every group has cpu.stat.
// Throws as own_group().
os::Cgroup own_cpu_group(const SampleContext& context);

}  // namespace bedplate::probe
