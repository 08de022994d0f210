/* How the job's processes ended: exit code or signal, also of those that their parents never wait
 * for. */
#include "kernel.bpf.h"

#define SIGNAL_GROUP_EXIT 0x4

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 256 * 1024);
} exit_records SEC(".maps");

SEC("tp_btf/sched_process_exit")
int BPF_PROG(exit_on_exit, struct task_struct* task) {
  /* Once a process, when its last thread ends. */
  if (task->signal->live.counter != 0 || !in_job()) return 0;
  struct bpf_exit* record = bpf_ringbuf_reserve(&exit_records, sizeof(*record), 0);
  if (!record) return 0;
  record->pid = current_process();
  record->code = task->signal->flags & SIGNAL_GROUP_EXIT ? task->signal->group_exit_code
                                                         : task->group_leader->exit_code;
  bpf_get_current_comm(record->comm, sizeof(record->comm));
  bpf_ringbuf_submit(record, 0);
  return 0;
}
