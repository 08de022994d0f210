// Checks of network cards and RDMA ports.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "doctor/node_checks.h"
#include "doctor/pcie_check.h"

namespace bedplate::doctor {
namespace {

using host::Nic;
using host::RdmaDevice;
using host::RdmaPort;

constexpr std::int64_t kFastMbps = 25'000;  // from here on it is a card for training traffic

std::string rate(std::int64_t mbps) {
  return mbps < 1000 ? fmt::format("{} Mb/s", mbps)
                     : fmt::format("{:.4g} Gb/s", static_cast<double>(mbps) / 1000);
}

CheckResult nic_link(const NodeView& node) {
  std::vector<const Nic*> cards;
  std::map<std::string, std::int64_t> fastest;  // by driver
  std::size_t up = 0;
  for (const auto& nic : node.host().nics) {
    if (!nic.physical) continue;
    cards.push_back(&nic);
    up += nic.state == "up" ? 1 : 0;
    auto& best = fastest[nic.pci.driver];
    best = std::max(best, nic.speed_mbps.value_or(0));
  }
  if (cards.empty())
    return not_applicable(
        "no network card is visible here (a container has interfaces without cards)");
  CheckResult result;
  for (const Nic* nic : cards) {
    const std::string folder = fmt::format("/sys/class/net/{}/", nic->name);
    const std::string subject = "net/" + nic->name;
    if (nic->state == "down") {
      add(result, up == 0 ? CheckState::kFault : CheckState::kNote, folder + "operstate",
          nic->name + " is down", subject);
      continue;
    }
    if (nic->duplex == "half")
      add(result, CheckState::kWarning, folder + "duplex",
          nic->name + " runs half duplex: a bad cable or a fixed setting", subject);
    if (!nic->speed_mbps) continue;
    if (*nic->speed_mbps < 1000) {
      add(result, CheckState::kWarning, folder + "speed",
          fmt::format("{} runs at {}: one bad pair of wires does that", nic->name,
                      rate(*nic->speed_mbps)),
          subject);
    } else if (*nic->speed_mbps < fastest[nic->pci.driver]) {
      add(result, CheckState::kNote, folder + "speed",
          fmt::format("{} runs at {}, another card with driver {} at {}", nic->name,
                      rate(*nic->speed_mbps), nic->pci.driver, rate(fastest[nic->pci.driver])),
          subject);
    }
  }
  return concluded(std::move(result),
                   fmt::format("{} of {} up", up, plural(cards.size(), "card", "cards")),
                   fmt::format("{} up", plural(cards.size(), "card", "cards")));
}

CheckResult rdma_link(const NodeView& node) {
  const auto& devices = node.host().rdma;
  if (devices.empty()) return not_applicable("no RDMA device");
  std::size_t active = 0, ports = 0;
  std::map<std::string, double> fastest;  // by model
  for (const auto& device : devices) {
    for (const auto& port : device.ports) {
      ++ports;
      if (port.state != "ACTIVE") continue;
      ++active;
      auto& best = fastest[device.model];
      best = std::max(best, port.rate_gbps.value_or(0));
    }
  }
  if (ports == 0) return not_seen("no RDMA device tells its ports");
  CheckResult result;
  for (const auto& device : devices) {
    for (const auto& port : device.ports) {
      const std::string source =
          fmt::format("/sys/class/infiniband/{}/ports/{}/", device.name, port.number);
      const std::string title = fmt::format("{} port {}", device.name, port.number);
      const std::string subject = "rdma/" + device.name;
      if (port.state.empty()) continue;
      if (port.state != "ACTIVE") {
        // INIT with a link waits for the subnet manager; Disabled is somebody's decision.
        const bool waiting = port.physical_state == "LinkUp";
        const bool meant = port.physical_state == "Disabled";
        const CheckState state = active == 0 ? CheckState::kFault
                                 : meant     ? CheckState::kNote
                                             : CheckState::kWarning;
        add(result, state, source + "state",
            fmt::format("{} is {} ({}){}", title, port.state,
                        port.physical_state.empty() ? "n/a" : port.physical_state,
                        waiting ? ": no subnet manager has configured it" : ""),
            subject);
      } else if (port.rate_gbps && *port.rate_gbps < fastest[device.model]) {
        add(result, CheckState::kWarning, source + "rate",
            fmt::format("{} runs at {:.4g} Gb/s, others of its kind at {:.4g}", title,
                        *port.rate_gbps, fastest[device.model]),
            subject);
      }
    }
  }
  return concluded(std::move(result),
                   fmt::format("{} of {} active", active, plural(ports, "port", "ports")),
                   fmt::format("{} active, none slower than the others of its kind",
                               plural(ports, "port", "ports")));
}

bool carries_training(const Nic& nic) {
  return !nic.rdma.empty() ||
         (nic.physical && nic.state == "up" && nic.speed_mbps.value_or(0) >= kFastMbps);
}

CheckResult mtu(const NodeView& node) {
  std::map<std::int64_t, std::vector<std::string>> by_mtu;
  CheckResult result;
  for (const auto& nic : node.host().nics) {
    if (!carries_training(nic) || !nic.mtu) continue;
    by_mtu[*nic.mtu].push_back(nic.name);
    const bool roce = !nic.rdma.empty() && nic.kind != "infiniband";
    if (roce && nic.state == "up" &&
        static_cast<double>(*nic.mtu) < node.threshold("nic_mtu.least_roce")) {
      add(result, CheckState::kNote, fmt::format("/sys/class/net/{}/mtu", nic.name),
          fmt::format("{}: MTU {}: RDMA packets of 4096 bytes need 4200", nic.name, *nic.mtu),
          "net/" + nic.name);
    }
  }
  if (by_mtu.empty())
    return not_applicable("no network card of 25 Gb/s or more, and no RDMA interface");
  if (by_mtu.size() > 1) {
    for (const auto& [value, names] : by_mtu) {
      add(result, CheckState::kWarning, "/sys/class/net/*/mtu",
          fmt::format("MTU {}: {}", value, fmt::join(names, ", ")));
    }
    for (const auto& name : by_mtu.begin()->second) {
      result.marks.push_back({"net/" + name, host::MarkLevel::kWarning,
                              fmt::format("MTU {}, others have more", by_mtu.begin()->first)});
    }
  }
  return concluded(
      std::move(result),
      by_mtu.size() > 1
          ? "cards of one machine disagree: large packets are lost or fragmented on the way"
          : "small packets on a fast network",
      fmt::format("{} on {}", by_mtu.begin()->first,
                  plural(by_mtu.begin()->second.size(), "interface", "interfaces")));
}

CheckResult pcie(const NodeView& node) {
  CheckResult result;
  std::size_t told = 0, cards = 0;
  for (const auto& device : node.host().rdma) {
    ++cards;
    told += check_link(node, device.pci, device.name, "rdma/" + device.name, result) ? 1 : 0;
  }
  for (const auto& nic : node.host().nics) {
    if (!nic.physical || !nic.rdma.empty()) continue;
    ++cards;
    told += check_link(node, nic.pci, nic.name, "net/" + nic.name, result) ? 1 : 0;
  }
  if (cards == 0) return not_applicable("no network card is visible here");
  if (told == 0)
    return not_seen("no current_link_speed or current_link_width: usual in a virtual machine");
  return concluded(std::move(result), "several are below what card and slot can do",
                   plural(told, "link", "links") + " at full width and speed");
}

bool usable_gid(const RdmaPort& port) {
  return std::any_of(port.gids.begin(), port.gids.end(), [](const auto& gid) {
    return gid.type == "RoCE v2" && (gid.address == "IPv4" || gid.address == "IPv6");
  });
}

CheckResult gids(const NodeView& node) {
  CheckResult result;
  std::size_t judged = 0;
  for (const auto& device : node.host().rdma) {
    for (const auto& port : device.ports) {
      if (port.link_layer != "Ethernet" || port.state != "ACTIVE") continue;
      ++judged;
      if (usable_gid(port)) continue;
      add(result, CheckState::kWarning,
          fmt::format("/sys/class/infiniband/{}/ports/{}/gids", device.name, port.number),
          fmt::format("{} port {}: {}, none of them RoCE v2 with a routable address: NCCL fails or "
                      "uses sockets",
                      device.name, port.number, plural(port.gids.size(), "address", "addresses")),
          "rdma/" + device.name);
    }
  }
  if (judged == 0) return not_applicable("no active RoCE port");
  return concluded(std::move(result), "several ports cannot be routed to",
                   plural(judged, "port", "ports") + " with RoCE v2 and an IP address");
}

CheckResult gpu_direct(const NodeView& node) {
  const auto& host = node.host();
  const bool nvidia = std::any_of(host.gpus.begin(), host.gpus.end(), [](const auto& gpu) {
    return gpu.compute && gpu.vendor == "NVIDIA";
  });
  if (!nvidia || host.rdma.empty()) return not_applicable("needs NVIDIA GPUs and RDMA devices");
  if (!host.system.nvidia_peermem)
    return not_seen("/sys/module/nvidia is absent: the driver is not loaded or not visible");
  if (*host.system.nvidia_peermem) return all_well("nvidia_peermem is loaded");
  CheckResult result = found(CheckState::kNote,
                             "nvidia_peermem is not loaded; newer kernels and open drivers do "
                             "without it (dma-buf): NCCL's log says which",
                             "/sys/module/nvidia_peermem", "absent");
  result.status = Status::kHypothesis;
  return result;
}

constexpr Threshold kMtu[] = {
    {"nic_mtu.least_roce", 4200, "bytes",
     "RoCE v2 with an RDMA MTU of 4096 and its headers; NVIDIA's RoCE guide"}};

constexpr NodeCheck kChecks[] = {
    {.id = "nic_link",
     .title = "a network card is down or slow",
     .layer = Layer::kNetwork,
     .check = nic_link,
     .verify = "ip -br link; ethtool <interface>",
     .fix = "ip link set <interface> up; check cable, optic and the switch's port",
     .undo = "ip link set <interface> down",
     .source = "Linux Documentation/ABI/testing/sysfs-class-net",
     .may_cause = "bandwidth_cap"},
    {.id = "nic_mtu",
     .title = "MTUs do not fit",
     .layer = Layer::kNetwork,
     .check = mtu,
     .verify = "ip -br link; ping -M do -s 8972 <peer>",
     .fix = "ip link set <interface> mtu 9000 on every host, when the switches carry it",
     .undo = "ip link set <interface> mtu 1500",
     .source = "ip-link(8)",
     .thresholds = kMtu,
     .may_cause = "tcp_loss"},
    {.id = "nic_pcie",
     .title = "a network card's PCIe link is below what it can do",
     .layer = Layer::kNetwork,
     .check = pcie,
     .verify = "cat /sys/bus/pci/devices/<address>/current_link_{speed,width}; lspci -vvs "
               "<address> | grep LnkSta",
     .fix = "reseat the card, use a slot with all lanes, update BIOS and firmware",
     .undo = "none needed",
     .source = "Linux Documentation/ABI/testing/sysfs-bus-pci; PCI Express Base Specification 5.0, "
               "5.4.1 (ASPM)",
     .may_cause = "pcie_degraded"},
    {.id = "rdma_link",
     .title = "an RDMA port is down or slow",
     .layer = Layer::kNetwork,
     .check = rdma_link,
     .verify = "ibstat; rdma link",
     .fix =
         "check cable and optic, the switch's port, and for InfiniBand the subnet manager (sminfo)",
     .undo = "none needed",
     .source = "Linux Documentation/ABI/stable/sysfs-class-infiniband",
     .may_cause = "rdma_errors"},
    {.id = "rdma_gids",
     .title = "a RoCE port has no routable address",
     .layer = Layer::kNetwork,
     .check = gids,
     .verify = "show_gids; rdma link",
     .fix = "give the interface an IP address; then NCCL_IB_GID_INDEX is the index of its RoCE v2 "
            "entry (NCCL finds it since 2.21)",
     .undo = "remove the address",
     .source = "Linux Documentation/ABI/stable/sysfs-class-infiniband (gid_attrs)",
     .may_cause = "nccl_on_sockets"},
    {.id = "gpu_direct",
     .title = "GPUDirect RDMA may be off",
     .layer = Layer::kNetwork,
     .check = gpu_direct,
     .verify = "lsmod | grep peermem; NCCL_DEBUG=INFO and look for GDRDMA",
     .fix = "modprobe nvidia-peermem",
     .undo = "rmmod nvidia-peermem",
     .source = "NVIDIA GPUDirect RDMA documentation; NVIDIA/nccl-tests#29",
     .may_cause = "nccl_on_sockets"},
};

}  // namespace

std::span<const NodeCheck> network_checks() { return kChecks; }

}  // namespace bedplate::doctor
