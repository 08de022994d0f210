// Who had the processors: what several CPU rules and the verdict ask of a run.
#pragma once

#include <optional>
#include <vector>

#include "doctor/run_view.h"

namespace bedplate::doctor {

std::optional<double> host_cpus(const RunView& run);  // processors online
std::optional<double> host_idle(const RunView& run,
                                Window w);  // idle share of all processors, iowait included
std::optional<double> job_cpus(const RunView& run,
                               Window w);  // processors' worth of time that the job used
std::optional<double> outside_cpus(const RunView& run, Window w);  // … that others used
std::optional<double> stolen(
    const RunView& run, Window w);  // share of all processors that the hypervisor gave to others

// Processors that the ranks and workers may run on, taken together and ascending; nullopt when not
// recorded.
std::optional<std::vector<int>> allowed_cpus(const RunView& run);

// The CPU quota of the tightest group, in processors; nullopt when there is none or it was not
// seen.
std::optional<double> quota_cpus(const RunView& run);

// How many processors the job can keep busy at most: online, allowed, quota. nullopt when nothing
// is known.
std::optional<double> usable_cpus(const RunView& run);

// The share of time during which the job stood still in throttled periods. cpu.stat adds the
// throttled time up over processors, so it bounds the standstill from above; so does what the job
// could have used more, 1 - used/online: after the quota is gone a step needs at least its CPU time
// divided by the processors. The smaller bound is taken.
Timeline throttled(const RunView& run);

// Threads of a rank that used or wanted at least a quarter of a processor during the window.
int busy_threads(const RunView& run, const RankView& rank);

// Runnable but not running, throttled periods taken out. For the rank itself the union of its
// threads' delays, since a parallel region waits for its last thread; for input the wait, as far as
// the workers were delayed.
LostTime waiting_for_cpu(const RunView& run);
LostTime ranks_waiting_for_cpu(const RunView& run);  // without the part that is input wait

// Delay divided by running, over all threads of ranks and workers, throttled time taken out;
// nullopt when not recorded.
std::optional<double> delay_ratio(const RunView& run);

}  // namespace bedplate::doctor
