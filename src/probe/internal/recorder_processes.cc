// What the recorder writes of the job's processes: who they are, how they ended, why they have no
// hook.
#include <algorithm>

#include "base/text.h"
#include "probe/internal/recorder.h"

namespace bedplate::probe {
namespace {

// A Python that has not reported by these ages is asked why; torch may be imported late.
constexpr Nanos kAskedForHookAt[] = {5 * kSecond, 20 * kSecond, 60 * kSecond, 300 * kSecond};
constexpr std::size_t kMostUnwaited = 1'000;
constexpr Nanos kWaitedWithin = 10 * kSecond;  // of the time a process was seen gone

}  // namespace

void Recorder::complete(Process& process, const Source& source) const {
  const TraceOwner& owner = source.owner;
  process.hook = "active";
  if (owner.role == SlotRole::kWorker) {
    process.role = "worker";
    process.rank = -1;
    return;
  }
  // Helpers of a rank inherit its environment, and so its number: only what trains is a rank.
  if (owner.role != SlotRole::kMain && source.builder.steps() == 0) return;
  process.role = "rank";
  if (owner.rank >= 0) process.rank = owner.rank;
  if (owner.local_rank >= 0) process.local_rank = owner.local_rank;
  if (owner.world_size > 0) process.world_size = owner.world_size;
  if (process.rank < 0 && process.world_size <= 1) process.rank = 0;  // the only one
}

void Recorder::write_processes() {
  for (const int pid : processes_->described()) {
    Process* process = processes_->find(pid);
    if (process == nullptr) continue;
    const auto source = sources_.find(pid);
    if (source != sources_.end()) complete(*process, source->second);
    writer_.process(*process);
  }
  for (auto& [pid, source] : sources_) {
    const bool rank_now = source.owner.role == SlotRole::kMain || source.builder.steps() > 0;
    Process* process = processes_->find(pid);
    if (process == nullptr) continue;
    const bool worker_now = source.owner.role == SlotRole::kWorker;
    const bool same = (process->role == "worker") == worker_now &&
                      (worker_now || (process->role == "rank") == rank_now) &&
                      (!rank_now || source.owner.rank < 0 || source.owner.rank == process->rank);
    if (source.written && same) continue;
    complete(*process, source);
    writer_.process(*process);
    source.written = true;
  }
  for (const Process& ended : processes_->ended()) write_ended(ended);
  // Those that spoke and were never found in /proc.
  std::vector<int> strangers;
  for (const auto& [pid, source] : sources_) {
    if (source.gone && processes_->find(pid) == nullptr) strangers.push_back(pid);
  }
  for (const int pid : strangers) finish(pid);
  mark_hooks();
}

void Recorder::mark_hooks() {
  constexpr int kTimes = static_cast<int>(std::size(kAskedForHookAt));
  for (const JobProcess& alive : processes_->alive()) {
    int& asked = asked_for_hook_[alive.pid];
    if (asked >= kTimes || run_time() - alive.start < kAskedForHookAt[asked]) continue;
    // One that began long before the run is asked once, not four times in a row.
    while (asked < kTimes && run_time() - alive.start >= kAskedForHookAt[asked]) ++asked;
    if (sources_.contains(alive.pid)) continue;
    Process* process = processes_->find(alive.pid);
    if (process == nullptr) continue;
    const std::string why = to_utf8(processes_->why_no_hook(*process, options_.hook_folder.native(),
                                                            options_.run_folder.native()));
    if (why.empty() || why == process->hook) continue;
    process->hook = why;
    writer_.process(*process);
  }
}

void Recorder::write_ended(Process process) {
  const auto waited = wait_statuses_.find(process.pid);
  if (waited != wait_statuses_.end()) {
    process.wait_status = waited->second;
    wait_statuses_.erase(waited);
  }
  if (!process.wait_status) process.wait_status = sink_.take_exit_status(process.pid);
  const auto source = sources_.find(process.pid);
  if (source != sources_.end()) complete(process, source->second);
  writer_.process(process);
  oom_.ended(process);
  if (!process.wait_status) {
    if (unwaited_.size() >= kMostUnwaited) unwaited_.erase(unwaited_.begin());
    unwaited_[process.pid] = process;
  }
  finish(process.pid);
}

// A process may be seen gone before its parent has waited for it, or before BPF's word of its end
// arrives. One that came and went between two looks has no record; its status is not kept, for its
// number may soon be another's.
void Recorder::process_ended(int pid, int wait_status) {
  if (processes_ != nullptr && processes_->find(pid) != nullptr) {
    wait_statuses_[pid] = wait_status;
    return;
  }
  const auto late = unwaited_.find(pid);
  if (late == unwaited_.end()) return;
  late->second.wait_status = wait_status;
  writer_.process(late->second);
  oom_.ended(late->second);
  unwaited_.erase(late);
}

void Recorder::write_late_ends() {
  std::erase_if(unwaited_, [now = run_time()](const auto& item) {
    return now - item.second.end.value_or(0) > kWaitedWithin;
  });
  for (const auto& [pid, status] : sink_.take_exit_statuses(unwaited_)) process_ended(pid, status);
}

void Recorder::watch_memory() {
  const auto killed = oom_.look(sink_.last("cgroup/memory", "memory.oom_kills"),
                                sink_.last("host", "vm.oom_kill"), run_time());
  for (const Process& process : killed) {
    writer_.process(process);
    const auto unwaited = unwaited_.find(process.pid);
    if (unwaited != unwaited_.end() && unwaited->second.start == process.start)
      unwaited->second.oom_killed = true;
  }
}

}  // namespace bedplate::probe
