// Ctrl-C as a wish that is heard between two pieces of work, so that what was made is removed.
//
//   StopSignals signals;
//   measure({…, .watch = {.stopped = [&] { return signals.came() != 0; }}});
//   …
//   signals.end_as_asked();      // if one came: ends the process by that very signal
//
// SIGINT, SIGTERM and SIGHUP, but for those that were ignored when this was made (nohup). One
// object a process.
#pragma once

#include <signal.h>

#include <array>

namespace bedplate::os {

class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();  // the handlers are what they were

  int came() const;  // 0: none
  void end_as_asked();

 private:
  struct Old {
    int signal = 0;
    struct sigaction action {};
  };
  std::array<Old, 3> old_;
};

}  // namespace bedplate::os
