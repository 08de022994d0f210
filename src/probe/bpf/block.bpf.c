/* Latency of block requests from issue to completion, by device, and of those that the job's own
 * tasks issued. What the kernel writes back later is issued by its own workers: it counts for the
 * device only. */
#include "kernel.bpf.h"

struct block_issued {
  __u64 at;
  __u64 by_job;
};

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 16384);
  __type(key, __u64);
  __type(value, struct block_issued);
} block_requests SEC(".maps");

/* By device number, major << 20 | minor; the job's own under BLOCK_JOB_KEY. */
#define BLOCK_JOB_KEY 0xffffffffu
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
  __uint(max_entries, 128);
  __type(key, __u32);
  __type(value, struct bpf_block_sums);
} block_devices SEC(".maps");

/* The reader's tick, so that a maximum is one of the last tick. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} block_tick SEC(".maps");

static __always_inline __u32 block_device(struct request* request) {
  struct gendisk* disk;
  if (bpf_core_field_exists(request->q->disk)) {
    disk = request->q->disk;
  } else {
    disk = ((struct request___old*)request)->rq_disk;
  }
  if (!disk) return 0;
  return (__u32)disk->major << 20 | (__u32)disk->first_minor;
}

static __always_inline void block_add(__u32 key, __u64 ns) {
  const __u32 zero = 0;
  const __u64* now = bpf_map_lookup_elem(&block_tick, &zero);
  if (!now) return;
  struct bpf_block_sums* to = bpf_map_lookup_elem(&block_devices, &key);
  if (!to) {
    const struct bpf_block_sums none = {};
    bpf_map_update_elem(&block_devices, &key, &none, BPF_NOEXIST);
    to = bpf_map_lookup_elem(&block_devices, &key);
    if (!to) return;
  }
  ADD(to->requests, 1);
  ADD(to->latency_ns, ns);
  if (to->tick != *now) {
    to->tick = *now;
    to->max_ns = 0;
  }
  if (ns > to->max_ns) to->max_ns = ns;
}

/* The queue came first until Linux 5.10. */
typedef void (*btf_trace_block_rq_issue___old)(void*, struct request_queue*, struct request*);

/* Decided when the program is loaded: only the branch of this kernel is verified. */
static __always_inline __u64 block_request(unsigned long long* arguments) {
  __u64 key;
  if (bpf_core_type_exists(btf_trace_block_rq_issue___old)) {
    key = arguments[1];
    barrier_var(
        key); /* keeps the two loads apart: the verifier wants the offset in the instruction */
  } else {
    key = arguments[0];
  }
  return key;
}

/* A request goes to the IO scheduler in its maker's context; on a busy device a kernel worker
 * issues it later. */
SEC("tp_btf/block_rq_insert")
int block_on_insert(unsigned long long* arguments) {
  const __u64 key = block_request(arguments);
  if (in_job()) {
    const struct block_issued waiting = {.at = 0, .by_job = 1};
    bpf_map_update_elem(&block_requests, &key, &waiting, BPF_ANY);
    return 0;
  }
  /* One that was never issued was merged into another, and its memory is used again. */
  const struct block_issued* known = bpf_map_lookup_elem(&block_requests, &key);
  if (known && known->at == 0) bpf_map_delete_elem(&block_requests, &key);
  return 0;
}

SEC("tp_btf/block_rq_issue")
int block_on_issue(unsigned long long* arguments) {
  const __u64 key = block_request(arguments);
  struct block_issued* known = bpf_map_lookup_elem(&block_requests, &key);
  if (known) {
    /* Inserted before, or issued again because the device had no room: its maker stays the same. */
    known->at = bpf_ktime_get_ns();
    return 0;
  }
  const struct block_issued now = {.at = bpf_ktime_get_ns(), .by_job = in_job()};
  bpf_map_update_elem(&block_requests, &key, &now, BPF_ANY);
  return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_on_complete, struct request* request, int error, unsigned int bytes) {
  const __u64 key = (__u64)request;
  const struct block_issued* found = bpf_map_lookup_elem(&block_requests, &key);
  if (!found) return 0;
  if (bytes < request->__data_len) return 0; /* a part of it; the rest goes on */
  const struct block_issued issued = *found;
  bpf_map_delete_elem(&block_requests, &key);
  if (issued.at == 0) return 0;
  const __u64 ns = bpf_ktime_get_ns() - issued.at;
  const __u32 device = block_device(request);
  if (device != 0) block_add(device, ns);
  if (issued.by_job) block_add(BLOCK_JOB_KEY, ns);
  return 0;
}
