#include "base/clock.h"

#include <ctime>

namespace bedplate {
namespace {

Nanos read_clock(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return t.tv_sec * kSecond + t.tv_nsec;
}

class RealClock final : public Clock {
 public:
  Nanos now() const override { return read_clock(CLOCK_MONOTONIC); }
  Nanos wall_now() const override { return read_clock(CLOCK_REALTIME); }
};

}  // namespace

const Clock& real_clock() {
  static const RealClock clock;
  return clock;
}

}  // namespace bedplate
