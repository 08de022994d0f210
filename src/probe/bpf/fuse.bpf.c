/* Requests to file systems in user space (FUSE), from their sending to their answer. */
#include "kernel.bpf.h"

SUMS(bpf_span_sums)
BEGINNINGS(8192)

SEC("tp_btf/fuse_request_send")
int BPF_PROG(on_send, void* request) {
  begin((__u64)request);
  return 0;
}

SEC("tp_btf/fuse_request_end")
int BPF_PROG(on_answer, void* request) {
  const __u64 ns = end((__u64)request);
  struct bpf_span_sums* to = my_sums();
  if (!to || ns == 0) return 0;
  ADD(to->spans, 1);
  ADD(to->ns, ns);
  return 0;
}
