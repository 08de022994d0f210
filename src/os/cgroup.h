// Control groups, v1 and v2, as one picture.
//
//   const CgroupTree tree(host);                       // what is mounted where, v1 hierarchies and the unified one
//   const auto mine = tree.of_process(host, "self");   // this process's group in each hierarchy
//   JobCgroup job(tree, "bedplate.run.4242.81723");    // groups of the job's own, where that is permitted
//
// A job's own groups are made only where they merely count: v2 (for its pressure files; no controller is enabled) and the
// v1 hierarchies cpuacct, memory and blkio, each only when mounted apart from `cpu`. A group in the `cpu` hierarchy would
// change the job's share of the processor, and Bedplate changes nothing that it measures. Limits are therefore read from
// the groups the job was started in and from their parents up to the root.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/host_root.h"

namespace bedplate::os {

struct CgroupHierarchy {
  bool unified = false;                  // v2
  std::vector<std::string> controllers;  // v1: those of the mount; v2: those in the root's cgroup.controllers
  std::string mount;                     // "/sys/fs/cgroup/memory"
  std::string mount_root;                // the group that the mount shows as its root (a container sees a part of the tree)
};

// One group of one hierarchy, as a folder of the host.
struct Cgroup {
  bool unified = false;
  std::string folder;  // "/sys/fs/cgroup/memory/docker/abc"; read its files through HostRoot

  std::string file(std::string_view name) const { return folder + "/" + std::string(name); }
};

class CgroupTree {
 public:
  explicit CgroupTree(const HostRoot& host);

  const std::vector<CgroupHierarchy>& hierarchies() const { return hierarchies_; }
  bool has(std::string_view controller) const;  // in any hierarchy

  // The group of a process ("self" or a pid) that governs `controller`: v1 when the controller is mounted there, else v2.
  // "" asks for the v2 group whatever its controllers (pressure files). nullopt: not mounted or process gone.
  std::optional<Cgroup> of_process(const HostRoot& host, std::string_view pid, std::string_view controller) const;

  // The group and its parents up to the mount's root, nearest first.
  std::vector<Cgroup> chain(const Cgroup& group) const;

 private:
  std::vector<CgroupHierarchy> hierarchies_;
};

// The job's own groups. Creating it never fails: what could not be made is remembered with its reason. Destroying it
// removes the groups that are empty by then. Not thread-safe.
class JobCgroup {
 public:
  // `name` is one path component; groups of that name are made under the calling process's own groups.
  JobCgroup(const HostRoot& host, const CgroupTree& tree, std::string name);
  JobCgroup(const JobCgroup&) = delete;
  JobCgroup& operator=(const JobCgroup&) = delete;
  ~JobCgroup();

  // Moves a process in; called by the child between fork and exec, so it only writes to descriptors opened before.
  void enter(pid_t pid) noexcept;

  // The job's own group for a v1 controller, or "" for v2; nullopt when there is none.
  std::optional<Cgroup> group(std::string_view controller) const;

  // Every process in the job's groups now; nullopt when there is no group at all (then the process tree must do).
  std::optional<std::vector<pid_t>> members() const;

  struct Refused {
    std::string hierarchy;  // "memory (v1)"
    std::string why;        // "not permitted: …" or "read-only file system"
  };
  const std::vector<Refused>& refused() const { return refused_; }

  // Removes empty groups "PREFIX.PID.START" under the caller's groups whose process PID (started at START) is gone.
  static int clear_leftovers(const HostRoot& host, const CgroupTree& tree, std::string_view prefix);

 private:
  struct Own {
    std::string controller;  // "" for v2
    Cgroup group;
    UniqueFd procs;
  };
  std::vector<Own> own_;
  std::vector<Refused> refused_;
};

}  // namespace bedplate::os
