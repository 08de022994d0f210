// How long work says how far it is, and is told to stop.
//
//   Watch watch{.show = draw, .stop = [&] { return signals.came() != 0; }};
//   Progress progress(watch, "packing", samples);
//   progress.add(64, bytes);       // after each piece of work; throws when it is to stop
//
// Thread-safe. `show` is called by one thread at a time, at most ten times a second and once at the
// end of each phase.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string_view>

#include "base/clock.h"

namespace bedplate::data {

struct ProgressView {
  std::string_view phase;  // "packing"
  std::int64_t done = 0;   // of `of`
  std::int64_t of = 0;     // 0: nobody knows
  std::string_view unit;   // "samples"; empty: only the share means something
  std::int64_t bytes = 0;  // that went through
  Nanos elapsed = 0;       // in this phase
};

struct Watch {
  std::function<void(const ProgressView&)> show = {};
  std::function<bool()> stop = {};  // true: stop as soon as possible; from any thread

  bool stopped() const { return stop && stop(); }
};

class Progress {
 public:
  Progress(const Watch& watch, std::string_view phase, std::string_view unit, std::int64_t of = 0);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { show(); }

  // Error{kUnavailable} when the work is to stop; whoever started it knows why by Watch::stopped().
  void add(std::int64_t done, std::int64_t bytes);

 private:
  void show();

  const Watch& watch_;
  const std::string_view phase_;
  const std::string_view unit_;
  const std::int64_t of_;
  const Nanos begin_;
  std::atomic<std::int64_t> done_ = 0;
  std::atomic<std::int64_t> bytes_ = 0;
  std::mutex mutex_;  // of showing
  std::atomic<Nanos> shown_ = 0;
};

}  // namespace bedplate::data
