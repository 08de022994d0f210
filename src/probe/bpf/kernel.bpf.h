/* The part of the kernel that the programs read, and who belongs to the job.
 *
 * Structures hold only the fields that are used; their true offsets come from the running kernel's BTF when a program is
 * loaded (CO-RE), so the order and size here mean nothing. A field that moved or was renamed is asked for by
 * bpf_core_field_exists(); "___old" is dropped from a type's name before it is looked up.
 *
 * The programs read arguments of BTF tracepoints directly: no kprobe, no fentry, which hardened kernels refuse. */
#ifndef BEDPLATE_PROBE_BPF_KERNEL_BPF_H
#define BEDPLATE_PROBE_BPF_KERNEL_BPF_H

#include <stdbool.h>

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "shared.h"

/* What the kernel must hear to let a program use its helpers; the rest of Bedplate is Apache-2.0. */
char LICENSE[] SEC("license") = "Dual BSD/GPL";

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct signal_live {
  int counter;
};
struct signal_struct {
  struct signal_live live;
  unsigned int flags;
  int group_exit_code;
};
struct sched_entity {
  unsigned long long sum_exec_runtime;
};
struct sched_info {
  unsigned long long run_delay;
};
struct task_struct {
  int pid;
  int tgid;
  unsigned int __state;
  unsigned int in_iowait : 1;
  int exit_code;
  unsigned long long start_time;
  struct sched_entity se;
  struct sched_info sched_info;
  struct signal_struct* signal;
  struct task_struct* group_leader;
  char comm[16];
};
struct task_struct___old { /* Linux 5.13 and older */
  long state;
};

struct gendisk {
  int major;
  int first_minor;
};
struct request_queue {
  struct gendisk* disk; /* Linux 5.15 and newer */
};
struct request {
  struct request_queue* q;
  unsigned int __data_len;
};
struct request___old {
  struct gendisk* rq_disk;
};

struct kernfs_node {
  unsigned long long id;
};
struct cgroup {
  int level;
  struct kernfs_node* kn;
  struct cgroup* ancestors[16];
};
struct cgroup___old { /* Linux 6.0 and older */
  unsigned long long ancestor_ids[16];
};
struct sock_cgroup_data {
  struct cgroup* cgroup;
};
struct sock {
  struct sock_cgroup_data sk_cgrp_data;
};

#pragma clang attribute pop

const volatile struct bpf_job job SEC(".rodata.job") = {};

/* Process numbers of the job, where it has no group of its own; kept up to date once a tick. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 4096);
  __type(key, __u32);
  __type(value, __u8);
} job_processes SEC(".maps");

#define MOST_LEVELS 16

/* The current process's number as the reader of our maps knows processes; 0 when it cannot see this one. */
static __always_inline __u32 current_process(void) {
  if (job.pid_ns_ino == 0) return bpf_get_current_pid_tgid() >> 32;
  struct bpf_pidns_info info = {};
  if (bpf_get_ns_current_pid_tgid(job.pid_ns_dev, job.pid_ns_ino, &info, sizeof(info)) != 0) return 0;
  return info.tgid;
}

/* Does the current task belong to the job? Groups below the job's own belong to it. */
static __always_inline bool in_job(void) {
  if (job.cgroup != 0) {
    if (job.level >= 0) return bpf_get_current_ancestor_cgroup_id(job.level) == job.cgroup;
    for (int level = 0; level < MOST_LEVELS; ++level) {
      if (bpf_get_current_ancestor_cgroup_id(level) == job.cgroup) return true;
    }
    return false;
  }
  const __u32 process = current_process();
  return bpf_map_lookup_elem(&job_processes, &process) != NULL;
}

/* One slot of sums for each processor: the reader adds them up. The map is NAME_sums, its value struct bpf_NAME_sums. */
#define SUMS(name)                                                      \
  struct {                                                              \
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);                            \
    __uint(max_entries, 1);                                             \
    __type(key, __u32);                                                 \
    __type(value, struct bpf_##name##_sums);                            \
  } name##_sums SEC(".maps");                                           \
  static __always_inline struct bpf_##name##_sums* name##_slot(void) {  \
    const __u32 zero = 0;                                               \
    return bpf_map_lookup_elem(&name##_sums, &zero);                    \
  }

/* A per-processor slot may be entered again by an interrupt between load and store. */
#define ADD(where, what) __sync_fetch_and_add(&(where), (what))

/* When something began, by task or by object: NAME_begin(key), and NAME_end(key) says how long it lasted, 0 when its
 * beginning was not seen. Room is taken when the map is made: these programs run where the kernel must not allocate. What
 * does not fit is not counted. */
#define BEGINNINGS(name, entries)                                   \
  struct {                                                          \
    __uint(type, BPF_MAP_TYPE_HASH);                                \
    __uint(max_entries, entries);                                   \
    __type(key, __u64);                                             \
    __type(value, __u64);                                           \
  } name##_begun SEC(".maps");                                      \
  static __always_inline void name##_begin(__u64 key) {             \
    const __u64 now = bpf_ktime_get_ns();                           \
    bpf_map_update_elem(&name##_begun, &key, &now, BPF_ANY);        \
  }                                                                 \
  static __always_inline __u64 name##_end(__u64 key) {              \
    const __u64* at = bpf_map_lookup_elem(&name##_begun, &key);     \
    if (!at) return 0;                                              \
    const __u64 ns = bpf_ktime_get_ns() - *at;                      \
    bpf_map_delete_elem(&name##_begun, &key);                       \
    return ns;                                                      \
  }

#endif
