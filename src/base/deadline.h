// The moment at which a wait ends whether or not what it waited for came.
//
//   const Deadline deadline = Deadline::after(30 * kSecond);
//   while (!ready()) {
//     if (deadline.passed()) throw Error(Code::kTimeout, "…");
//     condition.wait_for(lock, deadline.left());
//   }
//
// A value; copies share nothing but the clock, which must outlive them.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace bedplate {

class Deadline {
 public:
  static Deadline after(Nanos length, const Clock& clock = real_clock()) {
    return Deadline(clock.now() + std::min(length, kLongest), clock);
  }

  Nanos left() const { return std::max<Nanos>(0, at_ - clock_->now()); }
  bool passed() const { return left() == 0; }
  // The earlier of this one and `length` from now: a part of a longer operation.
  Deadline within(Nanos length) const { return after(std::min(length, left()), *clock_); }

 private:
  static constexpr Nanos kLongest = 100L * 365 * 24 * 3600 * kSecond;  // so that now + it fits

  Deadline(Nanos at, const Clock& clock) : at_(at), clock_(&clock) {}

  Nanos at_;
  const Clock* clock_;
};

}  // namespace bedplate
