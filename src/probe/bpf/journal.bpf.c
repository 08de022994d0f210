/* Commits of ext4's journals (jbd2): whoever calls fsync() waits for one. One kernel thread a
 * journal begins and ends them. */
#include "kernel.bpf.h"

SUMS(journal)
BEGINNINGS(journal, 256)

SEC("tp_btf/jbd2_start_commit")
int BPF_PROG(journal_on_start) {
  journal_begin(bpf_get_current_pid_tgid());
  return 0;
}

SEC("tp_btf/jbd2_end_commit")
int BPF_PROG(journal_on_end) {
  const __u64 ns = journal_end(bpf_get_current_pid_tgid());
  struct bpf_journal_sums* to = journal_slot();
  if (!to || ns == 0) return 0;
  ADD(to->commits, 1);
  ADD(to->ns, ns);
  return 0;
}
