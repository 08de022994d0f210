/* All programs as one object: the kernel's description of itself, 5 MB, is then read once and not
 * eight times. A program and its maps begin with the name of their signal; what a kernel refuses is
 * left out by that name, and costs that signal alone (probe/internal/bpf_signal.cc). Names that end
 * in "_optional" may be missing without costing their signal. */
#include "block.bpf.c"
#include "dirty.bpf.c"
#include "exit.bpf.c"
#include "fuse.bpf.c"
#include "journal.bpf.c"
#include "reclaim.bpf.c"
#include "sched.bpf.c"
#include "tcp.bpf.c"
