#include "host/host.h"

#include "host/internal/describers.h"

namespace bedplate::host {

Host describe(const os::HostRoot& root, const DescribeOptions& options) {
  Host host;
  describe_system(root, host);
  describe_processors(root, host);
  describe_nodes(root, host);
  describe_memory(root, host);
  describe_gpus(root, host);
  describe_network(root, host);
  describe_disks(root, host);
  describe_mounts(root, options, host);
  describe_limits(root, host);
  describe_cgroup(root, host);
  return host;
}

}  // namespace bedplate::host
