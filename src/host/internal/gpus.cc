#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "host/internal/describers.h"
#include "host/internal/read.h"

namespace bedplate::host {
namespace {

struct Model {
  std::string_view vendor_id, device_id, name;
};
// What trains models and has no driver to ask (or is looked at from a recorded /sys alone). From
// the PCI ID repository, https://pci-ids.ucw.cz; a device that is not listed is shown by its id.
constexpr Model kModels[] = {{"10de", "1db1", "Tesla V100 SXM2 16GB"},
                             {"10de", "1db5", "Tesla V100 SXM2 32GB"},
                             {"10de", "1eb8", "Tesla T4"},
                             {"10de", "20b0", "A100 SXM4 40GB"},
                             {"10de", "20b2", "A100 SXM4 80GB"},
                             {"10de", "20b5", "A100 PCIe 80GB"},
                             {"10de", "20f1", "A100 PCIe 40GB"},
                             {"10de", "2236", "A10"},
                             {"10de", "2330", "H100 SXM5 80GB"},
                             {"10de", "2331", "H100 PCIe"},
                             {"10de", "2335", "H200 SXM 141GB"},
                             {"10de", "26b9", "L40S"},
                             {"10de", "27b8", "L4"},
                             {"10de", "2901", "B200"},
                             {"1002", "738c", "Instinct MI100"},
                             {"1002", "7408", "Instinct MI250X"},
                             {"1002", "740c", "Instinct MI250X/MI250"},
                             {"1002", "740f", "Instinct MI210"},
                             {"1002", "74a1", "Instinct MI300X"},
                             {"8086", "0bd5", "Data Center GPU Max 1550"},
                             {"1da3", "1020", "Gaudi2"}};

std::string vendor_name(std::string_view id) {
  if (id == "10de") return "NVIDIA";
  if (id == "1002") return "AMD";
  if (id == "8086") return "Intel";
  if (id == "1da3") return "Habana";
  if (id == "1a03") return "ASPEED";
  if (id == "102b") return "Matrox";
  if (id == "1af4") return "virtio";
  if (id == "1234") return "QEMU";
  if (id == "15ad") return "VMware";
  return fmt::format("vendor {}", id);
}

// Class 0x03 is display, of it 0x0302 "3D controller" has no screen; 0x12 is processing
// accelerator. NVIDIA's and AMD's cards compute whichever of these they say; an integrated Intel
// display does not count.
bool computes(const PciDevice& pci) {
  if (pci.class_code.starts_with("12") || pci.class_code.starts_with("0302")) return true;
  if (pci.class_code.starts_with("0380") && pci.vendor_id == "8086") return true;
  return pci.vendor_id == "10de" || pci.vendor_id == "1002";
}

void ask_driver(const os::HostRoot& root, Gpu& gpu) {
  const std::string folder = fmt::format("/sys/bus/pci/devices/{}/", gpu.pci.address);
  if (gpu.vendor == "NVIDIA") {
    const auto text =
        root.read(fmt::format("/proc/driver/nvidia/gpus/{}/information", gpu.pci.address))
            .value_or("");
    gpu.model = tidy(field(text, "Model"));
    // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 …"
    const std::string version = root.read("/proc/driver/nvidia/version").value_or("");
    for (const auto part : words(std::string_view(version).substr(0, 256))) {
      if (part.size() > 3 && part.find_first_not_of("0123456789.") == std::string_view::npos &&
          part.find('.') != std::string_view::npos) {
        gpu.driver_version = part;
        break;
      }
    }
  } else if (gpu.vendor == "AMD") {
    gpu.model = word(root, folder + "product_name");
    gpu.memory_bytes = amount(root, folder + "mem_info_vram_total");
    gpu.driver_version = word(root, "/sys/module/amdgpu/version");
  }
  if (!gpu.model.empty()) return;
  for (const auto& model : kModels) {
    if (model.vendor_id == gpu.pci.vendor_id && model.device_id == gpu.pci.device_id) {
      gpu.model = model.name;
    }
  }
}

// The text between <name> and </name>, first occurrence; "" when absent.
std::string_view element(std::string_view xml, std::string_view name) {
  const std::string open = fmt::format("<{}>", name);
  const auto begin = xml.find(open);
  if (begin == std::string_view::npos) return {};
  const auto end = xml.find(fmt::format("</{}>", name), begin);
  if (end == std::string_view::npos) return {};
  return trim(xml.substr(begin + open.size(), end - begin - open.size()));
}

// A recorded `nvidia-smi -q -x`. It names GPUs by "00000000:1B:00.0".
void read_smi(const os::HostRoot& root, std::vector<Gpu>& gpus) {
  const std::string xml = root.read("/tools/nvidia-smi-q.xml").value_or("");
  const std::string driver = tidy(element(xml, "driver_version"));
  std::string_view rest = xml;
  for (auto at = rest.find("<gpu id=\""); at != std::string_view::npos;
       at = rest.find("<gpu id=\"")) {
    rest.remove_prefix(at + 9);
    std::string id(rest.substr(0, std::min<std::size_t>(rest.find('"'), 32)));
    for (char& c : id) {
      if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
    }
    const auto block = rest.substr(0, rest.find("</gpu>"));
    for (auto& gpu : gpus) {
      if (!id.ends_with(gpu.pci.address)) continue;
      const std::string model = tidy(element(block, "product_name"));
      if (!model.empty()) gpu.model = model;
      gpu.uuid = tidy(element(block, "uuid"));
      if (!driver.empty()) gpu.driver_version = driver;
      const auto total = words(element(element(block, "fb_memory_usage"), "total").substr(0, 64));
      if (total.size() == 2 && total[1] == "MiB")
        gpu.memory_bytes = times(to_amount(total[0]), kMiB);
    }
  }
}

}  // namespace

void describe_gpus(const os::HostRoot& root, Host& host) {
  int index = 0;
  for (const auto& address : root.list("/sys/bus/pci/devices")) {
    const std::string code = word(root, fmt::format("/sys/bus/pci/devices/{}/class", address));
    if (!code.starts_with("0x03") && !code.starts_with("0x12")) continue;
    Gpu gpu{.pci = pci_device(root, address)};
    if (gpu.pci.address.empty() || gpu.pci.vendor_id.empty()) continue;
    gpu.vendor = vendor_name(gpu.pci.vendor_id);
    gpu.compute = computes(gpu.pci);
    gpu.index = gpu.compute ? index++ : -1;
    ask_driver(root, gpu);
    host.gpus.push_back(std::move(gpu));
  }
  if (!root.live()) read_smi(root, host.gpus);
}

}  // namespace bedplate::host
