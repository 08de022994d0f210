// Checks of GPUs that need no vendor library: driver, link, node.
#include <algorithm>
#include <set>

#include "doctor/node_checks.h"
#include "doctor/pcie_check.h"

namespace bedplate::doctor {
namespace {

using host::Gpu;

std::vector<const Gpu*> gpus_of(const NodeView& node) {
  std::vector<const Gpu*> gpus;
  for (const auto& gpu : node.host().gpus) {
    if (gpu.compute) gpus.push_back(&gpu);
  }
  return gpus;
}

CheckResult none() { return not_applicable("no GPU on the PCI bus"); }

std::string title(const Gpu& gpu) { return fmt::format("GPU{} ({})", gpu.index, gpu.pci.address); }
std::string subject(const Gpu& gpu) { return fmt::format("gpu/{}", gpu.index); }

CheckResult driver(const NodeView& node) {
  const auto gpus = gpus_of(node);
  if (gpus.empty()) return none();
  CheckResult result;
  std::set<std::string> drivers;
  for (const Gpu* gpu : gpus) {
    const std::string& name = gpu->pci.driver;
    const std::string source = fmt::format("/sys/bus/pci/devices/{}/driver", gpu->pci.address);
    if (name.empty())
      add(result, CheckState::kFault, source, title(*gpu) + " has no driver", subject(*gpu));
    else if (name == "nouveau")
      add(result, CheckState::kFault, source, title(*gpu) + " has nouveau, which cannot compute",
          subject(*gpu));
    else if (name == "vfio-pci" || name == "pci-stub")
      add(result, CheckState::kNote, source,
          title(*gpu) + " is handed to a virtual machine (" + name + ")", subject(*gpu));
    else
      drivers.insert(name);
  }
  return concluded(
      std::move(result), "several cannot be used",
      plural(gpus.size(), "GPU", "GPUs") + " with " + (drivers.empty() ? "n/a" : *drivers.begin()));
}

CheckResult pcie(const NodeView& node) {
  const auto gpus = gpus_of(node);
  if (gpus.empty()) return none();
  CheckResult result;
  std::size_t told = 0;
  for (const Gpu* gpu : gpus)
    told += check_link(node, gpu->pci, title(*gpu), subject(*gpu), result) ? 1 : 0;
  if (told == 0)
    return not_seen("no current_link_speed or current_link_width: usual in a virtual machine");
  return concluded(std::move(result), "several are below what card and slot can do",
                   plural(told, "link", "links") + " at full width and speed");
}

CheckResult numa(const NodeView& node) {
  const auto gpus = gpus_of(node);
  if (gpus.empty()) return none();
  if (node.host().nodes.size() < 2) return not_applicable("one NUMA node");
  CheckResult result;
  for (const Gpu* gpu : gpus) {
    if (gpu->pci.numa_node) continue;
    add(result, CheckState::kNote,
        fmt::format("/sys/bus/pci/devices/{}/numa_node", gpu->pci.address),
        title(*gpu) + ": numa_node is -1: unknown, not node 0", subject(*gpu));
  }
  return concluded(
      std::move(result),
      "the BIOS does not say to which node they belong: ranks cannot be bound near them",
      "every GPU's node is known");
}

CheckResult alike(const NodeView& node) {
  const auto gpus = gpus_of(node);
  if (gpus.empty()) return none();
  std::set<std::string> kinds;
  for (const Gpu* gpu : gpus) {
    kinds.insert(
        fmt::format("{} {}", gpu->vendor, gpu->model.empty() ? gpu->pci.device_id : gpu->model));
  }
  if (kinds.size() == 1) return all_well(plural(gpus.size(), "GPU", "GPUs") + " of one kind");
  CheckResult result;
  for (const auto& kind : kinds)
    add(result, CheckState::kNote, "/sys/bus/pci/devices/*/device", kind);
  return concluded(std::move(result),
                   "of different kinds: in a job over all of them the slowest sets the pace", "");
}

constexpr Threshold kPcie[] = {
    {"pcie.fault_share", 0.5, "share of lanes",
     "own: below half of its lanes a card is badly seated or broken, not merely in a small slot"}};

constexpr NodeCheck kChecks[] = {
    {.id = "gpu_driver",
     .title = "a GPU has no usable driver",
     .layer = Layer::kGpu,
     .check = driver,
     .verify = "lspci -nnk -d ::0300; lspci -nnk -d ::0302; nvidia-smi -L; rocm-smi",
     .fix = "install the vendor's driver for this kernel (dkms status), blacklist nouveau, reboot",
     .undo = "remove the driver package",
     .source = "Linux Documentation/ABI/testing/sysfs-bus-pci"},
    {.id = "gpu_pcie",
     .title = "a GPU's PCIe link is below what it can do",
     .layer = Layer::kGpu,
     .check = pcie,
     .verify = "cat /sys/bus/pci/devices/<address>/current_link_{speed,width}; lspci "
               "-vvs <address> | grep LnkSta",
     .fix = "reseat card or riser, look for a slot with all lanes, update the BIOS, read the "
            "kernel log for \"limited by\" and AER",
     .undo = "none needed",
     .source = "Linux Documentation/ABI/testing/sysfs-bus-pci; PCI Express Base Specification 5.0, "
               "5.4.1 (ASPM)",
     .thresholds = kPcie,
     .may_cause = "pcie_degraded"},
    {.id = "gpu_numa_node",
     .title = "a GPU's NUMA node is unknown",
     .layer = Layer::kGpu,
     .check = numa,
     .verify = "cat /sys/bus/pci/devices/*/numa_node; nvidia-smi topo -m",
     .fix = "update the BIOS; until then bind ranks by hand after measuring",
     .undo = "none needed",
     .source = "Linux Documentation/ABI/testing/sysfs-bus-pci (numa_node)",
     .may_cause = "numa_misplacement"},
    {.id = "gpu_kinds",
     .title = "GPUs of different kinds",
     .layer = Layer::kGpu,
     .check = alike,
     .verify = "lspci -nn | grep -Ei '3d|vga|accel'",
     .fix = "choose those of one kind with CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES",
     .undo = "unset it",
     .source = "own",
     .may_cause = "straggler"},
};

}  // namespace

bool check_link(const NodeView& node, const host::PciDevice& device, const std::string& title,
                const std::string& subject, CheckResult& result) {
  const auto& link = device.link;
  if (!link.speed_gts && !link.width) return false;
  const auto best = host::best_link(device);
  const std::string source = fmt::format("/sys/bus/pci/devices/{}/current_link_*", device.address);
  const std::string now = host::link_text(link.speed_gts, link.width);
  const std::string could = host::link_text(best.speed_gts, best.width);
  if (result.evidence.empty()) {
    result.verify =
        fmt::format("cat /sys/bus/pci/devices/{}/current_link_{{speed,width}}", device.address);
  }
  if (link.width && best.width && *link.width < *best.width) {
    const bool bad = *link.width < node.threshold("pcie.fault_share") * *best.width;
    add(result, bad ? CheckState::kFault : CheckState::kWarning, source,
        fmt::format("{}: {} where {} is possible: lanes are missing", title, now, could), subject);
  } else if (link.speed_gts && best.speed_gts && *link.speed_gts < *best.speed_gts) {
    // An idle link slows down by itself to save power; only under load does a low speed mean
    // something.
    if (result.state == CheckState::kOk) result.status = Status::kHypothesis;
    add(result, CheckState::kNote, source,
        fmt::format("{}: {} where {} is possible; an idle link saves power (ASPM), so look again "
                    "under load",
                    title, now, could),
        subject);
  }
  if (link.max_width && best.width && *best.width < *link.max_width) {
    add(result, CheckState::kNote,
        fmt::format("/sys/bus/pci/devices/{}/max_link_width", device.port),
        fmt::format("{}: the slot has {} lanes, the card {}", title, *best.width, *link.max_width),
        subject);
  }
  return true;
}

std::span<const NodeCheck> gpu_checks() { return kChecks; }

}  // namespace bedplate::doctor
