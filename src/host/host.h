// What the machine is: processors, caches, NUMA nodes, memory, GPUs, NICs, RDMA ports, disks,
// mounts, limits, cgroup.
//
//   const Host here = describe(os::HostRoot());                      // this machine
//   const Host there = describe(os::HostRoot("tests/hosts/roce"));   // a recorded one
//   fmt::print("{}", draw_text(here));                               // host/draw.h
//   const Host again = from_json(to_json(here));                     // host/host_json.h
//
// Absent is a value: an optional without a value, an empty text or an empty list says "the machine
// did not tell"; 0 is only ever a 0 that was read. Sizes are bytes, link speeds are as the field
// states them (GT/s, Mb/s, Gb/s). All texts are valid UTF-8 and short, whatever the files held.
// What was looked for and could not be had is in `unseen`, with the reason.
//
// describe() only reads, in one pass of some tens of milliseconds; file systems that may block for
// ever (network, FUSE) are asked for their size by a child process with a deadline. It throws
// nothing but std::bad_alloc, however broken the files. Thread-safe. It does not measure:
// frequencies and free memory are a glance, rates are the work of the room `probe`.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "os/host_root.h"

namespace bedplate::host {

constexpr int kHostSchema = 1;

// A limit that does not limit. JSON has it as "unlimited".
constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// ---- processors ----

struct LogicalCpu {
  int id = -1;
  int package = -1;  // -1: not told
  int die = -1;
  int core = -1;  // the lowest CPU number of the physical core: unique in the machine
  int node = -1;  // NUMA node
};

struct Governor {
  std::string name;  // "performance"
  std::vector<int> cpus;
};

// All caches of one level, type and size.
struct CacheKind {
  int level = 0;
  std::string type;                         // "data", "instruction", "unified"
  std::int64_t bytes = 0;                   // of each
  std::vector<std::vector<int>> shared_by;  // one list of CPUs a cache, ascending by first CPU
};

struct Processors {
  std::string architecture;   // "x86_64", "aarch64"; empty: not told
  std::string vendor;         // "GenuineIntel", "AuthenticAMD", "ARM"
  std::string model;          // "AMD EPYC 9654 96-Core Processor"
  std::optional<int> family;  // x86 only
  std::optional<int> model_number;
  std::optional<int> stepping;
  std::string microcode;
  std::optional<int> packages;  // sockets with at least one CPU online
  std::optional<int> cores;     // physical cores online
  int threads = 0;              // logical CPUs online
  std::optional<bool> smt;      // two or more threads a core are in use
  std::vector<int> online;
  std::vector<int> offline;
  std::vector<int> isolated;  // isolcpus=
  std::vector<int> nohz_full;
  std::vector<int> allowed;      // this process's affinity
  std::vector<std::string> isa;  // extensions that kernels for training use
  std::string frequency_driver;  // "intel_pstate"; empty: no frequency control (usual in a VM)
  std::vector<Governor> governors;
  std::string energy_preference;  // "performance", "balance_performance"; of the first CPU
  std::optional<bool> boost;
  std::optional<double> max_mhz;  // highest of all CPUs, as the hardware states it
  std::optional<double> current_mhz_lowest;
  std::optional<double> current_mhz_highest;
  std::vector<LogicalCpu> logical;
  std::vector<CacheKind> caches;  // ascending level, data before instruction
};

struct NumaNode {
  int id = -1;
  std::vector<int> cpus;  // empty: memory without processors (CXL, HBM)
  std::optional<std::int64_t> memory_bytes;
  std::optional<std::int64_t> free_bytes;
  std::vector<int> distances;  // to each node, in the order of `Host::nodes`; 10 = itself
};

// ---- memory ----

struct HugePages {
  std::int64_t page_bytes = 0;
  std::optional<std::int64_t> total;
  std::optional<std::int64_t> free;
};

struct SwapArea {
  std::string path;
  std::string type;  // "partition", "file"
  std::int64_t bytes = 0;
  std::int64_t used_bytes = 0;
  std::int64_t priority = 0;
  bool compressed_ram = false;  // zram
};

struct Memory {
  std::optional<std::int64_t> total_bytes;
  std::optional<std::int64_t> available_bytes;
  std::optional<std::int64_t> free_bytes;
  std::optional<std::int64_t> swap_bytes;
  std::vector<SwapArea> swaps;
  std::optional<bool> zswap;
  std::optional<std::int64_t> swappiness;
  std::vector<HugePages> huge_pages;
  std::string thp;                         // transparent huge pages: "always", "madvise", "never"
  std::string thp_defrag;                  // "always", "defer", "defer+madvise", "madvise", "never"
  std::string thp_shmem;                   // for shared memory
  std::optional<std::int64_t> overcommit;  // vm.overcommit_memory: 0 heuristic, 1 always, 2 never
  std::optional<std::int64_t> numa_balancing;  // kernel.numa_balancing
  std::optional<std::int64_t> zone_reclaim_mode;
  std::optional<std::int64_t> min_free_bytes;
  std::optional<std::int64_t> max_map_count;
};

// ---- devices ----

// One end of a PCIe link. An idle link may run slower than it can: see power management (ASPM)
// before blaming it.
struct PciLink {
  std::optional<double> speed_gts;      // GT/s now
  std::optional<int> width;             // lanes now
  std::optional<double> max_speed_gts;  // what this end can do
  std::optional<int> max_width;

