/* How long the job's tasks waited for a processor, and how long they were blocked, by reason.
 *
 * Only the task that leaves its processor is looked at: it is the current one, so its group can be
 * asked for, and switches between others cost a few nanoseconds. The kernel keeps for every task
 * how long it ran and how long it was queued; what is left of the time between two leavings, it was
 * blocked. So no wake-up needs to be seen. A wait is added when the task leaves its processor the
 * next time. */
#include "kernel.bpf.h"

SUMS(sched)

enum sched_reason { PREEMPTED = 0, BLOCKED_IO = 1, BLOCKED_OTHER = 2 };

/* A task as it was when it left its processor last. */
struct sched_left {
  __u64 started; /* tells it from an earlier task with its number */
  __u64 at;
  __u64 run_delay;
  __u64 executed;
  __u64 reason;
};

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 16384);
  __type(key, __u32);
  __type(value, struct sched_left);
} sched_tasks SEC(".maps");

#define TASK_DEAD 0x80

static __always_inline long sched_state(struct task_struct* task) {
  if (bpf_core_field_exists(task->__state)) return task->__state;
  return ((struct task_struct___old*)task)->state;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_on_switch, bool preempt, struct task_struct* prev) {
  const __u32 pid = prev->pid;
  if (pid == 0 || !in_job()) return 0;
  struct bpf_sched_sums* to = sched_slot();
  if (!to) return 0;

  const long state = sched_state(prev);
  struct sched_left now = {
      .started = prev->start_time,
      .at = bpf_ktime_get_ns(),
      .run_delay = prev->sched_info.run_delay,
      .executed = prev->se.sum_exec_runtime,
  };
  /* A task that is preempted on its way to sleep is still queued. */
  if (!preempt && state != 0)
    now.reason = BPF_CORE_READ_BITFIELD(prev, in_iowait) ? BLOCKED_IO : BLOCKED_OTHER;

  struct sched_left* last = bpf_map_lookup_elem(&sched_tasks, &pid);
  if (last && last->started == now.started) {
    /* Interrupts are off at a switch: nobody else adds to this processor's slot. */
    const __u64 queued = now.run_delay - last->run_delay;
    to->run_delay_ns += queued;
    const __u64 passed = now.at - last->at;
    const __u64 accounted = queued + (now.executed - last->executed);
    if (passed > accounted) {
      if (last->reason == BLOCKED_IO) to->offcpu_io_ns += passed - accounted;
      if (last->reason == BLOCKED_OTHER) to->offcpu_other_ns += passed - accounted;
    }
    if (state & TASK_DEAD) {
      bpf_map_delete_elem(&sched_tasks, &pid);
    } else {
      *last = now;
    }
    return 0;
  }
  /* Of a task that is older than the watching, the past does not count. */
  if (now.started >= job.since) to->run_delay_ns += now.run_delay;
  if (!(state & TASK_DEAD)) bpf_map_update_elem(&sched_tasks, &pid, &now, BPF_ANY);
  return 0;
}
