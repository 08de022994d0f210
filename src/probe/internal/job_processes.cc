#include "probe/internal/job_processes.h"

#include <time.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "probe/internal/masking.h"
#include "probe/internal/proc_stat.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

constexpr Nanos kOldEnough = kSecond;            // a process is what it will be: exec is over
constexpr std::size_t kMostProcesses = 100'000;  // of the job at one time
constexpr int kMostDescriptions = 16;  // of one process, which may rename itself all the time
constexpr int kLooksPerFullLook = 20;  // for numbers that were used again between two looks

// How far CLOCK_BOOTTIME, in which /proc counts, is ahead of CLOCK_MONOTONIC: the time the machine
// was suspended.
Nanos suspended() {
  timespec boot{}, mono{};
  clock_gettime(CLOCK_BOOTTIME, &boot);
  clock_gettime(CLOCK_MONOTONIC, &mono);
  return (boot.tv_sec - mono.tv_sec) * kSecond + (boot.tv_nsec - mono.tv_nsec);
}

std::optional<ProcStat> read_stat(const os::HostRoot& host, int pid, std::string& text) {
  auto found = host.read(fmt::format("/proc/{}/stat", pid));
  if (!found) return std::nullopt;
  text = std::move(*found);
  return parse_proc_stat(text);
}

std::optional<std::string_view> variable(std::string_view environment, std::string_view name) {
  for (const auto entry : split(environment, '\0')) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name)) {
      return entry.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

int number_of(std::string_view environment, std::initializer_list<std::string_view> names,
              int fallback) {
  for (const auto name : names) {
    const auto value = variable(environment, name);
    const auto number = value ? to_int(*value) : std::nullopt;
    if (number && *number >= 0 && *number < (1 << 24)) return static_cast<int>(*number);
  }
  return fallback;
}

// The last number of "NSpid:\t4242\t7".
int pid_inside(std::string_view status, int pid) {
  for (Lines lines(status); const auto line = lines.next();) {
    if (!line->starts_with("NSpid:")) continue;
    const auto numbers = words(line->substr(6));
    const auto last = numbers.empty() ? std::nullopt : to_int(numbers.back());
    return last ? static_cast<int>(*last) : pid;
  }
  return pid;
}

// The last line that the hook of a process without a slot left in the run folder.
std::string own_reason(const os::HostRoot& host, std::string_view run_folder, int pid) {
  const auto log = host.read(fmt::format("{}/hook_off.log", run_folder));
  std::string reason;
  if (!log) return reason;
  for (Lines lines(*log); const auto line = lines.next();) {
    const auto tab = line->find('\t');
    if (tab != std::string_view::npos && to_int(line->substr(0, tab)) == pid)
      reason = line->substr(tab + 1);
  }
  return reason;
}

bool is_shell(const std::string& executable) {
  const std::string name = std::filesystem::path(executable).filename().string();
  return name == "sh" || name == "bash" || name == "dash" || name == "zsh" || name == "busybox" ||
         name == "env" || name == "timeout";
}

bool is_python(const std::string& executable) {
  return std::filesystem::path(executable).filename().string().starts_with("python");
}

}  // namespace

JobProcesses::JobProcesses(const os::HostRoot& host, const os::JobCgroup* job, int root_pid,
                           Nanos started)
    : host_(host), job_(job), root_pid_(root_pid), started_(started) {}

std::vector<int> JobProcesses::members() {
  std::vector<int> pids;
  std::optional<std::vector<pid_t>> group;
  if (job_ != nullptr) group = job_->members();
  by_family_ = !group;
  if (group) {
    pids.assign(group->begin(), group->end());
  } else {
    pids = family();
  }
  for (const int pid : adopted_) {
    if (std::find(pids.begin(), pids.end(), pid) == pids.end()) pids.push_back(pid);
  }
  return pids;
}