  bool operator==(const PciLink&) const = default;
};

struct PciDevice {
  std::string address;               // "0000:1b:00.0"; empty: not a PCI device
  std::string vendor_id;             // "10de"
  std::string device_id;             // "2330"
  std::string class_code;            // "030200"
  std::string driver;                // empty: none bound
  std::optional<int> numa_node;      // absent: unknown (the file says -1), which is not node 0
  std::vector<std::string> bridges;  // addresses upstream, nearest the processor first
  PciLink link;
  std::string port;  // the bridge at the link's other end
  PciLink port_link;

  bool operator==(const PciDevice&) const = default;
};

struct Gpu {
  // By PCI address among `compute` devices, as with CUDA_DEVICE_ORDER=PCI_BUS_ID; -1: display only.
  int index = 0;
  bool compute = false;  // false: a mere display (a server's ASPEED, a VM's virtio-gpu)
  std::string vendor;    // "NVIDIA", "AMD", "Intel"
  std::string model;     // as the driver says, else by device id; empty: not known
  std::optional<std::int64_t> memory_bytes;
  std::string driver_version;
  std::string uuid;  // from a recorded nvidia-smi-q.xml only
  PciDevice pci;
};

struct Nic {
  std::string name;
  std::string kind;       // "ethernet", "infiniband", "loopback", "bridge", "bond", "veth", …
  bool physical = false;  // a device stands behind it (virtio counts)
  std::string state;      // "up", "down", "unknown", as operstate
  std::optional<std::int64_t> speed_mbps;  // absent: not told (virtio, link down)
  std::string duplex;
  std::optional<std::int64_t> mtu;
  std::string bond;  // its bond or bridge, when it is a member of one
  std::string rdma;  // the RDMA device on the same function: "mlx5_0"
  PciDevice pci;
};

struct Gid {
  int index = 0;
  std::string type;     // "RoCE v2", "IB/RoCE v1"
  std::string address;  // "IPv4", "IPv6", "link-local": what kind, not which
  std::string netdev;
};

struct RdmaPort {
  int number = 1;
  std::string state;                // "ACTIVE", "DOWN", "INIT", "ARMED"
  std::string physical_state;       // "LinkUp", "Polling", "Disabled"
  std::string link_layer;           // "InfiniBand", "Ethernet" (RoCE)
  std::optional<double> rate_gbps;  // 400
  std::string rate;                 // "400 Gb/sec (4X NDR)"
  std::vector<Gid> gids;
};

struct RdmaDevice {
  std::string name;   // "mlx5_0"
  std::string model;  // hca_type: "MT4129"
  std::string firmware;
  std::vector<std::string> netdevs;
  std::vector<RdmaPort> ports;
  PciDevice pci;
};

struct Disk {
  std::string name;  // "nvme0n1"
  std::string kind;  // "nvme", "virtio", "scsi", "device-mapper", "raid", "loop", …
  std::string model;
  std::optional<std::int64_t> bytes;
  std::optional<bool> rotational;
  std::optional<bool> read_only;
  std::string scheduler;  // "none", "mq-deadline", "bfq"
  std::optional<std::int64_t> read_ahead_kib;
  std::optional<std::int64_t> queue_requests;
  std::optional<std::int64_t> max_request_kib;
  std::string write_cache;         // "write back", "write through"
  std::vector<std::string> parts;  // for raid and device-mapper: what it is made of
  PciDevice pci;
};

struct Mount {
  std::string point;                 // "/data"
  std::string type;                  // "ext4", "nfs4", "fuse.s3fs", "overlay", "tmpfs"
  std::string kind;                  // "local", "memory", "network", "fuse", "overlay"
  std::string source;                // "/dev/vda1", "server:/export" (passwords in it masked)
  std::vector<std::string> options;  // of mount and file system; layers of overlays left out
  std::string disk;                  // the whole disk beneath, when it is one of `disks`
  std::optional<std::int64_t> bytes;
  std::optional<std::int64_t> available_bytes;  // to unprivileged users
  std::optional<std::int64_t> inodes;           // absent also where they are not counted
  std::optional<std::int64_t> available_inodes;
};

// ---- this process's bounds ----

struct Limit {
  std::int64_t soft = kUnlimited;
  std::int64_t hard = kUnlimited;
};

struct Limits {
  std::optional<Limit> open_files;
  std::optional<Limit> locked_memory_bytes;
  std::optional<Limit> processes;
  std::optional<Limit> stack_bytes;
  std::optional<bool> may_lock_memory;            // CAP_IPC_LOCK: the memory limit does not bind
  std::optional<std::int64_t> system_open_files;  // fs.file-max
  std::optional<std::int64_t> system_threads;     // kernel.threads-max
  std::optional<std::int64_t> system_pids;        // kernel.pid_max
};

// The tightest bound on this process from its group up to the root that it can see, and the file
// that says so.
struct CgroupBounds {
  std::string version;  // "v1", "v2", "hybrid" (v1 controllers and a v2 tree), "none"
  std::vector<std::string> controllers;
  std::optional<double> cpu_quota;    // in CPUs
  std::optional<bool> cpu_unlimited;  // a quota was looked for; true: there is none
  std::string cpu_source;
  std::vector<int> cpuset;  // effective; empty: not told
  std::string cpuset_source;
  std::optional<std::int64_t> memory_bytes;  // kUnlimited when there is none
  std::string memory_source;
  std::optional<std::int64_t> pids;  // kUnlimited when there is none
  std::string pids_source;
};

// ---- the system ----

struct System {
  std::string hostname;
  std::string os;                         // "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;                     // "6.1.0-18-amd64"
  std::vector<std::string> boot_options;  // of /proc/cmdline, those that bear on speed
  std::string clock_source;
  std::vector<std::string> clock_sources;  // available
  std::string vendor;                      // DMI: "NVIDIA"
  std::string product;                     // DMI: "DGXH100"
  std::string hypervisor;  // "KVM", "Xen", …; "yes": only the CPU flag tells; empty: none seen
  std::string container;   // "docker", "podman", "kubernetes", "lxc", …; empty: none seen
  std::vector<std::string> hints;      // what the two lines above were guessed from
  std::optional<bool> psi;             // pressure stall information
  std::optional<bool> btf;             // type information of the kernel, which BPF programs need
  std::optional<bool> nvidia_peermem;  // GPUDirect RDMA's module; absent: no NVIDIA driver
  std::optional<std::int64_t> perf_event_paranoid;
};

struct Unseen {
  std::string what;  // "size of /mnt/nfs"
  std::string why;   // "no answer within 1 s"
};

struct Host {
  int schema = kHostSchema;
  System system;
  Processors cpu;
  std::vector<NumaNode> nodes;  // ascending id; empty: no NUMA support in the kernel
  Memory memory;
  std::vector<Gpu> gpus;         // by PCI address
  std::vector<Nic> nics;         // by name
  std::vector<RdmaDevice> rdma;  // by name, numbers in it as numbers
  std::vector<Disk> disks;       // by name; empty loop and RAM devices left out
  std::vector<Mount> mounts;     // by mount point; only what holds files
  Limits limits;
  CgroupBounds cgroup;
  std::vector<Unseen> unseen;
};

struct DescribeOptions {
  Nanos mount_deadline = kSecond;  // for all file systems that may block, together
};

Host describe(const os::HostRoot& root, const DescribeOptions& options = {});

// How near two PCI devices are, in the words of `nvidia-smi topo -m`, nearest first.
enum class PciDistance {
  kSameSwitch,   // PIX: at most one bridge between
  kSwitches,     // PXB: several bridges, one host bridge
  kHostBridge,   // PHB: the same root complex, through the processor
  kSameNode,     // NODE: other root complexes of one NUMA node
  kAcrossNodes,  // SYS: through the link between processors
};

// nullopt when it cannot be told: a device without an address, or unknown nodes.
std::optional<PciDistance> pci_distance(const PciDevice& a, const PciDevice& b);
std::string_view name(PciDistance distance);  // "PIX", …

// What a link could do at its best, in `speed_gts` and `width`: the lesser of both ends where both
// tell.
PciLink best_link(const PciDevice& device);

// "PCIe 5.0 x16", "PCIe 5.0", "x16"; empty when neither is known.
std::string link_text(std::optional<double> speed_gts, std::optional<int> width);

}  // namespace bedplate::host
