#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "host/internal/describers.h"
#include "host/internal/read.h"

namespace bedplate::host {
namespace {

constexpr int kMostCpus = 1 << 16;
constexpr std::string_view kCpuRoot = "/sys/devices/system/cpu";

// x86 first, then Arm. VNNI, bf16 and AMX/SVE decide which GEMM kernels run; SHA and CRC
// (pclmulqdq, crc32) checksums.
constexpr std::string_view kIsaExtensions[] = {
    "sse4_2",      "avx",         "f16c",     "fma",      "avx2",     "bmi2",     "pclmulqdq",
    "vpclmulqdq",  "sha_ni",      "avx512f",  "avx512bw", "avx512dq", "avx512vl", "avx512_vnni",
    "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16",
    "asimd",       "asimdhp",     "asimddp",  "asimdfhm", "crc32",    "sha2",     "bf16",
    "i8mm",        "sve",         "sve2",     "svebf16",  "svei8mm",  "sme",      "sme2"};

struct ArmCore {
  int implementer, part;
  std::string_view name;
};
// Server cores, from the kernel's arch/arm64/include/asm/cputype.h.
constexpr ArmCore kArmCores[] = {
    {0x41, 0xd08, "Cortex-A72"},  {0x41, 0xd0c, "Neoverse-N1"}, {0x41, 0xd40, "Neoverse-V1"},
    {0x41, 0xd49, "Neoverse-N2"}, {0x41, 0xd4f, "Neoverse-V2"}, {0x41, 0xd84, "Neoverse-V3"},
    {0x41, 0xd8e, "Neoverse-N3"}, {0x46, 0x001, "A64FX"},       {0x48, 0xd01, "Kunpeng 920"},
    {0xc0, 0xac3, "Ampere-1"},    {0xc0, 0xac4, "Ampere-1a"}};

struct CpuInfoBlock {
  int id = -1, package = -1, core = -1;
};

struct CpuInfo {
  std::string_view first;            // the fields of the first processor
  std::vector<CpuInfoBlock> blocks;  // one a processor
};

CpuInfo parse_cpuinfo(std::string_view text) {
  CpuInfo info;
  std::string_view rest = text;
  std::size_t first_end = 0;
  while (const auto line = next_line(rest)) {
    const auto colon = line->find(':');
    if (colon == std::string_view::npos) continue;
    const auto key = trim(line->substr(0, colon));
    const auto value = line->substr(colon + 1);
    if (key == "processor") {
      if (info.blocks.size() == 1 && first_end == 0) {
        first_end = static_cast<std::size_t>(line->data() - text.data());
      }
      if (const auto id = small_number(value, 0, kMostCpus - 1)) {
        if (info.blocks.size() < kMostCpus) info.blocks.push_back({.id = *id});
      }
    } else if (!info.blocks.empty() && key == "physical id") {
      info.blocks.back().package = small_number(value, 0, 4095).value_or(-1);
    } else if (!info.blocks.empty() && key == "core id") {
      info.blocks.back().core = small_number(value, 0, 1 << 20).value_or(-1);
    }
  }
  info.first = first_end == 0 ? text : text.substr(0, first_end);
  return info;
}

void describe_model(std::string_view first, Processors& cpu) {
  const auto get = [&](std::string_view name) { return field_of_cpuinfo(first, name); };
  cpu.vendor = tidy(get("vendor_id"));
  cpu.model = tidy(get("model name"));
  cpu.family = small_number(get("cpu family"), 0, 1 << 20);
  cpu.model_number = small_number(get("model"), 0, 1 << 20);
  cpu.stepping = small_number(get("stepping"), 0, 1 << 20);
  cpu.microcode = tidy(get("microcode"));
  const auto hex = [&](std::string_view name) {
    const auto text = get(name);
    return to_int(text.starts_with("0x") ? text.substr(2) : text, 16).value_or(-1);
  };
  if (cpu.vendor.empty() && !get("CPU implementer").empty()) {
    const auto implementer = hex("CPU implementer");
    const auto part = hex("CPU part");
    cpu.vendor = implementer == 0x41 ? "ARM" : fmt::format("implementer {:#x}", implementer);
    if (cpu.model.empty()) cpu.model = fmt::format("part {:#x}", part);
    for (const auto& core : kArmCores) {
      if (core.implementer == implementer && core.part == part) cpu.model = core.name;
    }
    if (cpu.architecture.empty()) cpu.architecture = "aarch64";
  } else if (cpu.architecture.empty() && !get("flags").empty()) {
    cpu.architecture = "x86_64";
  }
  std::set<std::string_view> present;
  for (const auto* name : {"flags", "Features"}) {
    for (const auto flag : words(get(name).substr(0, 64 << 10))) present.insert(flag);
  }
  for (const auto extension : kIsaExtensions) {
    if (present.contains(extension)) cpu.isa.emplace_back(extension);
  }
}

// Which CPUs there are: folders cpuN, else the processors of /proc/cpuinfo.
std::vector<int> present_cpus(const os::HostRoot& root, const CpuInfo& info) {
  std::vector<int> ids;
  for (const auto& name : root.list(kCpuRoot)) {
    if (!name.starts_with("cpu")) continue;
    if (const auto id = small_number(std::string_view(name).substr(3), 0, kMostCpus - 1)) {
      ids.push_back(*id);
    }
  }
  if (ids.empty()) {
    for (const auto& block : info.blocks) ids.push_back(block.id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

void describe_logical(const os::HostRoot& root, const CpuInfo& info, Processors& cpu) {
  std::map<int, CpuInfoBlock> blocks;
  for (const auto& block : info.blocks) blocks[block.id] = block;
  std::map<std::pair<int, int>, int> core_of;  // (package, core id) of /proc/cpuinfo → lowest CPU
  for (const int id : cpu.online) {
    LogicalCpu logical{.id = id};
    const std::string folder = fmt::format("{}/cpu{}/topology/", kCpuRoot, id);
    const auto block = blocks.contains(id) ? blocks[id] : CpuInfoBlock{};
    logical.package = small_number(word(root, folder + "physical_package_id"), 0, 1 << 20)
                          .value_or(block.package);
    logical.die = small_number(word(root, folder + "die_id"), 0, 1 << 20).value_or(-1);
    auto siblings = cpu_list(root, folder + "core_cpus_list");
    if (siblings.empty()) siblings = cpu_list(root, folder + "thread_siblings_list");
    if (!siblings.empty() && siblings.front() <= id) {
      logical.core = siblings.front();
    } else if (block.core >= 0) {
      logical.core = core_of.try_emplace({block.package, block.core}, id).first->second;
    }
    cpu.logical.push_back(logical);
  }
}

void count(Processors& cpu) {
  std::set<int> packages, cores;
  bool cores_told = !cpu.logical.empty();
  for (const auto& logical : cpu.logical) {
    if (logical.package >= 0) packages.insert(logical.package);
    cores_told = cores_told && logical.core >= 0;
    cores.insert(logical.core);
  }
  if (!packages.empty()) cpu.packages = static_cast<int>(packages.size());
  if (cores_told) cpu.cores = static_cast<int>(cores.size());
  cpu.threads = static_cast<int>(cpu.online.size());
}

std::optional<std::int64_t> cache_bytes(std::string_view text) {
  text = trim(text);
  if (text.empty()) return std::nullopt;
  const char unit = text.back();
  const std::int64_t factor = unit == 'K' ? kKiB : unit == 'M' ? kMiB : unit == 'G' ? kGiB : 1;
  return times(to_amount(factor == 1 ? text : text.substr(0, text.size() - 1)), factor);
}

void describe_caches(const os::HostRoot& root, Processors& cpu) {
  struct Key {
    int level;
    std::string type;
    std::int64_t bytes;
    bool operator<(const Key& other) const {
      return std::tie(level, type, bytes) < std::tie(other.level, other.type, other.bytes);
    }
  };
  std::map<Key, std::map<int, std::vector<int>>> kinds;  // → first CPU → sharers
  for (const int id : cpu.online) {
    const std::string folder = fmt::format("{}/cpu{}/cache/", kCpuRoot, id);
    for (int index = 0; index < 16; ++index) {
      const std::string cache = fmt::format("{}index{}/", folder, index);
      const auto level = small_number(word(root, cache + "level"), 1, 9);
      const auto bytes = cache_bytes(word(root, cache + "size"));
      if (!level || !bytes) {
        if (!root.exists(cache)) break;
        continue;
      }
      std::string type = word(root, cache + "type");
      for (char& c : type) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
      }
      auto sharers = cpu_list(root, cache + "shared_cpu_list");
      if (sharers.empty() || sharers.size() > cpu.online.size() + cpu.offline.size())
        sharers.assign(1, id);
      const int first = sharers.front();
      kinds[{*level, type, *bytes}].try_emplace(first, std::move(sharers));
    }
  }
  for (auto& [key, instances] : kinds) {
    CacheKind kind{.level = key.level, .type = key.type, .bytes = key.bytes};
    for (auto& [first, sharers] : instances) kind.shared_by.push_back(std::move(sharers));
    cpu.caches.push_back(std::move(kind));
  }
}

void describe_frequency(const os::HostRoot& root, Processors& cpu) {
  std::map<std::string, std::vector<int>> governors;
  for (const int id : cpu.online) {
    const std::string folder = fmt::format("{}/cpu{}/cpufreq/", kCpuRoot, id);
    const std::string governor = word(root, folder + "scaling_governor");
    if (governor.empty()) continue;
    governors[governor].push_back(id);
    if (cpu.frequency_driver.empty()) cpu.frequency_driver = word(root, folder + "scaling_driver");
    if (cpu.energy_preference.empty()) {
      cpu.energy_preference = word(root, folder + "energy_performance_preference");
    }
    if (const auto khz = amount(root, folder + "cpuinfo_max_freq")) {
      cpu.max_mhz = std::max(cpu.max_mhz.value_or(0), static_cast<double>(*khz) / 1e3);
    }
    if (const auto khz = amount(root, folder + "scaling_cur_freq")) {
      const double mhz = static_cast<double>(*khz) / 1e3;
      cpu.current_mhz_lowest = std::min(cpu.current_mhz_lowest.value_or(mhz), mhz);
      cpu.current_mhz_highest = std::max(cpu.current_mhz_highest.value_or(mhz), mhz);
    }
  }
  for (auto& [name, cpus] : governors) cpu.governors.push_back({name, std::move(cpus)});
  if (const auto off = root.read_int("/sys/devices/system/cpu/intel_pstate/no_turbo")) {
    cpu.boost = *off == 0;
  } else if (const auto on = root.read_int("/sys/devices/system/cpu/cpufreq/boost")) {
    cpu.boost = *on != 0;
  }
}

}  // namespace

void describe_processors(const os::HostRoot& root, Host& host) {
  Processors& cpu = host.cpu;
  const std::string text = root.read("/proc/cpuinfo").value_or("");
  const CpuInfo info = parse_cpuinfo(text);
  cpu.architecture = word(root, "/proc/sys/kernel/arch");
  describe_model(info.first, cpu);

  const auto present = present_cpus(root, info);
  const auto online = cpu_list(root, "/sys/devices/system/cpu/online");
  std::set_intersection(present.begin(), present.end(), online.begin(), online.end(),
                        std::back_inserter(cpu.online));
  if (cpu.online.empty()) cpu.online = present;  // no such list, or one that names none of the CPUs
  std::set_difference(present.begin(), present.end(), cpu.online.begin(), cpu.online.end(),
                      std::back_inserter(cpu.offline));
  cpu.isolated = cpu_list(root, "/sys/devices/system/cpu/isolated");
  cpu.nohz_full = cpu_list(root, "/sys/devices/system/cpu/nohz_full");
  const std::string status = root.read("/proc/self/status").value_or("");
  cpu.allowed = parse_cpu_list(field(status, "Cpus_allowed_list")).value_or(std::vector<int>());
  if (const auto active = root.read_int("/sys/devices/system/cpu/smt/active"))
    cpu.smt = *active != 0;

  describe_logical(root, info, cpu);
  count(cpu);
  if (!cpu.smt && cpu.cores) cpu.smt = cpu.threads > *cpu.cores;
  describe_caches(root, cpu);
  describe_frequency(root, cpu);
}

void describe_nodes(const os::HostRoot& root, Host& host) {
  constexpr std::string_view kNodes = "/sys/devices/system/node";
  for (const auto& name : root.list(kNodes)) {
    if (!name.starts_with("node")) continue;
    const auto id = small_number(std::string_view(name).substr(4), 0, 4095);
    if (!id) continue;
    const std::string folder = fmt::format("{}/{}/", kNodes, name);
    NumaNode node{.id = *id, .cpus = cpu_list(root, folder + "cpulist")};
    const std::string meminfo = root.read(folder + "meminfo").value_or("");
    const auto kib = [&](std::string_view key) -> std::optional<std::int64_t> {
      const auto parts = words(field(meminfo, fmt::format("Node {} {}", *id, key)).substr(0, 64));
      return parts.empty() ? std::nullopt : times(to_amount(parts[0]), kKiB);
    };
    node.memory_bytes = kib("MemTotal");
    node.free_bytes = kib("MemFree");
    const std::string distances = root.read(folder + "distance").value_or("");
    for (const auto text : words(std::string_view(distances).substr(0, 4096))) {
      const auto distance = small_number(text, 1, 255);
      if (!distance) {
        node.distances.clear();  // a row with a hole would shift the others
        break;
      }
      node.distances.push_back(*distance);
    }
    host.nodes.push_back(std::move(node));
  }
  std::sort(host.nodes.begin(), host.nodes.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  std::map<int, int> node_of;
  for (const auto& node : host.nodes) {
    for (const int cpu : node.cpus) node_of.try_emplace(cpu, node.id);
  }
  for (auto& logical : host.cpu.logical) {
    if (const auto it = node_of.find(logical.id); it != node_of.end()) logical.node = it->second;
  }
}

}  // namespace bedplate::host
