// Checks of what one process or user may have.
#include <algorithm>

#include "doctor/node_checks.h"

namespace bedplate::doctor {
namespace {

constexpr std::string_view kSource = "/proc/self/limits";

std::string count(std::int64_t value) {
  return value == host::kUnlimited ? std::string("unlimited") : fmt::format("{}", value);
}

CheckResult open_files(const NodeView& node) {
  const auto& limit = node.host().limits.open_files;
  if (!limit) return not_seen("/proc/self/limits has no line \"Max open files\"");
  const std::string seen =
      fmt::format("{} (hard limit {})", count(limit->soft), count(limit->hard));
  const auto soft = static_cast<double>(limit->soft);
  if (soft >= node.threshold("open_files.warning")) return all_well(seen);
  CheckResult result =
      found(soft < node.threshold("open_files.fault") ? CheckState::kFault : CheckState::kWarning,
            seen + ": tensors that data workers pass on each hold a descriptor",
            std::string(kSource), seen);
  if (limit->hard > limit->soft) {
    const auto wanted = std::min<std::int64_t>(limit->hard, 65536);
    result.fix = fmt::format("ulimit -n {} before the job (the hard limit allows it)", wanted);
    result.undo = fmt::format("ulimit -n {}", limit->soft);
  }
  return result;
}

// RDMA pins the memory it transfers: without the right to lock it, ibv_reg_mr() fails and NCCL
// falls back to sockets.
CheckResult locked_memory(const NodeView& node) {
  const auto& host = node.host();
  const auto& limit = host.limits.locked_memory_bytes;
  if (!limit) return not_seen("/proc/self/limits has no line \"Max locked memory\"");
  const std::string seen = bytes(limit->soft);
  if (limit->soft == host::kUnlimited) return all_well(seen);
  if (host.rdma.empty()) return all_well(seen + "; matters for RDMA, of which there is none");
  const std::string source(kSource);
  if (host.limits.may_lock_memory.value_or(false)) {
    return found(CheckState::kNote,
                 seen + ": does not bind this user (CAP_IPC_LOCK), but may bind the job's", source,
                 seen);
  }
  const bool hopeless = static_cast<double>(limit->soft) <=
                        node.threshold("locked_memory.fault_mib") * static_cast<double>(kMiB);
  return found(
      hopeless ? CheckState::kFault : CheckState::kWarning,
      seen + fmt::format(
                 " with {}: registering buffers fails beyond it, and NCCL falls back to sockets",
                 plural(host.rdma.size(), "RDMA device", "RDMA devices")),
      source, seen);
}

CheckResult processes(const NodeView& node) {
  const auto& host = node.host();
  if (!host.limits.processes && !host.cgroup.pids)
    return not_seen("neither /proc/self/limits nor a pids cgroup tells");
  const double least = node.threshold("processes.least");
  CheckResult result;
  if (host.limits.processes && static_cast<double>(host.limits.processes->soft) < least) {
    add(result, CheckState::kWarning, std::string(kSource),
        fmt::format("{} processes and threads a user", host.limits.processes->soft));
  }
  if (host.cgroup.pids && static_cast<double>(*host.cgroup.pids) < least) {
    add(result, CheckState::kWarning, host.cgroup.pids_source,
        fmt::format("{} processes and threads in the cgroup", *host.cgroup.pids));
  }
  const std::int64_t tightest =
      std::min(host.limits.processes ? host.limits.processes->soft : host::kUnlimited,
               host.cgroup.pids.value_or(host::kUnlimited));
  return concluded(
      std::move(result),
      fmt::format("at most {}: 8 ranks with their workers, and a thread a CPU in each, need more",
                  count(tightest)),
      count(tightest));
}

constexpr Threshold kFiles[] = {
    {"open_files.warning", 4096, "files", "own: 8 workers × prefetch of 2 × some 100 tensors"},
    {"open_files.fault", 256, "files",
     "own: less than a Python with torch and a few workers needs"}};
constexpr Threshold kLocked[] = {
    {"locked_memory.fault_mib", 64, "MiB",
     "own: one NCCL channel's buffers are some MiB; defaults are 64 KiB and 8 MiB"}};
constexpr Threshold kProcesses[] = {
    {"processes.least", 4096, "processes", "own: 8 ranks × 64 threads × (1 + 4 workers) is 2560"}};

constexpr NodeCheck kChecks[] = {
    {.id = "open_files",
     .title = "few open files are allowed",
     .layer = Layer::kIo,
     .check = open_files,
     .verify = "ulimit -n; ulimit -Hn",
     .fix = "LimitNOFILE= of the service, /etc/security/limits.conf, or docker run --ulimit "
            "nofile=65536",
     .undo = "put the old figure back",
     .source = "PyTorch multiprocessing docs (file_descriptor sharing strategy)",
     .thresholds = kFiles},
    {.id = "locked_memory",
     .title = "too little memory may be locked for RDMA",
     .layer = Layer::kNetwork,
     .check = locked_memory,
     .verify = "ulimit -l",
     .fix = "ulimit -l unlimited: LimitMEMLOCK=infinity of the service (also slurmd's), "
            "/etc/security/limits.conf, or docker run --ulimit memlock=-1",
     .undo = "put the old figure back",
     .source = "NCCL troubleshooting guide; NVIDIA/nccl#451",
     .thresholds = kLocked,
     .may_cause = "nccl_on_sockets"},
    {.id = "processes",
     .title = "few processes and threads are allowed",
     .layer = Layer::kFramework,
     .check = processes,
     .verify = "ulimit -u; cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max",
     .fix = "LimitNPROC= and TasksMax= of the service, or docker run --pids-limit -1",
     .undo = "put the old figures back",
     .source = "setrlimit(2) RLIMIT_NPROC; Linux Documentation/admin-guide/cgroup-v1/pids.rst",
     .thresholds = kProcesses},
};

}  // namespace

std::span<const NodeCheck> limit_checks() { return kChecks; }

}  // namespace bedplate::doctor
