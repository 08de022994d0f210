/* What the BPF programs and their reader in probe/internal agree on. Plain C: clang -target bpf and g++ both read it. */
#ifndef BEDPLATE_PROBE_BPF_SHARED_H
#define BEDPLATE_PROBE_BPF_SHARED_H

/* Who belongs to the job. Written once before a program is loaded, so that the verifier drops the branches not taken. */
struct bpf_job {
  unsigned long long cgroup;     /* id of the job's own v2 group; 0: there is none, the map job_processes tells */
  long long level;               /* its depth in the tree; -1: not known, every level is looked at */
  unsigned long long pid_ns_dev; /* the PID namespace that process numbers are of; 0: the first one */
  unsigned long long pid_ns_ino;
  unsigned long long since; /* CLOCK_MONOTONIC at the beginning of the watching */
};

/* bpf.sched */
struct bpf_sched_sums {
  unsigned long long run_delay_ns;
  unsigned long long offcpu_io_ns;
  unsigned long long offcpu_other_ns;
};

/* bpf.block, for each device and for the job; max_ns holds within one tick */
struct bpf_block_sums {
  unsigned long long requests;
  unsigned long long latency_ns;
  unsigned long long tick;
  unsigned long long max_ns;
};

/* bpf.reclaim */
struct bpf_reclaim_sums {
  unsigned long long direct_ns;
  unsigned long long directs;
  unsigned long long memcg_ns;
  unsigned long long memcgs;
};

/* bpf.dirty */
struct bpf_dirty_sums {
  unsigned long long pause_jiffies;
  unsigned long long pauses;
};

/* bpf.journal */
struct bpf_journal_sums {
  unsigned long long commits;
  unsigned long long ns;
};

/* bpf.fuse */
struct bpf_fuse_sums {
  unsigned long long requests;
  unsigned long long ns;
};

/* bpf.tcp */
struct bpf_tcp_sums {
  unsigned long long host;
  unsigned long long job;
};

/* bpf.exit */
struct bpf_exit {
  unsigned int pid;
  int code; /* as of waitpid() */
  char comm[16];
};

#endif
