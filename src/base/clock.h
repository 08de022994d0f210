// Where time comes from, so that a day of samples can be tested in milliseconds.
#pragma once

#include "base/units.h"

namespace bedplate {

class Clock {
 public:
  virtual ~Clock() = default;
  // CLOCK_MONOTONIC.
  virtual Nanos now() const = 0;
  // CLOCK_REALTIME, nanoseconds since 1970: for people, never for lengths.
  virtual Nanos wall_now() const = 0;
};

// The machine's clocks. Thread-safe.
const Clock& real_clock();

// A clock that stands still until it is told to move. Not thread-safe.
class VirtualClock : public Clock {
 public:
  explicit VirtualClock(Nanos start = 0, Nanos wall_start = 0) : now_(start), wall_(wall_start) {}
  Nanos now() const override { return now_; }
  Nanos wall_now() const override { return wall_; }
  void advance(Nanos by) {
    now_ += by;
    wall_ += by;
  }
  void step_wall(Nanos by) { wall_ += by; }

 private:
  Nanos now_;
  Nanos wall_;
};

}  // namespace bedplate
