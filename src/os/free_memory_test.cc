#include "os/free_memory.h"

#include "base/units.h"
#include "os/test_host.h"

namespace bedplate::os {
namespace {

class FreeMemory : public TestHost {};

TEST_F(FreeMemory, IsWhatTheMachineHasWithoutGroups) {
  EXPECT_EQ(free_memory(host_), std::nullopt);
  put("proc/meminfo", "MemTotal:       100 kB\nMemAvailable:    70 kB\n");
  EXPECT_EQ(free_memory(host_), 70 * kKiB);
}

TEST_F(FreeMemory, IsNoMoreThanAnyGroupHasLeft) {
  put("proc/meminfo", "MemTotal:       100000 kB\nMemAvailable:    70000 kB\n");
  put("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put("proc/self/cgroup", "0::/job/rank\n");
  put("sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
  put("sys/fs/cgroup/job/memory.max", "50000\n");
  put("sys/fs/cgroup/job/memory.current", "45000\n");
  put("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 2000\n");
  put("sys/fs/cgroup/job/rank/memory.max", "max\n");
  put("sys/fs/cgroup/job/rank/memory.current", "44000\n");
  EXPECT_EQ(free_memory(host_), 7000);
  put("sys/fs/cgroup/job/memory.current", "60000\n");
  EXPECT_EQ(free_memory(host_), 0);
}

TEST_F(FreeMemory, KnowsTheFilesOfVersion1) {
  put("proc/meminfo", "MemAvailable:    70000 kB\n");
  put("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  put("proc/self/cgroup", "4:memory:/api\n");
  put("sys/fs/cgroup/memory/api/memory.limit_in_bytes", "9000\n");
  put("sys/fs/cgroup/memory/api/memory.usage_in_bytes", "8000\n");
  put("sys/fs/cgroup/memory/api/memory.stat", "inactive_file 5\ntotal_inactive_file 500\n");
  EXPECT_EQ(free_memory(host_), 1500);
}

}  // namespace
}  // namespace bedplate::os
