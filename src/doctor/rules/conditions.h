// Conditions that several rules put on "this is a consequence of that".
#pragma once

#include "doctor/input_facts.h"
#include "doctor/run_view.h"

namespace bedplate::doctor {

// The root could give back at least half of what the consequence costs: without it the consequence
// would mostly vanish.
inline bool mostly_explains(const RunView&, const Finding& consequence, const Finding& root) {
  return root.gain_ceiling >= 0.5 * consequence.gain_ceiling;
}

// Input is late because the workers that there are cannot read as fast as they would: not when
// there are no workers, where the training process itself does the reading and its absence is a
// cause of its own, unless reading is most of the work.
inline bool explains_slow_input(const RunView& run, const Finding& consequence,
                                const Finding& root) {
  if (!mostly_explains(run, consequence, root)) return false;
  const Fetches fetch = all_fetches(run);
  return worker_count(run) > 0 || fetch.share(fetch.blocked_ns() + fetch.system_ns) >= 0.5;
}

}  // namespace bedplate::doctor
