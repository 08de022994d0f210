#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>

#include "base/text.h"
#include "os/cgroup.h"

namespace bedplate::os {
namespace {

// Field 22 of /proc/PID/stat: when the process started, in clock ticks since boot. The second
// field, the name in brackets, may hold anything.
std::optional<std::string> start_ticks(const HostRoot& host, std::string_view pid) {
  const auto stat = host.read(fmt::format("/proc/{}/stat", pid));
  const auto name_end = stat ? stat->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return std::nullopt;
  const auto fields = words(std::string_view(*stat).substr(name_end + 1));
  if (fields.size() < 20) return std::nullopt;
  return std::string(fields[19]);
}

// The caller as /proc numbers it: another number than getpid()'s when a PID namespace was entered
// without a /proc of its own.
std::string proc_self(const HostRoot& host) {
  return host.link("/proc/self").value_or(std::to_string(::getpid()));
}

// Where a job may have a group of its own: v2, and v1 hierarchies that only count.
bool counts_only(const CgroupHierarchy& hierarchy) {
  if (hierarchy.unified) return true;
  return !hierarchy.controllers.empty() &&
         std::ranges::all_of(hierarchy.controllers, [](const std::string& controller) {
           return controller == "cpuacct" || controller == "memory";
         });
}

bool counts_among_others(const CgroupHierarchy& hierarchy) {
  return std::ranges::any_of(hierarchy.controllers, [](const std::string& controller) {
    return controller == "cpuacct" || controller == "memory";
  });
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ","));
}

std::string label(const CgroupHierarchy& hierarchy) {
  return hierarchy.unified ? "unified (v2)" : joined(hierarchy.controllers) + " (v1)";
}

// What a group below `parent` would change for the job; empty when it would only count.
std::string would_change(const HostRoot& host, const Cgroup& parent) {
  if (!parent.unified) {
    if (host.read_int(parent.file("memory.use_hierarchy")) == 0) {
      return "memory.use_hierarchy is 0: a group of the job's own would escape the parent's limit";
    }
    return {};
  }
  const auto handed_down = host.read(parent.file("cgroup.subtree_control")).value_or("");
  for (const auto controller : words(handed_down)) {
    if (controller == "cpu" || controller == "io") {
      return fmt::format(
          "the parent group hands `{}` down: a group of its own would change the "
          "job's share of it",
          controller);
    }
  }
  return {};
}

std::string reason(int error_number) {
  switch (error_number) {
    case EACCES:
    case EPERM:
      return "not permitted: needs root or a delegated group";
    case EROFS:
      return "read-only file system";
    default:
      return std::strerror(error_number);
  }
}

struct Parent {
  const CgroupHierarchy* hierarchy;
  Cgroup group;
};

// The caller's own group in each hierarchy where a job may have one.
std::vector<Parent> parents(const HostRoot& host, const CgroupTree& tree) {
  std::vector<Parent> found;
  for (const auto& hierarchy : tree.hierarchies()) {
    if (!counts_only(hierarchy)) continue;
    const auto controller = hierarchy.unified ? std::string() : hierarchy.controllers.front();
    const auto group = tree.of_process(host, "self", controller);
    if (group && group->unified == hierarchy.unified) found.push_back({&hierarchy, *group});
  }
  return found;
}

void collect_members(const std::string& folder, int depth, std::vector<pid_t>& pids) {
  const HostRoot live;
  const auto text = live.read(folder + "/cgroup.procs").value_or("");
  for (const auto line : words(text)) {
    const auto pid = to_int(line);
    if (pid && *pid > 0) pids.push_back(static_cast<pid_t>(*pid));  // 0: in another PID namespace
  }
  constexpr int kDeepest = 16;
  if (depth == kDeepest) return;
  for (const auto& name : live.list(folder)) {
    struct stat status {};
    const auto path = folder + "/" + name;
    if (::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
      collect_members(path, depth + 1, pids);
    }
  }
}

// The parts of "PREFIX.PID.START"; nullopt for another name.
struct OwnName {
  std::string_view pid;
  std::string_view start;
};
std::optional<OwnName> parse_name(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix) || name.size() <= prefix.size() || name[prefix.size()] != '.') {
    return std::nullopt;
  }
  const auto parts = split(name.substr(prefix.size() + 1), '.');
  if (parts.size() != 2 || !to_int(parts[0]) || !to_int(parts[1])) return std::nullopt;
  return OwnName{parts[0], parts[1]};
}

