// Checks of the kernel and of registers below it: what Bedplate can see here, and what somebody has
// tuned.
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "doctor/node_checks.h"

namespace bedplate::doctor {
namespace {

// "5.15.0-1042-nvidia" → 5015; nullopt for what is no version.
std::optional<int> version_number(std::string_view release) {
  const auto parts = split(release, '.');
  if (parts.size() < 2) return std::nullopt;
  const auto major = to_int(parts[0]);
  const auto minor = to_int(parts[1].substr(0, parts[1].find_first_not_of("0123456789")));
  if (!major || !minor || *major < 0 || *major > 999 || *minor < 0 || *minor > 999)
    return std::nullopt;
  return static_cast<int>(*major * 1000 + *minor);
}

CheckResult kernel(const NodeView& node) {
  const std::string& release = node.host().system.kernel;
  const auto number = version_number(release);
  if (!number)
    return not_seen(release.empty() ? "/proc/sys/kernel/osrelease is absent"
                                    : "the release is no version: " + release);
  const auto below = [&](std::string_view key) {
    return *number < static_cast<int>(node.threshold(key));
  };
  if (below("kernel.warning")) {
    return found(
        CheckState::kWarning,
        release + ": no pressure figures, and current GPU drivers and containers expect more",
        "/proc/sys/kernel/osrelease", release);
  }
  if (below("kernel.note")) {
    return found(CheckState::kNote,
                 release + ": Bedplate's BPF programs may not load; /proc is used instead",
                 "/proc/sys/kernel/osrelease", release);
  }
  return all_well(release);
}

CheckResult pressure(const NodeView& node) {
  const auto& psi = node.host().system.psi;
  if (!psi) return not_seen("no /proc of a kernel");
  if (*psi) return all_well("available");
  return found(CheckState::kNote,
               "none: reports cannot tell how long tasks waited for CPU, memory and IO",
               "/proc/pressure", "none");
}

CheckResult btf(const NodeView& node) {
  const auto& has = node.host().system.btf;
  if (!has) return not_seen("no /proc of a kernel");
  if (*has) return all_well("available");
  return found(CheckState::kNote,
               "none: BPF programs cannot load; block latency and run-queue delay come from /proc, "
               "more coarsely",
               "/sys/kernel/btf/vmlinux", "none");
}

// ---- prefetchers ----

enum class MsrAccess : std::uint8_t { kOk, kAbsent, kRefused };

// Reads registers of the first CPU: from the msr device of a live machine, or from the recorded
// tools/rdmsr.txt with lines "0xc0000108 0x0". Nothing is ever written.
class Registers {
 public:
  Registers(const os::HostRoot& root, int cpu) : root_(root) {
    const std::string device = fmt::format("/dev/cpu/{}/msr", cpu);
    if (root.live()) {
      fd_ = root.open(device);
      access_ = fd_                   ? MsrAccess::kOk
                : root.exists(device) ? MsrAccess::kRefused
                                      : MsrAccess::kAbsent;
    } else {
      recorded_ = root.read("/tools/rdmsr.txt").value_or("");
      access_ = recorded_.empty() ? MsrAccess::kAbsent : MsrAccess::kOk;
    }
  }

  MsrAccess access() const { return access_; }

  // nullopt: this processor does not have it.
  std::optional<std::uint64_t> read(std::uint32_t number) const {
    if (fd_) {
      std::uint64_t value = 0;
      const ssize_t n = ::pread(fd_.get(), &value, sizeof value, static_cast<off_t>(number));
      return n == sizeof value ? std::optional(value) : std::nullopt;
    }
    for (const auto line : split(std::string_view(recorded_).substr(0, 64 << 10), '\n')) {
      const auto parts = words(line);
      if (parts.size() != 2 || !parts[0].starts_with("0x") || !parts[1].starts_with("0x")) continue;
      const auto known = to_int(parts[0].substr(2), 16);
      const auto value = to_int(parts[1].substr(2), 16);
      if (known == static_cast<std::int64_t>(number) && value)
        return static_cast<std::uint64_t>(*value);
    }
    return std::nullopt;
  }

