// The parts of describe(), one file each, called in this order: later ones look at what earlier
// ones filled in.
#pragma once

#include "host/host.h"

namespace bedplate::host {

void describe_system(const os::HostRoot& root, Host& host);
void describe_processors(const os::HostRoot& root, Host& host);
void describe_nodes(const os::HostRoot& root, Host& host);
void describe_memory(const os::HostRoot& root, Host& host);
void describe_gpus(const os::HostRoot& root, Host& host);
void describe_network(const os::HostRoot& root, Host& host);
void describe_disks(const os::HostRoot& root, Host& host);
void describe_mounts(const os::HostRoot& root, const DescribeOptions& options, Host& host);
void describe_limits(const os::HostRoot& root, Host& host);
void describe_cgroup(const os::HostRoot& root, Host& host);

// ---- PCI, for those of them that describe devices ----

// The device at an address ("0000:1b:00.0") with its links, node and bridges; only the address when
// it is not there.
PciDevice pci_device(const os::HostRoot& root, std::string_view address);

// The last PCI address among the components of a path, as the links in /sys/class and /sys/block
// have it; "" for none.
std::string pci_address_in(std::string_view path);

bool is_pci_address(std::string_view text);

}  // namespace bedplate::host
