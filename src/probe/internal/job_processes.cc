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

// How far CLOCK_BOOTTIME, in which /proc counts, is ahead of CLOCK_MONOTONIC: the time the machine was suspended.
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

int number_of(std::string_view environment, std::initializer_list<std::string_view> names, int fallback) {
  for (const auto name : names) {
    const auto value = variable(environment, name);
    const auto number = value ? to_int(*value) : std::nullopt;
    if (number && *number >= 0 && *number < (1 << 24)) return static_cast<int>(*number);
  }
  return fallback;
}

bool is_python(const std::string& executable) {
  return std::filesystem::path(executable).filename().string().starts_with("python");
}

}  // namespace

JobProcesses::JobProcesses(const os::HostRoot& host, const os::JobCgroup* job, int root_pid, Nanos started)
    : host_(host), job_(job), root_pid_(root_pid), started_(started) {}

std::vector<int> JobProcesses::members() {
  if (job_ != nullptr) {
    if (auto pids = job_->members()) return {pids->begin(), pids->end()};
  }
  return descendants();
}

std::vector<int> JobProcesses::descendants() const {
  std::map<int, std::vector<int>> children;
  std::set<int> all;
  std::string text;
  for (const auto& name : host_.list("/proc")) {
    const auto pid = to_int(name);
    if (!pid) continue;
    const auto stat = read_stat(host_, static_cast<int>(*pid), text);
    if (!stat) continue;
    all.insert(static_cast<int>(*pid));
    children[static_cast<int>(stat->parent.value_or(0))].push_back(static_cast<int>(*pid));
  }
  std::set<int> family;
  std::vector<int> todo{root_pid_};
  for (const auto& [pid, entry] : known_) todo.push_back(pid);
  while (!todo.empty()) {
    const int pid = todo.back();
    todo.pop_back();
    if (!all.contains(pid) || !family.insert(pid).second) continue;
    for (const int child : children[pid]) todo.push_back(child);
  }
  return {family.begin(), family.end()};
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
    if (it != known_.end() && it->second.start_ticks != ticks) {  // the number was given to another process
      it->second.record.end = now;
      ended_.push_back(it->second.record);
      known_.erase(it);
      it = known_.end();
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
    if (appeared || settled) {
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
  const std::string environment = host_.read(folder + "/environ").value_or("");
  if (record.rank < 0) record.rank = number_of(environment, {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}, -1);
  if (record.local_rank < 0) record.local_rank = number_of(environment, {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"}, -1);
  if (record.world_size == 0) record.world_size = number_of(environment, {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 0);
  if (!record.role.empty() && record.role != "python" && record.role != "other") return;  // the hook knows better
  const bool launches = record.command.find("torchrun") != std::string::npos ||
                        record.command.find("torch.distributed.run") != std::string::npos ||
                        record.command.find("accelerate launch") != std::string::npos;
  record.role = launches && record.rank < 0 ? "launcher" : is_python(record.executable) ? "python" : "other";
}

std::string JobProcesses::why_no_hook(const Process& process, std::string_view hook_folder) const {
  if (!is_python(process.executable)) return {};
  const std::string folder = fmt::format("/proc/{}", process.pid);
  const std::string command = host_.read(folder + "/cmdline").value_or("");
  const auto arguments = split(command, '\0');
  for (std::size_t i = 1; i < arguments.size() && arguments[i].starts_with("-") && arguments[i].size() > 1; ++i) {
    const auto option = arguments[i];
    if (option == "-c" || option == "-m") break;
    if (option.starts_with("--")) continue;
    if (option.find('I') != std::string_view::npos) return "python -I ignores PYTHONPATH, through which the hook comes";
    if (option.find('E') != std::string_view::npos) return "python -E ignores PYTHONPATH, through which the hook comes";
    if (option.find('S') != std::string_view::npos) return "python -S loads no sitecustomize";
    if (option == "-W" || option == "-X") ++i;
  }
  // Without torch there is nothing to hook, and no reason to be given. The map of a Python with torch has some thousand lines.
  const auto maps = host_.read(folder + "/maps");
  if (!maps || maps->find("libtorch") == std::string::npos) return {};
  const auto environment = host_.read(folder + "/environ");
  if (!environment) return "not permitted to see its environment";
  if (!variable(*environment, "BEDPLATE_TRACE")) return "it was started with an environment of its own, without BEDPLATE_TRACE";
  const auto path = variable(*environment, "PYTHONPATH");
  if (!path || path->find(hook_folder) == std::string_view::npos) return "it was started with a PYTHONPATH of its own";
  return "torch is loaded, but the hook did not report; see the notes of the run";
}

}  // namespace bedplate::probe
