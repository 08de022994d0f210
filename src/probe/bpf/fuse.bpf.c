/* Requests to file systems in user space (FUSE), from their sending to their answer. */
#include "kernel.bpf.h"

SUMS(fuse)
BEGINNINGS(fuse, 8192)

SEC("tp_btf/fuse_request_send")
int BPF_PROG(fuse_on_send, void* request) {
  fuse_begin((__u64)request);
  return 0;
}

SEC("tp_btf/fuse_request_end")
int BPF_PROG(fuse_on_answer, void* request) {
  const __u64 ns = fuse_end((__u64)request);
  struct bpf_fuse_sums* to = fuse_slot();
  if (!to || ns == 0) return 0;
  ADD(to->requests, 1);
  ADD(to->ns, ns);
  return 0;
}