int clear_below(const HostRoot& host, const std::string& folder, std::string_view prefix) {
  int removed = 0;
  for (const auto& name : host.list(folder)) {
    const auto own = parse_name(name, prefix);
    if (!own || start_ticks(host, own->pid) == own->start) continue;
    const auto path = folder + "/" + name;
    removed += clear_below(host, path, prefix);  // of a run inside that run
    if (::rmdir(host.resolve(path).c_str()) == 0) ++removed;
  }
  return removed;
}

}  // namespace

std::string job_cgroup_name(const HostRoot& host) {
  const auto self = proc_self(host);
  return fmt::format("{}.{}.{}", kJobCgroupPrefix, self, start_ticks(host, self).value_or("0"));
}

JobCgroup::JobCgroup(const HostRoot& host, const CgroupTree& tree, const std::string& name) {
  const auto start = name.rfind('.');
  prefix_ = name.substr(0, start == std::string::npos ? start : name.rfind('.', start - 1));
  numbers_match_proc_ = proc_self(host) == std::to_string(::getpid());
  for (const auto& hierarchy : tree.hierarchies()) {
    if (!counts_only(hierarchy) && counts_among_others(hierarchy)) {
      refused_.push_back({label(hierarchy),
                          "mounted together with other controllers: a group of "
                          "its own would change the job's share"});
    }
  }
  for (const auto& [hierarchy, parent] : parents(host, tree)) {
    const auto refuse = [&, where = label(*hierarchy)](std::string why) {
      refused_.push_back({where, std::move(why)});
    };
    if (!host.live()) {
      refuse("a recorded machine");
      continue;
    }
    if (auto change = would_change(host, parent); !change.empty()) {
      refuse(std::move(change));
      continue;
    }
    // v2 lets a process move only for who may write to the group above both places.
    if (parent.unified && ::eaccess(parent.file("cgroup.procs").c_str(), W_OK) != 0) {
      refuse(reason(errno));
      continue;
    }
    const Cgroup group{parent.unified, parent.file(name)};
    if (::mkdir(group.folder.c_str(), 0755) != 0) {
      refuse(reason(errno));
      continue;
    }
    UniqueFd procs(::open(group.file("cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
    const int error_number = errno;
    // Below a threaded group a new one cannot hold whole processes.
    const bool holds_processes =
        !group.unified || host.read_line(group.file("cgroup.type")).value_or("domain") == "domain";
    if (!procs || !holds_processes) {
      ::rmdir(group.folder.c_str());
      refuse(procs ? "the parent group is threaded" : reason(error_number));
      continue;
    }
    auto controllers = hierarchy->unified ? std::vector<std::string>{""} : hierarchy->controllers;
    own_.push_back({std::move(controllers), group, std::move(procs)});
  }
}

JobCgroup::~JobCgroup() { remove(); }

void JobCgroup::remove() noexcept {
  // A process that was killed a moment ago may still be on its way out of the group.
  int tries_left = 10;
  constexpr timespec kPause{0, 5'000'000};
  for (const auto& own : own_) {
    while (::rmdir(own.group.folder.c_str()) != 0 && errno == EBUSY && tries_left-- > 0) {
      clear_below(HostRoot(), own.group.folder, prefix_);  // of a run inside this run
      ::nanosleep(&kPause, nullptr);
    }
  }
}

void JobCgroup::enter(pid_t pid) noexcept {
  char text[16];
  const auto end = std::to_chars(text, text + sizeof text, pid).ptr;
  for (const auto& own : own_) {
    // A refusal costs one signal, not the job; the collector sees that the group stays empty.
    [[maybe_unused]] const auto n =
        ::write(own.procs.get(), text, static_cast<std::size_t>(end - text));
  }
}

std::optional<Cgroup> JobCgroup::group(std::string_view controller) const {
  for (const auto& own : own_) {
    if (std::ranges::find(own.controllers, controller) != own.controllers.end()) return own.group;
  }
  return std::nullopt;
}

std::optional<std::vector<pid_t>> JobCgroup::members() const {
  if (own_.empty() || !numbers_match_proc_) return std::nullopt;
  std::vector<pid_t> pids;
  for (const auto& own : own_) collect_members(own.group.folder, 0, pids);
  std::ranges::sort(pids);
  const auto repeated = std::ranges::unique(pids);
  pids.erase(repeated.begin(), repeated.end());
  std::erase(pids, hidden_.load());
  return pids;
}

int JobCgroup::clear_leftovers(const HostRoot& host, const CgroupTree& tree,
                               std::string_view prefix) {
  int removed = 0;
  for (const auto& parent : parents(host, tree)) {
    removed += clear_below(host, parent.group.folder, prefix);
  }
  return removed;
}

}  // namespace bedplate::os
