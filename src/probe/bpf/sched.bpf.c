/* How long the job's tasks waited for a processor, and how long they were blocked, by reason.
 *
 * A task enters the map `off` when it leaves its processor, while it is the current task and its group can be asked for; it
 * stays known there until it runs again, so that wake-ups and switches of other tasks cost one look-up. */
#include "kernel.bpf.h"

SUMS(bpf_sched_sums)

enum reason { QUEUED = 1, BLOCKED_IO = 2, BLOCKED_OTHER = 3 };

struct off {
  __u64 at;
  __u64 reason;
};

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 16384);
  __type(key, __u32);
  __type(value, struct off);
} off SEC(".maps");

#define TASK_DEAD 0x80

static __always_inline long state_of(struct task_struct* task) {
  if (bpf_core_field_exists(task->__state)) return task->__state;
  return ((struct task_struct___old*)task)->state;
}

static __always_inline void add(__u64 reason, __u64 ns) {
  struct bpf_sched_sums* to = my_sums();
  if (!to) return;
  if (reason == QUEUED) ADD(to->run_delay_ns, ns);
  if (reason == BLOCKED_IO) ADD(to->offcpu_io_ns, ns);
  if (reason == BLOCKED_OTHER) ADD(to->offcpu_other_ns, ns);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct* prev, struct task_struct* next) {
  const __u32 coming = next->pid;
  if (coming != 0) {
    const struct off* since = bpf_map_lookup_elem(&off, &coming);
    if (since) {
      add(since->reason, bpf_ktime_get_ns() - since->at);
      bpf_map_delete_elem(&off, &coming);
    }
  }
  const __u32 going = prev->pid;
  if (going == 0 || !in_job()) return 0;
  const long state = state_of(prev);
  if (state & TASK_DEAD) return 0;
  struct off now = {.at = bpf_ktime_get_ns(), .reason = QUEUED};
  /* A task that is preempted on its way to sleep is still queued. */
  if (!preempt && state != 0) now.reason = BPF_CORE_READ_BITFIELD(prev, in_iowait) ? BLOCKED_IO : BLOCKED_OTHER;
  bpf_map_update_elem(&off, &going, &now, BPF_ANY);
  return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct* task) {
  const __u32 pid = task->pid;
  struct off* since = bpf_map_lookup_elem(&off, &pid);
  if (!since || since->reason == QUEUED) return 0;
  const __u64 now = bpf_ktime_get_ns();
  add(since->reason, now - since->at);
  since->at = now;
  since->reason = QUEUED;
  return 0;
}

/* A new task waits for its first turn. Its maker is the current one, and in the same group. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct* task) {
  if (!in_job()) return 0;
  const __u32 pid = task->pid;
  const struct off now = {.at = bpf_ktime_get_ns(), .reason = QUEUED};
  bpf_map_update_elem(&off, &pid, &now, BPF_ANY);
  return 0;
}
