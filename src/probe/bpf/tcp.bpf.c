/* TCP segments sent again: of the machine, and of sockets that the job's group made. They are sent
 * by timers, so the current task says nothing; the socket remembers the group of its maker. */
#include "kernel.bpf.h"

SUMS(tcp)

static __always_inline bool tcp_job_made(struct sock* socket) {
  if (job.cgroup == 0 || !bpf_core_field_exists(socket->sk_cgrp_data.cgroup)) return false;
  struct cgroup* group = socket->sk_cgrp_data.cgroup;
  if (!group) return false;
  const int depth = group->level;
  for (int level = 0; level < MOST_LEVELS; ++level) {
    if (level > depth) return false;
    if (job.level >= 0 && level != job.level) continue;
    __u64 id = 0;
    if (bpf_core_field_exists(group->ancestors)) {
      struct cgroup* ancestor = NULL;
      struct kernfs_node* node = NULL;
      bpf_probe_read_kernel(&ancestor, sizeof(ancestor), &group->ancestors[level]);
      bpf_core_read(&node, sizeof(node), &ancestor->kn);
      bpf_core_read(&id, sizeof(id), &node->id);
    } else {
      bpf_probe_read_kernel(&id, sizeof(id), &((struct cgroup___old*)group)->ancestor_ids[level]);
    }
    if (id == job.cgroup) return true;
  }
  return false;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(tcp_on_retransmit, struct sock* socket) {
  struct bpf_tcp_sums* to = tcp_slot();
  if (!to) return 0;
  ADD(to->host, 1);
  if (tcp_job_made(socket)) ADD(to->job, 1);
  return 0;
}
