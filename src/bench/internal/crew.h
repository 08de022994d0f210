// Threads that do the same thing at the same time, each call of it timed.
//
//   const Figures figures = measure({.threads = 8, .what = "create"}, [&](int thread) {
//     return create_next(thread) ? 1 : 0;
//   });
//
// All begin together. The calling thread waits, shows progress and looks whether it is to stop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/units.h"
#include "bench/figures.h"

namespace bedplate::bench {

struct CrewOptions {
  int threads = 1;
  std::string what = {};  // begins messages: "create in /data"
  Nanos enough = 0;       // ends after this; 0: when all calls are done
  Nanos longest = 0;      // Error{kTimeout} after this; 0: `enough` and a minute
  const Watch* watch = nullptr;
  double begun = 0;  // share of the whole that is done before this, and after it
  double done = 0;
};

// `act(thread)` does one piece and says how much that was; 0: nothing is left for this thread.
// Throws what `act` throws first, when all threads have ended; Error{kUnavailable} when the watch
// says stop; std::system_error when there are no more threads.
Figures measure(const CrewOptions& options, const std::function<std::int64_t(int thread)>& act);

}  // namespace bedplate::bench
