#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "host/internal/describers.h"
#include "host/internal/read.h"

namespace bedplate::host {
namespace {

constexpr std::string_view kDevices = "/sys/bus/pci/devices/";

bool is_hex(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// A hex number of sysfs without its prefix: "0x10de" → "10de"; "" for what is not one.
std::string hex_id(const os::HostRoot& root, const std::string& path) {
  const std::string text = word(root, path);
  if (!text.starts_with("0x") || text.size() > 10 || !is_hex(std::string_view(text).substr(2)))
    return {};
  return text.substr(2);
}

PciLink link_of(const os::HostRoot& root, const std::string& folder) {
  PciLink link;
  const auto speed = [&](const char* file) -> std::optional<double> {
    const std::string text =
        word(root, folder + file);  // "16.0 GT/s PCIe", older "8 GT/s", "Unknown"
    const auto parts = words(text);
    const auto value = parts.size() < 2 ? std::nullopt : to_double(parts[0]);
    if (!value || !(*value > 0) || *value > 1000 || parts[1] != "GT/s") return std::nullopt;
    return value;
  };
  // A device that is powered down or has fallen off the bus reads as all ones: 63 lanes.
  const auto lanes = [&](const char* file) {
    return small_number(word(root, folder + file), 1, 32);
  };
  link.speed_gts = speed("current_link_speed");
  link.width = lanes("current_link_width");
  link.max_speed_gts = speed("max_link_speed");
  link.max_width = lanes("max_link_width");
  return link;
}

}  // namespace

bool is_pci_address(std::string_view text) {  // "0000:1b:00.0"; domains may have more digits
  const auto colons = split(text, ':');
  if (colons.size() != 3 || colons[0].size() < 4 || colons[0].size() > 8) return false;
  const auto function = split(colons[2], '.');
  return is_hex(colons[0]) && colons[1].size() == 2 && is_hex(colons[1]) && function.size() == 2 &&
         function[0].size() == 2 && is_hex(function[0]) && function[1].size() == 1 &&
         is_hex(function[1]);
}

std::string pci_address_in(std::string_view path) {
  std::string last;
  for (const auto part : split(path, '/')) {
    if (is_pci_address(part)) last = part;
  }
  return last;
}

PciDevice pci_device(const os::HostRoot& root, std::string_view address) {
  PciDevice device;
  if (!is_pci_address(address)) return device;
  device.address = address;
  const std::string folder = fmt::format("{}{}/", kDevices, address);
  device.vendor_id = hex_id(root, folder + "vendor");
  device.device_id = hex_id(root, folder + "device");
  device.class_code = hex_id(root, folder + "class");
  device.driver = tidy(root.link_name(folder + "driver").value_or(""));
  device.numa_node = small_number(word(root, folder + "numa_node"), 0, 4095);
  device.link = link_of(root, folder);
  const auto path = root.link(fmt::format("{}{}", kDevices, address)).value_or("");
  for (const auto part : split(path, '/')) {
    if (is_pci_address(part) && part != address)
      device.bridges.emplace_back(part);
    else if (part.starts_with("pci") && part.size() >= 8)
      device.bridges.emplace_back(part);  // "pci0000:16"
  }
  if (!device.bridges.empty() && is_pci_address(device.bridges.back())) {
    device.port = device.bridges.back();
    device.port_link = link_of(root, fmt::format("{}{}/", kDevices, device.port));
  }
  return device;
}

std::optional<PciDistance> pci_distance(const PciDevice& a, const PciDevice& b) {
  if (a.address.empty() || b.address.empty()) return std::nullopt;
  if (!a.bridges.empty() && !b.bridges.empty() && a.bridges[0] == b.bridges[0]) {
    const std::size_t common = static_cast<std::size_t>(
        std::mismatch(a.bridges.begin(), a.bridges.end(), b.bridges.begin(), b.bridges.end())
            .first -
        a.bridges.begin());
    if (common == 1) return PciDistance::kHostBridge;  // only the root complex
    const std::size_t between = (a.bridges.size() - common) + (b.bridges.size() - common);
    // Behind one switch each device has its own downstream port, so a switch counts one bridge a
    // side.
    return between <= 2 ? PciDistance::kSameSwitch : PciDistance::kSwitches;
  }
  if (!a.numa_node || !b.numa_node) return std::nullopt;
  return *a.numa_node == *b.numa_node ? PciDistance::kSameNode : PciDistance::kAcrossNodes;
}

PciLink best_link(const PciDevice& device) {
  PciLink best{.speed_gts = device.link.max_speed_gts, .width = device.link.max_width};
  const PciLink& port = device.port_link;
  if (best.speed_gts && port.max_speed_gts) {
    best.speed_gts = std::min(*best.speed_gts, *port.max_speed_gts);
  }
  if (best.width && port.max_width) best.width = std::min(*best.width, *port.max_width);
  return best;
}

std::string link_text(std::optional<double> speed_gts, std::optional<int> width) {
  std::string text;
  if (speed_gts) {
    constexpr std::pair<double, std::string_view> kGenerations[] = {
        {2.5, "1.0"}, {5, "2.0"}, {8, "3.0"}, {16, "4.0"}, {32, "5.0"}, {64, "6.0"}};
    std::string generation = fmt::format("at {} GT/s", *speed_gts);
    for (const auto& [rate, name] : kGenerations) {
      if (*speed_gts == rate) generation = name;
    }
    text = "PCIe " + generation;
  }
  if (width) text += fmt::format("{}x{}", text.empty() ? "" : " ", *width);
  return text;
}

std::string_view name(PciDistance distance) {
  switch (distance) {
    case PciDistance::kSameSwitch:
      return "PIX";
    case PciDistance::kSwitches:
      return "PXB";
    case PciDistance::kHostBridge:
      return "PHB";
    case PciDistance::kSameNode:
      return "NODE";
    case PciDistance::kAcrossNodes:
      return "SYS";
  }
  return "";
}

}  // namespace bedplate::host
