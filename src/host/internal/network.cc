#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "host/internal/describers.h"
#include "host/internal/natural_order.h"
#include "host/internal/read.h"

namespace bedplate::host {
namespace {

constexpr std::string_view kNet = "/sys/class/net/";
constexpr std::string_view kInfiniband = "/sys/class/infiniband/";
constexpr int kMostGids = 256;
constexpr std::int64_t kEthernet = 1, kInfinibandType = 32,
                       kLoopback = 772;  // ARPHRD_* of linux/if_arp.h

// The PCI device behind a class entry: its own path holds the address, or its "device" link does.
PciDevice device_behind(const os::HostRoot& root, const std::string& entry) {
  std::string address = pci_address_in(root.link(entry).value_or(""));
  if (address.empty()) address = pci_address_in(root.link(entry + "/device").value_or(""));
  return pci_device(root, address);
}

std::string kind_of(const os::HostRoot& root, const std::string& folder, bool physical) {
  const auto type = root.read_int(folder + "type");
  if (type == kLoopback) return "loopback";
  if (type == kInfinibandType) return "infiniband";
  if (root.exists(folder + "bridge")) return "bridge";
  if (root.exists(folder + "bonding")) return "bond";
  const std::string uevent = root.read(folder + "uevent").value_or("");
  std::string_view rest = uevent;
  while (const auto line = next_line(rest)) {
    if (line->starts_with("DEVTYPE=")) return tidy(line->substr(8));
  }
  if (physical) return "ethernet";
  if (root.exists(folder + "tun_flags")) return "tun";
  const auto index = root.read_int(folder + "ifindex");
  const auto link = root.read_int(folder + "iflink");
  // A veth's other end lies in another namespace: its number is the link's, and not its own.
  if (type == kEthernet && index && link && *index != *link) return "veth";
  return "virtual";
}

Nic describe_nic(const os::HostRoot& root, const std::string& name) {
  const std::string entry = std::string(kNet) + name;
  const std::string folder = entry + "/";
  Nic nic{.name = tidy(name)};
  nic.physical = root.exists(folder + "device");
  nic.kind = kind_of(root, folder, nic.physical);
  nic.state = word(root, folder + "operstate");
  nic.speed_mbps = amount(root, folder + "speed");  // -1: not known
  if (nic.speed_mbps == 0 || nic.speed_mbps == 4294967295) nic.speed_mbps.reset();
  nic.duplex = word(root, folder + "duplex");
  if (nic.duplex == "unknown") nic.duplex.clear();
  nic.mtu = amount(root, folder + "mtu");
  nic.bond = tidy(root.link_name(folder + "master").value_or(""));
  nic.pci = device_behind(root, entry);
  if (nic.physical) {  // the innermost driver (virtio_net, not virtio-pci)
    const std::string driver = tidy(root.link_name(folder + "device/driver").value_or(""));
    if (!driver.empty()) nic.pci.driver = driver;
    if (!nic.pci.numa_node) {
      nic.pci.numa_node = small_number(word(root, folder + "device/numa_node"), 0, 4095);
    }
  }
  return nic;
}

// "fe80:0000:…" → what kind of address it is; "" for an empty entry.
std::string gid_kind(std::string_view gid) {
  if (gid.size() != 39 || gid.find_first_not_of("0123456789abcdef:") != std::string_view::npos) {
    return {};
  }
  if (gid.find_first_not_of("0:") == std::string_view::npos) return {};
  if (gid.starts_with("0000:0000:0000:0000:0000:ffff:")) return "IPv4";
  return gid.starts_with("fe80:") ? "link-local" : "IPv6";
}

// "4: ACTIVE" → "ACTIVE"
std::string after_colon(std::string text) {
  const auto colon = text.find(':');
  return colon == std::string::npos ? text : tidy(std::string_view(text).substr(colon + 1));
}

RdmaPort describe_port(const os::HostRoot& root, const std::string& folder, int number) {
  RdmaPort port{.number = number};
  port.state = after_colon(word(root, folder + "state"));
  port.physical_state = after_colon(word(root, folder + "phys_state"));
  port.link_layer = word(root, folder + "link_layer");
  port.rate = word(root, folder + "rate");
  const auto parts = words(port.rate);
  if (parts.size() >= 2 && parts[1] == "Gb/sec") {
    const auto gbps = to_double(parts[0]);
    if (gbps && *gbps > 0 && *gbps < 1e6) port.rate_gbps = gbps;
  }
  for (int index = 0; index < kMostGids; ++index) {
    const std::string path = fmt::format("{}gids/{}", folder, index);
    const std::string kind = gid_kind(word(root, path));
    if (kind.empty()) {
      if (!root.exists(path)) break;
      continue;  // reading the type of an empty entry fails with EINVAL: it is not asked
    }
    port.gids.push_back({.index = index,
                         .type = word(root, fmt::format("{}gid_attrs/types/{}", folder, index)),
                         .address = kind,
                         .netdev = word(root, fmt::format("{}gid_attrs/ndevs/{}", folder, index))});
  }
  return port;
}

RdmaDevice describe_rdma(const os::HostRoot& root, const std::string& name) {
  const std::string entry = std::string(kInfiniband) + name;
  RdmaDevice device{.name = tidy(name)};
  device.model = word(root, entry + "/hca_type");
  device.firmware = word(root, entry + "/fw_ver");
  for (const auto& netdev : root.list(entry + "/device/net"))
    device.netdevs.push_back(tidy(netdev));
  for (const auto& port : root.list(entry + "/ports")) {
    const auto number = small_number(port, 1, 255);
    if (number)
      device.ports.push_back(
          describe_port(root, fmt::format("{}/ports/{}/", entry, port), *number));
  }
  device.pci = device_behind(root, entry);
  return device;
}

}  // namespace

void describe_network(const os::HostRoot& root, Host& host) {
  for (const auto& name : root.list(kInfiniband)) host.rdma.push_back(describe_rdma(root, name));
  sort_naturally(host.rdma, &RdmaDevice::name);
  for (const auto& name : root.list(kNet)) {
    if (name == "bonding_masters") continue;  // a file among the folders
    Nic nic = describe_nic(root, name);
    for (const auto& device : host.rdma) {
      for (const auto& netdev : device.netdevs) {
        if (netdev == nic.name) nic.rdma = device.name;
      }
    }
    host.nics.push_back(std::move(nic));
  }
  sort_naturally(host.nics, &Nic::name);
}

}  // namespace bedplate::host
