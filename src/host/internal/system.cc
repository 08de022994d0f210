#include "base/text.h"
#include "host/internal/describers.h"
#include "host/internal/read.h"

namespace bedplate::host {
namespace {

// What of the kernel's command line bears on speed. Nothing else is kept: it may hold secrets.
constexpr std::string_view kBootOptions[] = {"amd_iommu",
                                             "amd_pstate",
                                             "clocksource",
                                             "default_hugepagesz",
                                             "hugepages",
                                             "hugepagesz",
                                             "idle",
                                             "intel_idle.max_cstate",
                                             "intel_iommu",
                                             "intel_pstate",
                                             "iommu",
                                             "irqaffinity",
                                             "isolcpus",
                                             "mem",
                                             "mitigations",
                                             "nmi_watchdog",
                                             "nohz_full",
                                             "nosmt",
                                             "nosoftlockup",
                                             "numa_balancing",
                                             "pci",
                                             "pcie_aspm",
                                             "processor.max_cstate",
                                             "psi",
                                             "rcu_nocbs",
                                             "skew_tick",
                                             "transparent_hugepage",
                                             "tsc"};

struct Maker {
  std::string_view vendor;  // start of DMI's sys_vendor
  std::string_view hypervisor;
};
constexpr Maker kVirtualMakers[] = {{"QEMU", "KVM"},
                                    {"Red Hat", "KVM"},
                                    {"Amazon EC2", "KVM"},
                                    {"Google", "KVM"},
                                    {"Alibaba Cloud", "KVM"},
                                    {"Tencent Cloud", "KVM"},
                                    {"OpenStack", "KVM"},
                                    {"DigitalOcean", "KVM"},
                                    {"VMware", "VMware"},
                                    {"Microsoft Corporation", "Hyper-V"},
                                    {"Xen", "Xen"},
                                    {"innotek GmbH", "VirtualBox"},
                                    {"Parallels", "Parallels"},
                                    {"bhyve", "bhyve"}};

std::string os_name(const os::HostRoot& root) {
  for (const auto* path : {"/etc/os-release", "/usr/lib/os-release"}) {
    const auto text = root.read(path);
    std::string_view rest = text ? std::string_view(*text) : std::string_view();
    while (const auto line = next_line(rest)) {
      if (!line->starts_with("PRETTY_NAME=")) continue;
      std::string_view value = trim(line->substr(12));
      if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
        value = value.substr(1, value.size() - 2);
      }
      return tidy(value);
    }
  }
  return {};
}

std::vector<std::string> boot_options(const os::HostRoot& root) {
  constexpr std::size_t kMost = 64;
  std::vector<std::string> kept;
  const auto text = root.read("/proc/cmdline");
  if (!text) return kept;
  for (const auto option : words(std::string_view(*text).substr(0, 64 << 10))) {
    if (option == "--") break;  // what follows is for init
    const auto key = option.substr(0, option.find('='));
    for (const auto known : kBootOptions) {
      if (key == known && kept.size() < kMost) kept.push_back(tidy(option));
    }
  }
  return kept;
}

void guess_hypervisor(const os::HostRoot& root, System& system) {
  const auto set = [&](std::string_view name, std::string hint) {
    if (system.hypervisor.empty() || system.hypervisor == "yes") system.hypervisor = name;
    system.hints.push_back(std::move(hint));
  };
  const auto cpuinfo = root.read("/proc/cpuinfo");
  if (cpuinfo) {
    const auto flags = field_of_cpuinfo(*cpuinfo, "flags");
    for (const auto flag : words(flags)) {
      if (flag == "hypervisor") {
        set("yes", "/proc/cpuinfo: flag hypervisor");
        break;
      }
    }
  }
  const std::string type = word(root, "/sys/hypervisor/type");
  if (type == "xen") set("Xen", "/sys/hypervisor/type: xen");
  for (const auto& source : system.clock_sources) {
    if (source == "kvm-clock") set("KVM", "clock source kvm-clock");
    if (source == "xen") set("Xen", "clock source xen");
    if (source.starts_with("hyperv")) set("Hyper-V", "clock source " + source);
  }
  // The makers of clouds also sell and run bare metal; the processor's flag or the product decides.
  for (const auto& maker : kVirtualMakers) {
    if (!system.vendor.starts_with(maker.vendor)) continue;
    const bool metal = system.product.find("metal") != std::string::npos;
    const bool flagged = !system.hypervisor.empty();
    const bool machine = system.product.find("Virtual") != std::string::npos;
    if (!metal && (flagged || machine)) set(maker.hypervisor, "DMI vendor " + system.vendor);
    break;
  }
}

void guess_container(const os::HostRoot& root, System& system) {
  const auto set = [&](std::string_view name, std::string hint) {
    if (system.container.empty()) system.container = name;
    system.hints.push_back(std::move(hint));
  };
  const std::string systemd = word(root, "/run/systemd/container");
  if (!systemd.empty()) set(systemd, "/run/systemd/container: " + systemd);
  if (root.exists("/var/run/secrets/kubernetes.io")) {
    set("kubernetes", "/var/run/secrets/kubernetes.io exists");
  }
  if (root.exists("/run/.containerenv")) set("podman", "/run/.containerenv exists");
  if (root.exists("/.dockerenv")) set("docker", "/.dockerenv exists");
  const auto groups = root.read("/proc/self/cgroup");
  if (!groups) return;
  constexpr std::pair<std::string_view, std::string_view> kPaths[] = {
      {"kubepods", "kubernetes"}, {"/docker", "docker"}, {"/libpod", "podman"}, {"/lxc", "lxc"}};
  for (const auto& [path, name] : kPaths) {
    if (groups->find(path) != std::string::npos) {
      set(name, "/proc/self/cgroup: " + std::string(path));
      break;
    }
  }
}

}  // namespace

void describe_system(const os::HostRoot& root, Host& host) {
  System& system = host.system;
  system.hostname = word(root, "/proc/sys/kernel/hostname");
  system.os = os_name(root);
  system.kernel = word(root, "/proc/sys/kernel/osrelease");
  system.boot_options = boot_options(root);
  const std::string clock = "/sys/devices/system/clocksource/clocksource0/";
  system.clock_source = word(root, clock + "current_clocksource");
  const std::string sources = word(root, clock + "available_clocksource");
  for (const auto source : words(sources)) {
    system.clock_sources.emplace_back(source);
  }
  system.vendor = word(root, "/sys/class/dmi/id/sys_vendor");
  system.product = word(root, "/sys/class/dmi/id/product_name");
  guess_hypervisor(root, system);
  guess_container(root, system);
  if (!system.kernel.empty()) {  // else there is no kernel to speak of, and "no" would be a lie
    system.psi = root.readable("/proc/pressure/cpu");
    system.btf = root.exists("/sys/kernel/btf/vmlinux");
    if (root.exists("/sys/module/nvidia")) {
      system.nvidia_peermem =
          root.exists("/sys/module/nvidia_peermem") || root.exists("/sys/module/nv_peer_mem");
    }
  }
  system.perf_event_paranoid = root.read_int("/proc/sys/kernel/perf_event_paranoid");
}

}  // namespace bedplate::host
