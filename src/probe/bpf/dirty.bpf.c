/* How long the job's writers were made to sleep because too much of the page cache was dirty. The
 * kernel says at the tracepoint for how many jiffies it is about to put the task to sleep; 0 or
 * less when it lets it go on. */
#include "kernel.bpf.h"

SUMS(dirty)

/* 12 arguments until Linux 6.15, then 8; the pause is the last but one. The first is the kernel's
 * own. */
struct bdi_writeback;
typedef void (*btf_trace_balance_dirty_pages___old)(void*, struct bdi_writeback*, unsigned long,
                                                    unsigned long, unsigned long, unsigned long,
                                                    unsigned long, unsigned long, unsigned long,
                                                    unsigned long, unsigned long, long,
                                                    unsigned long);

SEC("tp_btf/balance_dirty_pages")
int dirty_on_balance(unsigned long long* arguments) {
  long long pause;
  /* Decided when the program is loaded: only the branch of this kernel is verified. */
  if (bpf_core_type_exists(btf_trace_balance_dirty_pages___old)) {
    pause = (long long)arguments[10];
    barrier_var(
        pause); /* keeps the two loads apart: the verifier wants the offset in the instruction */
  } else {
    pause = (long long)arguments[6];
  }
  if (pause <= 0 || !in_job()) return 0;
  struct bpf_dirty_sums* to = dirty_slot();
  if (!to) return 0;
  ADD(to->pause_jiffies, pause);
  ADD(to->pauses, 1);
  return 0;
}
