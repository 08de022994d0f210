// Stands between a job and whoever started it without being felt by either.
//
//   Supervisor supervisor;                             // before any thread is started
//   auto failure = supervisor.start({.arguments = job, .environment = …});
//   const Ended ended = supervisor.wait(…);            // until the job's first process has ended
//
// Signals. Those that reach this process alone (kill PID, a container's stop, a launcher's USR1) go
// on to the job once; those that reached the job as well (Ctrl-C, kill -- -GROUP, a whole cgroup)
// are not repeated. SIGKILL cannot be seen: the job then lives on as a shell's child would.
// Job control. When the job is stopped by the terminal, or by a signal that came to this process
// too, this process stops as well, so that the shell takes over; `fg` and `bg` continue both.
// Descriptors. Once the job runs, 0 and 1 of this process lead to /dev/null: pipes belong to the
// job alone, and their other ends see it close them. Daemons that the job leaves behind are not
// waited for and are not adopted.
//
// Threads: one Supervisor a process, used by the main thread. Threads started after its constructor
// inherit blocked signals and never get one. Throws Error when the kernel gives no signalfd, epoll
// or process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "os/process.h"

namespace bedplate::os {

struct StartRequest {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // "NAME=value", all of it
  std::function<void()> enter = {};      // in each new process: async-signal-safe, no allocation
  bool keep_stdout = false;              // leave descriptor 1 as it is
};

struct WaitOptions {
  std::function<void()> tick = {};  // called while the job runs, must not block for long
  Nanos tick_every = kSecond / 2;
  std::function<void()> before_stop = {};  // the terminal stopped the job, and now us
  std::function<void()> after_stop = {};   // running again
};

class Supervisor {
 public:
  // Blocks all signals but those of faults in this thread.
  Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor();  // takes the signals' state back

  // nullopt: it runs. May be called again after a failure.
  std::optional<ExecFailure> start(const StartRequest& request);

  const Child& child() const;
  pid_t witness() const;  // a helper process beside the job, 0: none; no part of the job

  Ended wait(const WaitOptions& options);

  // What the terminal on stderr must be told should this process be killed by SIGKILL, to take back
  // what was drawn there; at most 200 bytes, "" for nothing.
  void last_words(std::string_view text);

  // A SIGINT came from the terminal while the job ran.
  bool interrupted() const;

  // From here on SIGINT, SIGTERM, SIGQUIT and SIGHUP end this process at once with `exit_code`,
  // after writing `last_words` to stderr; in the first second they are ignored, for they were meant
  // for the job. Call when wait() has returned.
  void let_signals_end_us(int exit_code, std::string_view last_words);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Ends this process as the job ended: with its exit code, 128 + signal when it was killed. When the
// user's Ctrl-C ended it, by SIGINT itself, so that a shell script around it stops as well.
[[noreturn]] void end_as(const Ended& ended, bool interrupted);

}  // namespace bedplate::os