 private:
  const os::HostRoot& root_;
  os::UniqueFd fd_;
  std::string recorded_;
  MsrAccess access_ = MsrAccess::kAbsent;
};

struct Bit {
  int number;
  std::string_view name;
};
// AMD64 Architecture Programmer's Manual, volume 2: PrefetchControl. A set bit turns the prefetcher
// off.
constexpr Bit kAmdBits[] = {
    {0, "L1 stream"}, {1, "L1 stride"}, {2, "L1 region"}, {3, "L2 stream"}, {5, "L2 up/down"}};
// Intel, "Disclosure of hardware prefetcher control on some Intel processors". A set bit turns the
// prefetcher off.
constexpr Bit kIntelBits[] = {
    {0, "L2 streamer"}, {1, "L2 adjacent line"}, {2, "L1 (DCU)"}, {3, "L1 IP (DCU IP)"}};

template <std::size_t N>
std::string names_of(std::uint64_t value, const Bit (&bits)[N]) {
  std::vector<std::string_view> off;
  for (const auto& bit : bits) {
    if ((value >> bit.number & 1) != 0) off.push_back(bit.name);
  }
  return off.empty() ? fmt::format("value {:#x}", value)
                     : fmt::format("off: {}", fmt::join(off, ", "));
}

// What a recipe for miners and some tuning pages write, in the belief that it turns off the
// last-level prefetcher, clears the whole of AMD's LS_CFG: which is no prefetch switch, and holds
// the control of a Spectre-v4 mitigation and errata bits.
void check_amd(const Registers& registers, CheckResult& result) {
  constexpr std::uint32_t kPrefetchControl = 0xC0000108, kLsCfg = 0xC0011020;
  if (const auto value = registers.read(kPrefetchControl); value && *value != 0) {
    add(result, CheckState::kNote, "register 0xc0000108 (PrefetchControl)",
        names_of(*value, kAmdBits));
  }
  if (const auto value = registers.read(kLsCfg); value && *value == 0) {
    add(result, CheckState::kWarning, "register 0xc0011020 (LS_CFG)",
        "reads 0: it looks cleared as a whole, as a recipe going round does; it is not a prefetch "
        "switch, and with it went the control of a "
        "Spectre-v4 mitigation and errata settings. A reboot sets it right");
  }
}

CheckResult prefetchers(const NodeView& node) {
  const auto& host = node.host();
  if (node.root() == nullptr) return not_seen("needs the machine itself, not its description");
  if (!host.system.hypervisor.empty())
    return not_applicable("a virtual machine: the registers are its host's");
  const bool amd = host.cpu.vendor == "AuthenticAMD", intel = host.cpu.vendor == "GenuineIntel";
  if (!amd && !intel) return not_applicable("known for AMD and Intel processors only");
  const Registers registers(*node.root(), host.cpu.online.empty() ? 0 : host.cpu.online.front());
  if (registers.access() == MsrAccess::kAbsent)
    return not_applicable("no /dev/cpu/*/msr (modprobe msr would bring it)");
  if (registers.access() == MsrAccess::kRefused)
    return not_seen("not permitted: /dev/cpu/*/msr is for root");
  CheckResult result;
  result.verify = amd ? "rdmsr -a 0xc0000108" : "rdmsr -a 0x1a4";
  if (amd) {
    check_amd(registers, result);
  } else if (const auto value = registers.read(0x1A4); value && (*value & 0xF) != 0) {
    add(result, CheckState::kNote, "register 0x1a4", names_of(*value, kIntelBits));
  }
  return concluded(std::move(result), "unusual settings: somebody has tuned this processor",
                   "as the processor comes");
}

constexpr Threshold kKernel[] = {
    {"kernel.warning", 4018, "major × 1000 + minor",
     "4.18 is the oldest kernel of a distribution still maintained (RHEL 8)"},
    {"kernel.note", 5008, "major × 1000 + minor", "BPF ring buffer and CO-RE in full: Linux 5.8"}};

constexpr NodeCheck kChecks[] = {
    {.id = "kernel",
     .title = "the kernel is old",
     .layer = Layer::kCpu,
     .check = kernel,
     .verify = "uname -r",
     .fix = "install the distribution's newer kernel and reboot",
     .undo = "boot the old one",
     .source = "kernel release notes",
     .thresholds = kKernel},
    {.id = "pressure",
     .title = "the kernel gives no pressure figures",
     .layer = Layer::kCpu,
     .check = pressure,
     .verify = "cat /proc/pressure/cpu",
     .fix = "boot with psi=1 (and a kernel with CONFIG_PSI, 4.20 or newer)",
     .undo = "take psi=1 out of the boot line",
     .source = "Linux Documentation/accounting/psi.rst"},
    {.id = "btf",
     .title = "the kernel gives no type information for BPF",
     .layer = Layer::kCpu,
     .check = btf,
     .verify = "ls -l /sys/kernel/btf/vmlinux",
     .fix = "a kernel with CONFIG_DEBUG_INFO_BTF (Debian 11, Ubuntu 20.10, RHEL 8.2 and later have "
            "it)",
     .undo = "none needed",
     .source = "Linux Documentation/bpf/btf.rst"},
    {.id = "prefetchers",
     .title = "prefetchers or processor registers are not as they come",
     .layer = Layer::kCpu,
     .check = prefetchers,
     .verify = "rdmsr -a 0x1a4",
     .fix = "set prefetchers in the BIOS and reboot; on AMD Zen 4 and later the documented switch "
            "is 0xc0000108, where 0 is the default",
     .undo = "a reboot gives the BIOS settings back",
     .source = "AMD64 Architecture Programmer's Manual vol. 2; Intel's prefetcher disclosure; "
               "likwid-features",
     .may_cause = "cpu_clock"},
};

}  // namespace

std::span<const NodeCheck> system_checks() { return kChecks; }

}  // namespace bedplate::doctor
