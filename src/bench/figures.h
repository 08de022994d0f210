// What was measured: how often, how much, how fast.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/units.h"

namespace bedplate::bench {

struct Figures {
  std::int64_t calls = 0;
  std::int64_t amount = 0;  // bytes, files or entries
  Nanos length = 0;         // from the common begin to the last one's end
  // Of single calls; 0 where there were none.
  Nanos median = 0;
  Nanos p99 = 0;
  Nanos longest = 0;

  double calls_per_second() const { return per_second(static_cast<double>(calls)); }
  double amount_per_second() const { return per_second(static_cast<double>(amount)); }

 private:
  double per_second(double n) const { return length > 0 ? n / seconds(length) : 0; }
};

// How a measurement speaks with whoever asked for it. Called by the thread that measures.
struct Watch {
  std::function<bool()> stopped = [] { return false; };  // true: clean up and end
  // What goes on, and the share of the whole that is done.
  std::function<void(std::string_view phase, double share)> progress = [](std::string_view,
                                                                          double) {};
};

}  // namespace bedplate::bench