std::vector<int> JobProcesses::family() {
  std::vector<int> now;
  for (const auto& name : host_.list("/proc")) {
    if (const auto pid = to_int(name)) now.push_back(static_cast<int>(*pid));
  }
  std::sort(now.begin(), now.end());
  if (looks_++ % kLooksPerFullLook == 0) listed_.clear();
  std::vector<int> fresh;
  std::set_difference(now.begin(), now.end(), listed_.begin(), listed_.end(),
                      std::back_inserter(fresh));
  listed_ = now;

  std::set<int> members{root_pid_};
  for (const auto& [pid, entry] : known_) members.insert(pid);
  std::multimap<int, int> children;
  std::string text;
  for (const int pid : fresh) {
    const auto stat = read_stat(host_, pid, text);
    if (stat) children.emplace(static_cast<int>(stat->parent.value_or(0)), pid);
  }
  std::vector<int> todo(members.begin(), members.end());
  while (!todo.empty()) {
    const auto [first, last] = children.equal_range(todo.back());
    todo.pop_back();
    for (auto child = first; child != last; ++child) {
      if (members.insert(child->second).second) todo.push_back(child->second);
    }
  }
  return {members.begin(), members.end()};
}

void JobProcesses::adopt(int pid) {
  if (pid > 0 && !known_.contains(pid) && adopted_.size() < kMostProcesses) adopted_.insert(pid);
}

PidAnswer JobProcesses::find_inside(int pid, int ppid) const {
  using Kind = PidAnswer::Kind;
  bool nested = false;
  int found = 0;
  for (const auto& [here, entry] : known_) {
    if (entry.pid_inside == here) continue;
    nested = true;
    if (entry.pid_inside != pid) continue;
    const auto parent = known_.find(entry.record.ppid);
    const bool fits = parent != known_.end() && parent->second.pid_inside == ppid;
    if (fits || found == 0) found = here;
    if (fits) break;
  }
  const auto same = known_.find(pid);
  const bool is_ours = same != known_.end() && same->second.pid_inside == pid;
  if (is_ours && (found == 0 || same->second.record.ppid == ppid)) return {Kind::kFound, pid};
  if (found != 0) return {Kind::kFound, found};
  return {nested ? Kind::kUnknown : Kind::kOurs, 0};
}

void JobProcesses::update(Nanos now) {
  ended_.clear();
  described_.clear();
  alive_.clear();
  std::vector<int> pids = members();
  if (pids.size() > kMostProcesses) pids.resize(kMostProcesses);
  std::set<int> seen;
  std::string text;
  const Nanos offset = started_ + suspended();
  for (const int pid : pids) {
    const auto stat = read_stat(host_, pid, text);
    if (!stat || stat->state == 'Z') continue;
    seen.insert(pid);
    const std::int64_t ticks = stat->start_ticks.value_or(0);
    auto it = known_.find(pid);
    if (it != known_.end() &&
        it->second.start_ticks != ticks) {  // the number was given to another process
      it->second.record.end = now;
      ended_.push_back(it->second.record);
      known_.erase(it);
      it = known_.end();
      const bool ours = !by_family_ || pid == root_pid_ || adopted_.contains(pid) ||
                        known_.contains(static_cast<int>(stat->parent.value_or(0)));
      if (!ours) continue;
    }
    const bool appeared = it == known_.end();
    if (appeared) {
      it = known_.emplace(pid, Entry{}).first;
      it->second.start_ticks = ticks;
      it->second.record.pid = pid;
      it->second.record.ppid = static_cast<int>(stat->parent.value_or(0));
      it->second.record.start = ticks * clock_tick() - offset;
    }
    Entry& entry = it->second;
    const bool settled = entry.looks == 1 && now - entry.record.start >= kOldEnough;
    const bool renamed =
        !appeared && entry.looks < kMostDescriptions && to_utf8(stat->comm) != entry.record.comm;
    if (appeared || settled || renamed) {
      describe(entry);
      described_.push_back(pid);
    }
    alive_.push_back({.pid = pid, .start = entry.record.start, .appeared = appeared});
  }
  for (auto it = known_.begin(); it != known_.end();) {
    if (seen.contains(it->first)) {
      ++it;
      continue;
    }
    it->second.record.end = now;
    ended_.push_back(std::move(it->second.record));
    it = known_.erase(it);
  }
  std::erase_if(adopted_, [&seen](int pid) { return !seen.contains(pid); });
}

