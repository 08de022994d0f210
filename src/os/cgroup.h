// Control groups, v1 and v2, as one picture.
//
//   const CgroupTree tree(host);                            // what is mounted where
//   const auto mine = tree.of_process(host, "self", "cpu"); // this process's group in a hierarchy
//   JobCgroup job(host, tree, job_cgroup_name(host));       // groups of the job's own
//
// A job's own groups are made only where they merely count: v2 (for its pressure files, and only
// where the parent hands down neither `cpu` nor `io`) and the v1 hierarchies cpuacct and memory,
// each only when it is mounted apart from every other controller. A group in `cpu` would change the
// job's share of the processor; one in v1 `blkio` would take the job out from under its parent's
// throttle, since v1 limits of that controller do not reach sub-groups (block/blk-throttle.c,
// throtl_pd_init). Bedplate changes nothing that it measures. Limits are therefore read from the
// groups the job was started in and from their parents up to the root.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/host_root.h"

namespace bedplate::os {

struct CgroupHierarchy {
  bool unified = false;  // v2
  std::vector<std::string>
      controllers;    // v1: those of the mount; v2: the root's cgroup.controllers
  std::string mount;  // "/sys/fs/cgroup/memory"
  std::string
      mount_root;  // the group shown as the mount's root (a container sees a part of the tree)
};

// One group of one hierarchy, as a folder of the host.
struct Cgroup {
  bool unified = false;
  std::string folder;  // "/sys/fs/cgroup/memory/docker/abc"; read its files through HostRoot

  std::string file(std::string_view name) const { return folder + "/" + std::string(name); }
};

// What is mounted, as of its construction. Thread-safe.
class CgroupTree {
 public:
  explicit CgroupTree(const HostRoot& host);

  // Visible hierarchies in the order of their mounting, each once; a mount that another one hides
  // is left out.
  const std::vector<CgroupHierarchy>& hierarchies() const { return hierarchies_; }

  // In any hierarchy. Of v2, "blkio" means its `io`, and "cpuacct" is always there (cpu.stat).
  bool has(std::string_view controller) const;

  // The group of a process ("self" or a pid) in the hierarchy of `controller`: v1 when that is
  // mounted, else v2. "" asks for the v2 group whatever its controllers (pressure files, cpu.stat).
  // In v2 a controller may be enabled only for a parent: then chain() leads to its files.
  // nullopt: not mounted, not visible from here, or the process is gone.
  std::optional<Cgroup> of_process(const HostRoot& host, std::string_view pid,
                                   std::string_view controller) const;

  // The group and its parents up to the mount's root, nearest first.
  std::vector<Cgroup> chain(const Cgroup& group) const;

 private:
  std::vector<CgroupHierarchy> hierarchies_;
};

// "bedplate.run.PID.START" for this process: the name that JobCgroup::clear_leftovers understands.
std::string job_cgroup_name(const HostRoot& host);
constexpr std::string_view kJobCgroupPrefix = "bedplate.run";

// The job's own groups. Creating it never fails: what could not be made is remembered with its
// reason. Destroying it removes the groups that are empty by then (a daemon that the job left
// behind keeps its own; the next run clears it). members() and group() may be called from any
// thread while it lives; the rest belongs to one thread.
class JobCgroup {
 public:
  // `name` is one path component; groups of that name are made under the caller's own groups. On a
  // recorded machine all are refused.
  JobCgroup(const HostRoot& host, const CgroupTree& tree, const std::string& name);
  JobCgroup(const JobCgroup&) = delete;
  JobCgroup& operator=(const JobCgroup&) = delete;
  ~JobCgroup();

  // The destructor's work, for an object that must outlive its use. Groups that are not empty stay.
  void remove() noexcept;

  // Moves a process in, 0 for the calling one; called by the child between fork and exec, so it
  // only writes to descriptors opened before. What the kernel refuses stays where it was.
  void enter(pid_t pid) noexcept;

  // A process that was moved in but is none of the job's: members() leaves it out.
  void hide(pid_t pid) { hidden_ = pid; }

  // The job's own group for a v1 controller, or "" for v2; nullopt when there is none.
  std::optional<Cgroup> group(std::string_view controller) const;

  // Every process in the job's groups and in groups below them now, ascending; nullopt when there
  // is no group at all or /proc numbers processes differently (then the process tree must do).
  std::optional<std::vector<pid_t>> members() const;

  struct Refused {
    std::string hierarchy;  // "memory (v1)"
    std::string why;        // "not permitted", "read-only file system", or what it would change
  };
  const std::vector<Refused>& refused() const { return refused_; }

  // Removes the empty groups "PREFIX.PID.START" under the caller's groups whose process PID
  // (started at START) is gone. Returns how many. Never throws: what stays, stays.
  static int clear_leftovers(const HostRoot& host, const CgroupTree& tree, std::string_view prefix);

 private:
  struct Own {
    std::vector<std::string> controllers;  // {""} for v2
    Cgroup group;
    UniqueFd procs;  // cgroup.procs, open for writing
  };
  std::vector<Own> own_;
  std::vector<Refused> refused_;
  std::string prefix_;
  bool numbers_match_proc_ = true;
  std::atomic<pid_t> hidden_{0};
};

}  // namespace bedplate::os
