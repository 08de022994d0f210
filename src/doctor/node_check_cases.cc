#include "doctor/node_check_cases.h"

#include <algorithm>
#include <stdexcept>

namespace bedplate::doctor {

host::Host healthy() {
  host::Host host = host::describe(
      os::HostRoot(std::filesystem::path(BEDPLATE_SOURCE_DIR) / "tests/hosts/dgx-h100"));
  host.memory.numa_balancing = 0;
  return host;
}

host::Nic& nic(host::Host& host, std::string_view name) {
  for (auto& nic : host.nics) {
    if (nic.name == name) return nic;
  }
  throw std::runtime_error("no such interface");
}

namespace {

host::Mount& mount(host::Host& host, std::string_view point) {
  for (auto& mount : host.mounts) {
    if (mount.point == point) return mount;
  }
  throw std::runtime_error("no such mount");
}

host::Disk& disk(host::Host& host, std::string_view name) {
  for (auto& disk : host.disks) {
    if (disk.name == name) return disk;
  }
  throw std::runtime_error("no such disk");
}

void make_roce(host::Host& host) {
  host.rdma.at(0).ports.at(0).link_layer = "Ethernet";
  nic(host, "ibp24s0").kind = "ethernet";
}

std::vector<Case> cpu_cases() {
  using enum CheckState;
  return {
      {"cpu_governor", "as it is", [](auto&) {}, kOk, "performance"},
      {"cpu_governor", "none", [](auto& h) { h.cpu.governors.clear(); }, kNotApplicable,
       "virtual machine"},
      {"cpu_governor", "acpi powersave",
       [](auto& h) {
         h.cpu.governors[0].name = "powersave", h.cpu.frequency_driver = "acpi-cpufreq";
       },
       kWarning, "lowest clock"},
      {"cpu_governor", "schedutil",
       [](auto& h) {
         h.cpu.governors[0].name = "schedutil", h.cpu.frequency_driver = "acpi-cpufreq";
       },
       kNote, "follows the load"},
      {"cpu_governor", "intel_pstate powersave, balanced",
       [](auto& h) {
         h.cpu.governors[0].name = "powersave", h.cpu.energy_preference = "balance_performance";
       },
       kNote, "does reach full speed"},
      {"cpu_governor", "intel_pstate powersave, saving",
       [](auto& h) { h.cpu.governors[0].name = "powersave", h.cpu.energy_preference = "power"; },
       kWarning, "energy preference power"},
      {"cpu_boost", "as it is", [](auto&) {}, kOk, "on"},
      {"cpu_boost", "off", [](auto& h) { h.cpu.boost = false; }, kNote, "base clock"},
      {"cpu_boost", "none", [](auto& h) { h.cpu.boost.reset(); }, kNotApplicable,
       "no boost switch"},
      {"cpus_online", "as it is", [](auto&) {}, kOk, "16 CPUs online"},
      {"cpus_online", "offline",
       [](auto& h) {
         h.cpu.offline = {7, 15};
       },
       kWarning, "offline: 7,15"},
      {"cpus_online", "isolated",
       [](auto& h) {
         h.cpu.isolated = {2, 3};
       },
       kNote, "isolated: 2-3"},
      {"cpus_online", "none told", [](auto& h) { h.cpu.online.clear(); }, kNotSeen,
       "name no processor"},
      {"cpu_affinity", "as it is", [](auto&) {}, kOk, "all 16 CPUs"},
      {"cpu_affinity", "half", [](auto& h) { h.cpu.allowed = {0, 1, 2, 3, 8, 9, 10, 11}; }, kNote,
       "CPUs 0-3,8-11 of 0-15"},
      {"cpu_affinity", "one", [](auto& h) { h.cpu.allowed = {5}; }, kWarning, "share one CPU"},
      {"cpu_affinity", "not told", [](auto& h) { h.cpu.allowed.clear(); }, kNotSeen,
       "Cpus_allowed_list"},
      {"cgroup_cpu_quota", "as it is", [](auto&) {}, kOk, "no quota"},
      {"cgroup_cpu_quota", "small",
       [](auto& h) { h.cgroup.cpu_unlimited = false, h.cgroup.cpu_quota = 2.5; }, kWarning,
       "quota of 2.5 CPUs, 16 visible"},
      {"cgroup_cpu_quota", "fits the CPU set",
       [](auto& h) {
         h.cgroup.cpu_unlimited = false, h.cgroup.cpu_quota = 2, h.cpu.allowed = {0, 1};
       },
       kOk, "quota of 2 CPUs, 2 visible"},
      {"cgroup_cpu_quota", "no controller", [](auto& h) { h.cgroup.cpu_unlimited.reset(); },
       kNotSeen, "no cpu controller"},
      {"clock_source", "as it is", [](auto&) {}, kOk, "tsc"},
      {"clock_source", "kvm-clock", [](auto& h) { h.system.clock_source = "kvm-clock"; }, kOk,
       "kvm-clock"},
      {"clock_source", "hpet", [](auto& h) { h.system.clock_source = "hpet"; }, kWarning,
       "slow call"},
      {"clock_source", "hpet, tsc rejected",
       [](auto& h) { h.system.clock_source = "hpet", h.system.clock_sources = {"hpet"}; }, kWarning,
       "tsc is not offered"},
      {"clock_source", "not told", [](auto& h) { h.system.clock_source.clear(); }, kNotSeen,
       "absent"},
      {"kernel", "as it is", [](auto&) {}, kOk, "5.15"},
      {"kernel", "RHEL 8", [](auto& h) { h.system.kernel = "4.18.0-513.el8"; }, kNote,
       "BPF programs may not load"},
      {"kernel", "RHEL 7", [](auto& h) { h.system.kernel = "3.10.0-1160.el7"; }, kWarning,
       "no pressure figures"},
      {"kernel", "no version", [](auto& h) { h.system.kernel = "unknown"; }, kNotSeen,
       "no version"},
      {"pressure", "as it is", [](auto&) {}, kOk, "available"},
      {"pressure", "off", [](auto& h) { h.system.psi = false; }, kNote, "how long tasks waited"},
      {"pressure", "not told", [](auto& h) { h.system.psi.reset(); }, kNotSeen, "no /proc"},
      {"btf", "as it is", [](auto&) {}, kOk, "available"},
      {"btf", "none", [](auto& h) { h.system.btf = false; }, kNote, "BPF programs cannot load"},
      {"btf", "not told", [](auto& h) { h.system.btf.reset(); }, kNotSeen, "no /proc"},
      {"prefetchers", "no root", [](auto&) {}, kNotSeen, "needs the machine itself"},
  };
}

std::vector<Case> memory_cases() {
  using enum CheckState;
  return {
      {"memory_available", "as it is", [](auto&) {}, kOk, "available"},
      {"memory_available", "little", [](auto& h) { h.memory.available_bytes = 100 * kGiB; },
       kWarning, "already uses"},
      {"memory_available", "not told", [](auto& h) { h.memory.available_bytes.reset(); }, kNotSeen,
       "MemAvailable"},
      {"cgroup_memory", "as it is", [](auto&) {}, kOk, "no limit"},
      {"cgroup_memory", "large", [](auto& h) { h.cgroup.memory_bytes = 64 * kGiB; }, kNote,
       "limit 64 GiB"},
      {"cgroup_memory", "small", [](auto& h) { h.cgroup.memory_bytes = 1 * kGiB; }, kWarning,
       "read again and again"},
      {"cgroup_memory", "no controller", [](auto& h) { h.cgroup.memory_bytes.reset(); }, kNotSeen,
       "no memory controller"},
      {"shm_size", "as it is", [](auto&) {}, kOk, "1008 GiB"},
      {"shm_size", "Docker's", [](auto& h) { mount(h, "/dev/shm").bytes = 64 * kMiB; }, kFault,
       "SIGBUS"},
      {"shm_size", "small", [](auto& h) { mount(h, "/dev/shm").bytes = 512 * kMiB; }, kWarning,
       "a few batches"},
      {"shm_size", "used up", [](auto& h) { mount(h, "/dev/shm").available_bytes = kGiB; },
       kWarning, "1 GiB left"},
      {"shm_size", "not mounted",
       [](auto& h) { std::erase_if(h.mounts, [](auto& m) { return m.point == "/dev/shm"; }); },
       kFault, "not mounted"},
      {"shm_size", "size not told", [](auto& h) { mount(h, "/dev/shm").bytes.reset(); }, kNotSeen,
       "not told"},
      {"shm_size", "no mounts told", [](auto& h) { h.mounts.clear(); }, kNotSeen, "mountinfo"},
      {"huge_pages", "as it is", [](auto&) {}, kOk, "madvise"},
      {"huge_pages", "always, defrag always",
       [](auto& h) { h.memory.thp = h.memory.thp_defrag = "always"; }, kWarning, "compact"},
      {"huge_pages", "always, defrag madvise", [](auto& h) { h.memory.thp = "always"; }, kOk,
       "always, defrag madvise"},
      {"huge_pages", "never", [](auto& h) { h.memory.thp = "never"; }, kNote, "get none"},
      {"huge_pages", "none", [](auto& h) { h.memory.thp.clear(); }, kNotApplicable,
       "no transparent"},
      {"numa_balancing", "as it is", [](auto&) {}, kOk, "off"},
      {"numa_balancing", "on, with GPUs", [](auto& h) { h.memory.numa_balancing = 1; }, kWarning,
       "feed GPUs"},
      {"numa_balancing", "on, without",
       [](auto& h) { h.memory.numa_balancing = 1, h.gpus.clear(); }, kNote, "not bound"},
      {"numa_balancing", "one node", [](auto& h) { h.nodes.pop_back(); }, kNotApplicable,
       "one NUMA node"},
      {"numa_balancing", "no such kernel", [](auto& h) { h.memory.numa_balancing.reset(); },
       kNotApplicable, "no automatic"},
      {"zone_reclaim", "as it is", [](auto&) {}, kOk, "off"},
      {"zone_reclaim", "on", [](auto& h) { h.memory.zone_reclaim_mode = 1; }, kWarning,
       "throws away"},
      {"zone_reclaim", "one node", [](auto& h) { h.nodes.pop_back(); }, kNotApplicable,
       "one NUMA node"},
      {"zone_reclaim", "not told", [](auto& h) { h.memory.zone_reclaim_mode.reset(); }, kNotSeen,
       "absent"},
      {"swap", "as it is", [](auto&) {}, kOk, "none"},
      {"swap", "unused",
       [](auto& h) { h.memory.swaps = {{.path = "/swapfile", .bytes = 8 * kGiB}}; }, kOk,
       "nothing swapped out"},
      {"swap", "a little",
       [](auto& h) {
         h.memory.swaps = {{.path = "/swapfile", .bytes = 8 * kGiB, .used_bytes = kMiB}};
       },
       kNote, "1 MiB of 8 GiB"},
      {"swap", "much",
       [](auto& h) {
         h.memory.swaps = {{.path = "/swapfile", .bytes = 8 * kGiB, .used_bytes = 4 * kGiB}};
       },
       kWarning, "4 GiB of 8 GiB used"},
      {"swap", "much, in compressed RAM",
       [](auto& h) {
         h.memory.swaps = {{.path = "/dev/zram0",
                            .bytes = 8 * kGiB,
                            .used_bytes = 4 * kGiB,
                            .compressed_ram = true}};
       },
       kNote, "compressed RAM"},
      {"swap", "not told", [](auto& h) { h.memory.swap_bytes.reset(); }, kNotSeen, "do not tell"},
      {"overcommit", "as it is", [](auto&) {}, kOk, "heuristic"},
      {"overcommit", "always", [](auto& h) { h.memory.overcommit = 1; }, kOk, "always"},
      {"overcommit", "never", [](auto& h) { h.memory.overcommit = 2; }, kWarning, "refused"},
      {"overcommit", "not told", [](auto& h) { h.memory.overcommit.reset(); }, kNotSeen, "absent"},
  };
}

std::vector<Case> limit_cases() {
  using enum CheckState;
  const auto locked = [](std::int64_t bytes) { return host::Limit{.soft = bytes, .hard = bytes}; };
  return {
      {"open_files", "as it is", [](auto&) {}, kOk, "1048576"},
      {"open_files", "1024",
       [](auto& h) { h.limits.open_files = host::Limit{.soft = 1024, .hard = 4096}; }, kWarning,
       "1024 (hard limit 4096)"},
      {"open_files", "64",
       [](auto& h) { h.limits.open_files = host::Limit{.soft = 64, .hard = 64}; }, kFault,
       "descriptor"},
      {"open_files", "not told", [](auto& h) { h.limits.open_files.reset(); }, kNotSeen,
       "Max open files"},
      {"locked_memory", "as it is", [](auto&) {}, kOk, "unlimited"},
      {"locked_memory", "64 KiB",
       [=](auto& h) { h.limits.locked_memory_bytes = locked(64 * kKiB); }, kFault,
       "8 RDMA devices"},
      {"locked_memory", "8 GiB", [=](auto& h) { h.limits.locked_memory_bytes = locked(8 * kGiB); },
       kWarning, "falls back to sockets"},
      {"locked_memory", "64 KiB, root",
       [=](auto& h) {
         h.limits.locked_memory_bytes = locked(64 * kKiB), h.limits.may_lock_memory = true;
       },
       kNote, "CAP_IPC_LOCK"},
      {"locked_memory", "64 KiB, no RDMA",
       [=](auto& h) { h.limits.locked_memory_bytes = locked(64 * kKiB), h.rdma.clear(); }, kOk,
       "there is none"},
      {"locked_memory", "not told", [](auto& h) { h.limits.locked_memory_bytes.reset(); }, kNotSeen,
       "Max locked memory"},
      {"processes", "as it is", [](auto&) {}, kOk, "1368210"},
      {"processes", "few a user", [=](auto& h) { h.limits.processes = locked(1024); }, kWarning,
       "1024 processes and threads a user"},
      {"processes", "few in the cgroup", [](auto& h) { h.cgroup.pids = 100; }, kWarning,
       "100 processes and threads in the cgroup"},
      {"processes", "not told", [](auto& h) { h.limits.processes.reset(), h.cgroup.pids.reset(); },
       kNotSeen, "neither"},
  };
}

std::vector<Case> io_cases() {
  using enum CheckState;
  const auto add_option = [](const char* point, const char* option) {
    return [=](host::Host& h) { mount(h, point).options.emplace_back(option); };
  };
  return {
      {"mount_answers", "as it is", [](auto&) {}, kOk, "4 file systems answer"},
      {"mount_answers", "silent",
       [](auto& h) {
         h.unseen.push_back({"size of /home", "no answer within 1 s"});
       },
       kFault, "/home: no answer within 1 s"},
      {"mount_answers", "refused",
       [](auto& h) {
         h.unseen.push_back({"size of /home", "Permission denied"});
       },
       kWarning, "Permission denied"},
      {"mount_answers", "no mounts told", [](auto& h) { h.mounts.clear(); }, kNotSeen, "mountinfo"},
      {"disk_space", "as it is", [](auto&) {}, kOk, "3 file systems with room"},
      {"disk_space", "little", [](auto& h) { mount(h, "/").available_bytes = 150 * kGiB; },
       kWarning, "/: 150 GiB left"},
      {"disk_space", "10 % of a lot",
       [](auto& h) { mount(h, "/raid").available_bytes = 700 * kGiB; }, kOk, "with room"},
      {"disk_space", "full", [](auto& h) { mount(h, "/").available_bytes = 2 * kGiB; }, kFault,
       "/: 2 GiB left"},
      {"disk_space", "full but read-only",
       [](auto& h) {
         mount(h, "/").available_bytes = 0, mount(h, "/").options = {"ro", "relatime"};
       },
       kOk, "with room"},
      {"disk_space", "no sizes",
       [](auto& h) {
         for (auto& m : h.mounts) m.bytes.reset();
       },
       kNotSeen, "no size"},
      {"disk_inodes", "as it is", [](auto&) {}, kOk, "2 file systems"},
      {"disk_inodes", "few", [](auto& h) { mount(h, "/").available_inodes = 1000; }, kWarning,
       "/: 1000 of"},
      {"disk_inodes", "none left", [](auto& h) { mount(h, "/").available_inodes = 0; }, kFault,
       "/: 0 of"},
      {"disk_inodes", "not counted",
       [](auto& h) {
         for (auto& m : h.mounts) m.inodes.reset();
       },
       kNotApplicable, "counts inodes"},
      {"disk_scheduler", "as it is", [](auto&) {}, kOk, "3 disks"},
      {"disk_scheduler", "bfq", [](auto& h) { disk(h, "nvme0n1").scheduler = "bfq"; }, kWarning,
       "nvme0n1: bfq"},
      {"disk_scheduler", "none on a spinning disk",
       [](auto& h) {
         auto& d = disk(h, "nvme0n1");
         d.kind = "scsi", d.rotational = true;
       },
       kNote, "not sorted"},
      {"disk_scheduler", "virtual disks",
       [](auto& h) {
         for (auto& d : h.disks) d.kind = "virtio";
       },
       kNotApplicable, "virtual disk"},
      {"disk_read_ahead", "as it is", [](auto&) {}, kOk, "near the default"},
      {"disk_read_ahead", "16 MiB", [](auto& h) { disk(h, "nvme0n1").read_ahead_kib = 16384; },
       kNote, "16384 KiB"},
      {"disk_read_ahead", "0", [](auto& h) { disk(h, "nvme0n1").read_ahead_kib = 0; }, kWarning,
       "each read waits"},
      {"disk_read_ahead", "no disk", [](auto& h) { h.disks.clear(); }, kNotApplicable, "no disk"},
      {"mount_options", "as it is", [](auto&) {}, kOk, "without costly options"},
      {"mount_options", "strictatime", [](auto& h) { mount(h, "/raid").options = {"rw"}; },
       kWarning, "strictatime"},
      {"mount_options", "sync", add_option("/raid", "sync"), kWarning, "every write waits"},
      {"mount_options", "data=journal", add_option("/raid", "data=journal"), kNote,
       "written twice"},
      {"mount_options", "remounted read-only",
       [](auto& h) {
         mount(h, "/").options = {"ro", "relatime", "errors=remount-ro"};
       },
       kFault, "after an error"},
      {"mount_options", "NFS noac", add_option("/home", "noac"), kWarning, "noac"},
      {"mount_options", "NFS soft", add_option("/home", "soft"), kNote, "soft"},
      {"mount_options", "NFS small rsize",
       [](auto& h) {
         mount(h, "/home").options = {"rw", "rsize=32768", "nconnect=8"};
       },
       kWarning, "rsize=32768"},
      {"mount_options", "NFS, one connection",
       [](auto& h) {
         mount(h, "/home").options = {"rw", "rsize=1048576", "proto=tcp"};
       },
       kNote, "no nconnect"},
      {"mount_options", "FUSE",
       [](auto& h) { mount(h, "/home").kind = "fuse", mount(h, "/home").type = "fuse.s3fs"; },
       kNote, "through a daemon"},
      {"mount_options", "no mounts told", [](auto& h) { h.mounts.clear(); }, kNotSeen, "mountinfo"},
  };
}

std::vector<Case> network_cases() {
  using enum CheckState;
  return {
      {"nic_link", "as it is", [](auto&) {}, kOk, "9 cards up"},
      {"nic_link", "one down", [](auto& h) { nic(h, "eno3").state = "down"; }, kNote,
       "eno3 is down"},
      {"nic_link", "all down",
       [](auto& h) {
         for (auto& n : h.nics) n.state = "down";
       },
       kFault, "0 of 9 cards up"},
      {"nic_link", "half duplex", [](auto& h) { nic(h, "eno3").duplex = "half"; }, kWarning,
       "half duplex"},
      {"nic_link", "100 Mb/s", [](auto& h) { nic(h, "eno3").speed_mbps = 100; }, kWarning,
       "100 Mb/s"},
      {"nic_link", "slower than its kind", [](auto& h) { nic(h, "ibp24s0").speed_mbps = 200000; },
       kNote, "200 Gb/s, another card"},
      {"nic_link", "no cards",
       [](auto& h) {
         for (auto& n : h.nics) n.physical = false;
       },
       kNotApplicable, "container"},
      {"nic_mtu", "as it is", [](auto&) {}, kOk, "4092 on 8 interfaces"},
      {"nic_mtu", "one differs", [](auto& h) { nic(h, "ibp24s0").mtu = 2044; }, kWarning,
       "MTU 2044: ibp24s0"},
      {"nic_mtu", "small for RoCE",
       [](auto& h) {
         make_roce(h);
         for (auto& n : h.nics) n.mtu = 1500;
       },
       kNote, "need 4200"},
      {"nic_mtu", "no fast card", [](auto& h) { h.nics = {nic(h, "eno3")}; }, kNotApplicable,
       "25 Gb/s"},
      {"nic_pcie", "as it is", [](auto&) {}, kOk, "9 links"},
      {"nic_pcie", "x8", [](auto& h) { h.rdma[1].pci.link.width = 8; }, kWarning,
       "mlx5_3: PCIe 5.0 x8"},
      {"nic_pcie", "x4", [](auto& h) { h.rdma[1].pci.link.width = 4; }, kFault,
       "lanes are missing"},
      {"nic_pcie", "slow", [](auto& h) { h.rdma[1].pci.link.speed_gts = 8; }, kNote,
       "look again under load"},
      {"nic_pcie", "not told",
       [](auto& h) {
         for (auto& d : h.rdma) d.pci.link = {};
         nic(h, "eno3").pci.link = {};
       },
       kNotSeen, "virtual machine"},
      {"nic_pcie", "no cards", [](auto& h) { h.rdma.clear(), h.nics.clear(); }, kNotApplicable,
       "no network card"},
      {"rdma_link", "as it is", [](auto&) {}, kOk, "8 ports active"},
      {"rdma_link", "polling",
       [](auto& h) {
         auto& p = h.rdma[0].ports[0];
         p.state = "DOWN", p.physical_state = "Polling";
       },
       kWarning, "mlx5_0 port 1 is DOWN (Polling)"},
      {"rdma_link", "turned off",
       [](auto& h) {
         auto& p = h.rdma[0].ports[0];
         p.state = "DOWN", p.physical_state = "Disabled";
       },
       kNote, "Disabled"},
      {"rdma_link", "no subnet manager", [](auto& h) { h.rdma[0].ports[0].state = "INIT"; },
       kWarning, "subnet manager"},
      {"rdma_link", "all down",
       [](auto& h) {
         for (auto& d : h.rdma) d.ports[0].state = "DOWN";
       },
       kFault, "0 of 8 ports active"},
      {"rdma_link", "half the rate", [](auto& h) { h.rdma[0].ports[0].rate_gbps = 200; }, kWarning,
       "runs at 200 Gb/s"},
      {"rdma_link", "no ports told",
       [](auto& h) {
         for (auto& d : h.rdma) d.ports.clear();
       },
       kNotSeen, "ports"},
      {"rdma_link", "none", [](auto& h) { h.rdma.clear(); }, kNotApplicable, "no RDMA"},
      {"rdma_gids", "as it is", [](auto&) {}, kNotApplicable, "no active RoCE"},
      {"rdma_gids", "RoCE without an address", make_roce, kWarning, "none of them RoCE v2"},
      {"rdma_gids", "RoCE with one",
       [](auto& h) {
         make_roce(h);
         h.rdma[0].ports[0].gids.push_back({.index = 3, .type = "RoCE v2", .address = "IPv4"});
       },
       kOk, "1 port with RoCE v2"},
      {"gpu_direct", "as it is", [](auto&) {}, kOk, "loaded"},
      {"gpu_direct", "not loaded", [](auto& h) { h.system.nvidia_peermem = false; }, kNote,
       "dma-buf"},
      {"gpu_direct", "no driver", [](auto& h) { h.system.nvidia_peermem.reset(); }, kNotSeen,
       "driver"},
      {"gpu_direct", "no RDMA", [](auto& h) { h.rdma.clear(); }, kNotApplicable, "needs"},
  };
}

std::vector<Case> gpu_cases() {
  using enum CheckState;
  const auto no_gpus = [](host::Host& h) { h.gpus.clear(); };
  return {
      {"gpu_driver", "as it is", [](auto&) {}, kOk, "8 GPUs with nvidia"},
      {"gpu_driver", "none", [](auto& h) { h.gpus[1].pci.driver.clear(); }, kFault,
       "GPU0 (0000:1b:00.0) has no driver"},
      {"gpu_driver", "nouveau", [](auto& h) { h.gpus[1].pci.driver = "nouveau"; }, kFault,
       "cannot compute"},
      {"gpu_driver", "passed through", [](auto& h) { h.gpus[1].pci.driver = "vfio-pci"; }, kNote,
       "virtual machine"},
      {"gpu_driver", "no GPU", no_gpus, kNotApplicable, "no GPU"},
      {"gpu_pcie", "as it is", [](auto&) {}, kOk, "8 links at full"},
      {"gpu_pcie", "x8", [](auto& h) { h.gpus[1].pci.link.width = 8; }, kWarning,
       "PCIe 5.0 x8 where PCIe 5.0 x16"},
      {"gpu_pcie", "x4", [](auto& h) { h.gpus[1].pci.link.width = 4; }, kFault,
       "lanes are missing"},
      {"gpu_pcie", "idle", [](auto& h) { h.gpus[1].pci.link.speed_gts = 2.5; }, kNote,
       "look again under load"},
      {"gpu_pcie", "small slot",
       [](auto& h) { h.gpus[1].pci.port_link.max_width = 8, h.gpus[1].pci.link.width = 8; }, kNote,
       "the slot has 8 lanes"},
      {"gpu_pcie", "not told",
       [](auto& h) {
         for (auto& g : h.gpus) g.pci.link = {};
       },
       kNotSeen, "virtual machine"},
      {"gpu_pcie", "no GPU", no_gpus, kNotApplicable, "no GPU"},
      {"gpu_numa_node", "as it is", [](auto&) {}, kOk, "known"},
      {"gpu_numa_node", "unknown", [](auto& h) { h.gpus[1].pci.numa_node.reset(); }, kNote,
       "not node 0"},
      {"gpu_numa_node", "one node", [](auto& h) { h.nodes.pop_back(); }, kNotApplicable,
       "one NUMA node"},
      {"gpu_kinds", "as it is", [](auto&) {}, kOk, "8 GPUs of one kind"},
      {"gpu_kinds", "two kinds", [](auto& h) { h.gpus[1].model = "NVIDIA A100"; }, kNote,
       "slowest sets the pace"},
      {"gpu_kinds", "no GPU", no_gpus, kNotApplicable, "no GPU"},
  };
}

}  // namespace

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (auto cases :
       {cpu_cases(), memory_cases(), limit_cases(), io_cases(), network_cases(), gpu_cases()}) {
    all.insert(all.end(), cases.begin(), cases.end());
  }
  return all;
}

}  // namespace bedplate::doctor