Process* JobProcesses::find(int pid) {
  const auto it = known_.find(pid);
  return it == known_.end() ? nullptr : &it->second.record;
}

void JobProcesses::describe(Entry& entry) {
  ++entry.looks;
  Process& record = entry.record;
  const std::string folder = fmt::format("/proc/{}", record.pid);
  record.comm = to_utf8(host_.read_line(folder + "/comm").value_or(""));
  record.executable = to_utf8(host_.link(folder + "/exe").value_or(""));
  if (const auto command = host_.read(folder + "/cmdline")) {
    auto arguments = split(*command, '\0');
    if (!arguments.empty() && arguments.back().empty()) arguments.pop_back();
    record.command = masked_command(arguments);
  }
  entry.pid_inside = pid_inside(host_.read(folder + "/status").value_or(""), record.pid);
  const std::string environment = host_.read(folder + "/environ").value_or("");
  // A shell between the launcher and the trainer is no rank itself.
  entry.told_rank =
      is_shell(record.executable)
          ? -1
          : number_of(environment, {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"},
                      -1);
  const auto parent = known_.find(record.ppid);
  const bool inherited = parent != known_.end() && parent->second.told_rank == entry.told_rank;
  if (record.role != entry.own_role) return;  // the hook knows better
  record.rank = record.local_rank = -1;
  record.world_size = 0;
  if (entry.told_rank >= 0 && !inherited) {
    record.role = entry.own_role = "rank";
    record.rank = entry.told_rank;
    record.local_rank =
        number_of(environment, {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"}, -1);
    record.world_size = number_of(
        environment, {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 0);
    return;
  }
  const bool launches = record.command.find("torchrun") != std::string::npos ||
                        record.command.find("torch.distributed.run") != std::string::npos ||
                        record.command.find("accelerate launch") != std::string::npos;
  record.role = entry.own_role = launches                       ? "launcher"
                                 : is_python(record.executable) ? "python"
                                                                : "other";
}

std::string JobProcesses::why_no_hook(const Process& process, std::string_view hook_folder,
                                      std::string_view run_folder) const {
  const std::string folder = fmt::format("/proc/{}", process.pid);
  const auto maps_hold = [&](std::string_view library) {
    const auto maps = host_.read(folder + "/maps");  // of a Python with torch some thousand lines
    return maps && maps->find(library) != std::string::npos;
  };
  if (!is_python(process.executable)) {
    return maps_hold("libtorch_python")
               ? "Python and torch inside another program: it loaded no sitecustomize"
               : "";
  }
  const std::string command = host_.read(folder + "/cmdline").value_or("");
  const auto arguments = split(command, '\0');
  for (std::size_t i = 1;
       i < arguments.size() && arguments[i].starts_with("-") && arguments[i].size() > 1; ++i) {
    const auto option = arguments[i];
    if (option == "-c" || option == "-m") break;
    if (option.starts_with("--")) continue;
    if (option.find('I') != std::string_view::npos)
      return "python -I ignores PYTHONPATH, through which the hook comes";
    if (option.find('E') != std::string_view::npos)
      return "python -E ignores PYTHONPATH, through which the hook comes";
    if (option.find('S') != std::string_view::npos) return "python -S loads no sitecustomize";
    if (option == "-W" || option == "-X") ++i;
  }
  if (hook_folder.empty()) return "no hook was given to this run";
  if (!maps_hold("libtorch")) return {};  // nothing to hook, and no reason to be given
  const auto environment = host_.read(folder + "/environ");
  if (!environment) return "not permitted to see its environment";
  if (!variable(*environment, "BEDPLATE_TRACE"))
    return "it was started with an environment of its own, without BEDPLATE_TRACE";
  const auto path = variable(*environment, "PYTHONPATH");
  if (!path || path->find(hook_folder) == std::string_view::npos)
    return "it was started with a PYTHONPATH of its own";
  const auto known = known_.find(process.pid);
  const std::string reason =
      own_reason(host_, run_folder, known != known_.end() ? known->second.pid_inside : process.pid);
  return reason.empty() ? "torch is loaded, but the hook did not report"
                        : "the hook could not report: " + reason;
}

}  // namespace bedplate::probe
