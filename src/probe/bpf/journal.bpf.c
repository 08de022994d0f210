/* Commits of ext4's journals (jbd2): whoever calls fsync() waits for one. One kernel thread a journal begins and ends them. */
#include "kernel.bpf.h"

SUMS(bpf_span_sums)
BEGINNINGS(256)

SEC("tp_btf/jbd2_start_commit")
int BPF_PROG(on_start) {
  begin(bpf_get_current_pid_tgid());
  return 0;
}

SEC("tp_btf/jbd2_end_commit")
int BPF_PROG(on_end) {
  const __u64 ns = end(bpf_get_current_pid_tgid());
  struct bpf_span_sums* to = my_sums();
  if (!to || ns == 0) return 0;
  ADD(to->spans, 1);
  ADD(to->ns, ns);
  return 0;
}
