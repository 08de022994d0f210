/* How long the job's tasks had to free memory themselves before they got some: for the whole
 * machine (direct reclaim), and for a control group at its limit. */
#include "kernel.bpf.h"

SUMS(reclaim)
BEGINNINGS(reclaim, 8192)

SEC("tp_btf/mm_vmscan_direct_reclaim_begin")
int BPF_PROG(reclaim_on_direct_begin) {
  if (in_job()) reclaim_begin(bpf_get_current_pid_tgid());
  return 0;
}

SEC("tp_btf/mm_vmscan_direct_reclaim_end")
int BPF_PROG(reclaim_on_direct_end) {
  const __u64 ns = reclaim_end(bpf_get_current_pid_tgid());
  struct bpf_reclaim_sums* to = reclaim_slot();
  if (!to || ns == 0) return 0;
  ADD(to->direct_ns, ns);
  ADD(to->directs, 1);
  return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_begin")
int BPF_PROG(reclaim_memcg_begin_optional) {
  if (in_job()) reclaim_begin(bpf_get_current_pid_tgid());
  return 0;
}

SEC("tp_btf/mm_vmscan_memcg_reclaim_end")
int BPF_PROG(reclaim_memcg_end_optional) {
  const __u64 ns = reclaim_end(bpf_get_current_pid_tgid());
  struct bpf_reclaim_sums* to = reclaim_slot();
  if (!to || ns == 0) return 0;
  ADD(to->memcg_ns, ns);
  ADD(to->memcgs, 1);
  return 0;
}
