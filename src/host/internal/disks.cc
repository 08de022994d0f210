#include <fmt/format.h>

#include "base/text.h"
#include "host/internal/describers.h"
#include "host/internal/natural_order.h"
#include "host/internal/read.h"

namespace bedplate::host {
namespace {

constexpr std::string_view kBlock = "/sys/block/";

std::string kind_of(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"nvme", "nvme"}, {"vd", "virtio"}, {"sd", "scsi"},   {"dm-", "device-mapper"},
      {"md", "raid"},   {"loop", "loop"}, {"zram", "zram"}, {"mmcblk", "mmc"},
      {"xvd", "xen"},   {"nbd", "nbd"},   {"rbd", "rbd"},   {"pmem", "pmem"}};
  for (const auto& [prefix, kind] : kKinds) {
    if (name.starts_with(prefix)) return std::string(kind);
  }
  return "other";
}

// An NVMe disk with native multipath lies under a virtual subsystem; its controllers know the
// address.
std::string nvme_address(const os::HostRoot& root, const std::string& entry) {
  for (const auto& name : root.list(entry + "/device")) {
    if (!name.starts_with("nvme")) continue;
    std::string address = word(root, fmt::format("/sys/class/nvme/{}/address", name));
    if (is_pci_address(address)) return address;
  }
  return {};
}

Disk describe_disk(const os::HostRoot& root, const std::string& name) {
  const std::string entry = std::string(kBlock) + name;
  Disk disk{.name = tidy(name), .kind = kind_of(name)};
  disk.model = word(root, entry + "/device/model");
  if (disk.model.empty()) disk.model = word(root, entry + "/dm/name");
  if (disk.model.empty()) disk.model = word(root, entry + "/loop/backing_file");
  disk.bytes =
      times(amount(root, entry + "/size"), 512);  // in sectors of 512 whatever the device's own
  const auto flag = [&](const char* file) -> std::optional<bool> {
    const auto value = amount(root, entry + file);
    return value ? std::optional(*value != 0) : std::nullopt;
  };
  disk.rotational = flag("/queue/rotational");
  disk.read_only = flag("/ro");
  disk.scheduler = chosen(word(root, entry + "/queue/scheduler"));
  disk.read_ahead_kib = amount(root, entry + "/queue/read_ahead_kb");
  disk.queue_requests = amount(root, entry + "/queue/nr_requests");
  disk.max_request_kib = amount(root, entry + "/queue/max_sectors_kb");
  disk.write_cache = word(root, entry + "/queue/write_cache");
  for (const auto& part : root.list(entry + "/slaves")) disk.parts.push_back(tidy(part));
  std::string address = pci_address_in(root.link(entry).value_or(""));
  if (address.empty() && disk.kind == "nvme") address = nvme_address(root, entry);
  disk.pci = pci_device(root, address);
  return disk;
}

// Empty loop, zram and RAM devices exist by the dozen and hold nothing; optical and floppy drives
// train nobody.
bool of_interest(const Disk& disk) {
  if (disk.name.starts_with("ram") || disk.name.starts_with("sr") || disk.name.starts_with("fd"))
    return false;
  const bool may_be_empty = disk.kind == "loop" || disk.kind == "zram" || disk.kind == "nbd";
  return !(may_be_empty && disk.bytes.value_or(0) == 0);
}

}  // namespace

void describe_disks(const os::HostRoot& root, Host& host) {
  for (const auto& name : root.list(kBlock)) {
    Disk disk = describe_disk(root, name);
    if (of_interest(disk)) host.disks.push_back(std::move(disk));
  }
  sort_naturally(host.disks, &Disk::name);
}

}  // namespace bedplate::host
