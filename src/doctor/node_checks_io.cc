// Checks of disks and file systems.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "doctor/node_checks.h"

namespace bedplate::doctor {
namespace {

using host::Disk;
using host::Mount;

bool has(const Mount& mount, std::string_view option) {
  return std::find(mount.options.begin(), mount.options.end(), option) != mount.options.end();
}

// The value of "key=value"; nullopt when absent or not a number.
std::optional<std::int64_t> value_of(const Mount& mount, std::string_view key) {
  for (const auto& option : mount.options) {
    if (option.size() > key.size() && option.starts_with(key) && option[key.size()] == '=') {
      return to_int(std::string_view(option).substr(key.size() + 1));
    }
  }
  return std::nullopt;
}

// Virtual disks call themselves rotational and have their queue in the hypervisor: nothing to
// advise.
bool real(const Disk& disk) { return disk.kind == "nvme" || disk.kind == "scsi"; }

CheckResult scheduler(const NodeView& node) {
  const auto& disks = node.host().disks;
  CheckResult result;
  std::size_t judged = 0;
  for (const auto& disk : disks) {
    if (disk.scheduler.empty() || !real(disk)) continue;
    ++judged;
    const std::string source = fmt::format("/sys/block/{}/queue/scheduler", disk.name);
    const bool spinning = disk.rotational.value_or(false);
    const bool wrong = spinning ? disk.scheduler == "none" : disk.scheduler == "bfq";
    if (wrong && result.evidence.empty()) {
      result.fix = fmt::format("echo {} > {}", spinning ? "mq-deadline" : "none", source);
      result.undo = fmt::format("echo {} > {}", disk.scheduler, source);
    }
    if (disk.scheduler == "bfq" && !spinning) {
      add(result, CheckState::kWarning, source,
          fmt::format("{}: bfq on a fast disk costs CPU time for each request", disk.name),
          "disk/" + disk.name);
    } else if (disk.scheduler == "none" && spinning) {
      add(result, CheckState::kNote, source,
          fmt::format("{}: none on a spinning disk: requests are not sorted", disk.name),
          "disk/" + disk.name);
    }
  }
  if (judged == 0)
    return not_applicable(disks.empty()
                              ? "no disk is visible"
                              : "no NVMe or SCSI disk: a virtual disk is scheduled by its host");
  return concluded(std::move(result), "several do not suit",
                   plural(judged, "disk", "disks") + " with a scheduler that suits");
}

CheckResult read_ahead(const NodeView& node) {
  CheckResult result;
  std::size_t judged = 0;
  for (const auto& disk : node.host().disks) {
    if (!disk.read_ahead_kib || disk.kind == "zram" || disk.kind == "loop") continue;
    ++judged;
    const std::string source = fmt::format("/sys/block/{}/queue/read_ahead_kb", disk.name);
    const auto kib = static_cast<double>(*disk.read_ahead_kib);
    if (result.evidence.empty()) {
      result.fix =
          fmt::format("echo 128 > {}; or MADV_RANDOM in a loader that reads at random", source);
      result.undo = fmt::format("echo {} > {}", *disk.read_ahead_kib, source);
    }
    if (kib > node.threshold("disk_read_ahead.most_kib")) {
      add(result, CheckState::kNote, source,
          fmt::format("{}: {} KiB: good for one long read; random reads through mmap fetch up to "
                      "that much for each page",
                      disk.name, *disk.read_ahead_kib),
          "disk/" + disk.name);
    } else if (kib == 0) {
      add(result, CheckState::kWarning, source,
          fmt::format("{}: 0: each read waits for the disk", disk.name), "disk/" + disk.name);
    }
  }
  if (judged == 0) return not_applicable("no disk is visible");
  return concluded(std::move(result), "several are far from the default of 128 KiB",
                   plural(judged, "disk", "disks") + " near the default");
}

bool counts_for_space(const Mount& mount) {
  return mount.kind != "memory" && !has(mount, "ro") && mount.bytes.value_or(0) > 0 &&
         mount.available_bytes.has_value();
}

CheckResult space(const NodeView& node) {
  CheckResult result;
  std::size_t judged = 0;
  for (const auto& mount : node.host().mounts) {
    if (!counts_for_space(mount)) continue;
    ++judged;
    const double used =
        1 - static_cast<double>(*mount.available_bytes) / static_cast<double>(*mount.bytes);
    const double left_gib = static_cast<double>(*mount.available_bytes) / static_cast<double>(kGiB);
    const std::string seen =
        fmt::format("{}: {} left of {}: checkpoints and logs will fail", mount.point,
                    bytes(*mount.available_bytes), bytes(*mount.bytes));
    const std::string subject = "mount/" + mount.point;
    const std::string source = "statfs " + mount.point;
    if (used > node.threshold("disk_space.fault_share") &&
        left_gib < node.threshold("disk_space.fault_gib")) {
      add(result, CheckState::kFault, source, seen, subject);
    } else if (used > node.threshold("disk_space.warning_share") &&
               left_gib < node.threshold("disk_space.warning_gib")) {
      add(result, CheckState::kWarning, source, seen, subject);
    }
  }
  if (judged == 0) return not_seen("no size of any file system is told");
  return concluded(std::move(result), "several are nearly full",
                   plural(judged, "file system", "file systems") + " with room");
}

CheckResult inodes(const NodeView& node) {
  CheckResult result;
  std::size_t judged = 0;
  for (const auto& mount : node.host().mounts) {
    if (!counts_for_space(mount) || mount.inodes.value_or(0) == 0 || !mount.available_inodes)
      continue;
    ++judged;
    const double left =
        static_cast<double>(*mount.available_inodes) / static_cast<double>(*mount.inodes);
    const std::string seen =
        fmt::format("{}: {} of {} inodes left: no new files soon, whatever space is left",
                    mount.point, *mount.available_inodes, *mount.inodes);
    if (left < node.threshold("disk_inodes.least_share")) {
      add(result, *mount.available_inodes == 0 ? CheckState::kFault : CheckState::kWarning,
          "statfs " + mount.point, seen, "mount/" + mount.point);
    }
  }
  if (judged == 0) return not_applicable("no file system that counts inodes");
  return concluded(std::move(result), "several have few inodes left",
                   plural(judged, "file system", "file systems") + " with inodes left");
}

constexpr std::int64_t kFastMbps = 25'000;

bool fast_network(const host::Host& host) {
  return std::any_of(host.nics.begin(), host.nics.end(),
                     [](const auto& nic) { return nic.speed_mbps.value_or(0) >= kFastMbps; });
}

void check_nfs(const NodeView& node, const Mount& mount, CheckResult& result) {
  const std::string source = "/proc/self/mountinfo";
  const auto say = [&](CheckState state, const std::string& text) {
    add(result, state, source, mount.point + ": " + text, "mount/" + mount.point);
  };
  if (has(mount, "noac")) say(CheckState::kWarning, "noac: every look at a file asks the server");
  if (has(mount, "sync"))
    say(CheckState::kWarning, "sync: every write waits for the server's disk");
  if (const auto rsize = value_of(mount, "rsize");
      rsize && static_cast<double>(*rsize) < node.threshold("mount_options.least_rsize")) {
    say(CheckState::kWarning,
        fmt::format("rsize={}: large files are read in small pieces", *rsize));
  }
  if (has(mount, "soft"))
    say(CheckState::kNote,
        "soft: when the server is slow, reads fail and written data may be lost");
  if (!value_of(mount, "nconnect") && has(mount, "proto=tcp") && fast_network(node.host())) {
    say(CheckState::kNote,
        "one TCP connection (no nconnect): it ends near 10 Gb/s on a faster network");
  }
}

CheckResult options(const NodeView& node) {
  CheckResult result;
  const std::string source = "/proc/self/mountinfo";
  for (const auto& mount : node.host().mounts) {
    const auto say = [&](CheckState state, const std::string& text) {
      add(result, state, source, mount.point + ": " + text, "mount/" + mount.point);
    };
    if (mount.type == "nfs" || mount.type == "nfs4") check_nfs(node, mount, result);
    if (mount.kind == "fuse")
      say(CheckState::kNote, mount.type + ": each request goes through a daemon");
    if (mount.kind != "local") continue;
    const bool read_only = has(mount, "ro");
    if (read_only && has(mount, "errors=remount-ro"))
      say(CheckState::kFault, "read-only, as after an error of the disk (errors=remount-ro)");
    // The kernel writes no word for strictatime: it is what is left when the others are absent.
    const bool strict = !has(mount, "relatime") && !has(mount, "noatime");
    if (strict && !read_only && !has(mount, "lazytime"))
      say(CheckState::kWarning, "strictatime: reading a file also writes its inode");
    if (has(mount, "sync") || has(mount, "dirsync"))
      say(CheckState::kWarning, "sync: every write waits for the disk");
    if (has(mount, "data=journal"))
      say(CheckState::kNote, "data=journal: every byte is written twice");
  }
  if (node.host().mounts.empty()) return not_seen("/proc/self/mountinfo names no file system");
  return concluded(
      std::move(result), "several options cost speed",
      plural(node.host().mounts.size(), "file system", "file systems") + " without costly options");
}

CheckResult answers(const NodeView& node) {
  CheckResult result;
  for (const auto& unseen : node.host().unseen) {
    if (!unseen.what.starts_with("size of ")) continue;
    const std::string point = unseen.what.substr(8);
    const bool silent = unseen.why.starts_with("no answer");
    add(result, silent ? CheckState::kFault : CheckState::kWarning, "statfs " + point,
        point + ": " + unseen.why + (silent ? ": whoever touches its files hangs" : ""),
        "mount/" + point);
    if (result.evidence.size() == 1) {
      result.verify = "timeout 5 stat -f " + shell_quote(point);
      result.fix =
          fmt::format("restart its server or FUSE daemon, or umount -l {}", shell_quote(point));
    }
  }
  if (node.host().mounts.empty()) return not_seen("/proc/self/mountinfo names no file system");
  return concluded(std::move(result), "several do not answer",
                   plural(node.host().mounts.size(), "file system", "file systems") + " answer");
}

constexpr Threshold kReadAhead[] = {
    {"disk_read_ahead.most_kib", 4096, "KiB", "own: 32 times the kernel's default of 128"}};
constexpr Threshold kSpace[] = {
    {"disk_space.warning_share", 0.85, "share used", "facebookresearch/gcm alarms at 80 and 85 %"},
    {"disk_space.warning_gib", 200, "GiB left", "own: a few checkpoints of a large model"},
    {"disk_space.fault_share", 0.95, "share used", "own: ext4 keeps its last 5 % for root"},
    {"disk_space.fault_gib", 20, "GiB left",
     "own: one checkpoint of a 1 B model with its optimizer is 14 GiB"}};
constexpr Threshold kInodes[] = {
    {"disk_inodes.least_share", 0.05, "share left", "own, as for space"}};
constexpr Threshold kOptions[] = {
    {"mount_options.least_rsize", 131072, "bytes", "nfs(5): servers offer up to 1 MiB"}};

constexpr NodeCheck kChecks[] = {
    {.id = "mount_answers",
     .title = "a file system does not answer",
     .layer = Layer::kIo,
     .check = answers,
     .verify = "timeout 5 stat -f <mount point>; dmesg | grep -i 'not responding'",
     .fix = "restart the server or the FUSE daemon, or umount -l the mount point",
     .undo = "mount it again",
     .source = "nfs(5), hard mounts; Linux Documentation/filesystems/fuse.rst",
     .may_cause = "fuse_stall"},
    {.id = "disk_space",
     .title = "a file system is nearly full",
     .layer = Layer::kIo,
     .check = space,
     .verify = "df -h",
     .fix = "remove old checkpoints and caches (du -xhd2 <mount point> | sort -h)",
     .undo = "none: look before removing",
     .source = "statfs(2)",
     .thresholds = kSpace,
     .may_cause = "disk_full"},
    {.id = "disk_inodes",
     .title = "a file system has few inodes left",
     .layer = Layer::kIo,
     .check = inodes,
     .verify = "df -i",
     .fix = "pack small files into shards (tar, Parquet), remove old ones",
     .undo = "none: look before removing",
     .source = "statfs(2)",
     .thresholds = kInodes,
     .may_cause = "disk_full"},
    {.id = "disk_scheduler",
     .title = "a disk's scheduler does not suit it",
     .layer = Layer::kIo,
     .check = scheduler,
     .verify = "cat /sys/block/*/queue/scheduler",
     .fix = "echo none > /sys/block/<disk>/queue/scheduler (mq-deadline for a spinning one)",
     .undo = "echo <the old one> > the same file",
     .source = "Linux Documentation/block/bfq-iosched.rst, switching-sched.rst",
     .may_cause = "slow_device"},
    {.id = "disk_read_ahead",
     .title = "a disk's read-ahead is unusual",
     .layer = Layer::kIo,
     .check = read_ahead,
     .verify = "cat /sys/block/*/queue/read_ahead_kb",
     .fix = "for data that is read at random: echo 128 > /sys/block/<disk>/queue/read_ahead_kb, or "
            "MADV_RANDOM in the loader",
     .undo = "echo <the old figure> > the same file",
     .source = "Linux Documentation/ABI/stable/sysfs-block",
     .thresholds = kReadAhead,
     .may_cause = "readahead_amplification"},
    {.id = "mount_options",
     .title = "a file system is mounted with options that cost speed",
     .layer = Layer::kIo,
     .check = options,
     .verify = "findmnt -o TARGET,FSTYPE,OPTIONS",
     .fix = "mount -o remount,noatime <mount point>; for NFS: rsize=1048576,nconnect=8 and no noac "
            "or sync (needs a new mount)",
     .undo = "remount with the old options",
     .source = "mount(8), nfs(5), ext4(5)",
     .thresholds = kOptions,
     .may_cause = "nfs_slow"},
};

}  // namespace

std::span<const NodeCheck> io_checks() { return kChecks; }

}  // namespace bedplate::doctor
