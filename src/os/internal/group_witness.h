// A process that stands where the job stands and tells which signals reached it.
//
// A signal may come to `bedplate run` alone (kill PID) or to everything around it at once: Ctrl-C
// in the terminal, kill -- -GROUP, timeout(1), a service manager that ends a whole cgroup. Only the
// first kind may be forwarded, or the job would get it twice; and the signal itself does not tell
// (SI_USER is both). The witness is in the same process group, session and job cgroup: what reached
// it as well has reached the job.
//
// It does nothing but sleep, holds no file of the job but the terminal on stderr, and ends with its
// maker whatever ends that. If that was a SIGKILL, it puts the terminal right first: last_words().
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <string_view>

#include "base/units.h"
#include "os/unique_fd.h"

namespace bedplate::os {

class GroupWitness {
 public:
  // `first` runs in the new process (to enter the job's cgroup). When no process can be had, there
  // is no witness and seen() answers nullopt. Not thread-safe.
  explicit GroupWitness(const std::function<void()>& first);
  GroupWitness(const GroupWitness&) = delete;
  GroupWitness& operator=(const GroupWitness&) = delete;
  ~GroupWitness();

  pid_t pid() const { return pid_; }  // 0: none

  // The signals that reached it at `since` (of CLOCK_MONOTONIC) or later and were not told before;
  // nullopt when it does not answer within 200 ms (it was killed, or stopped alone).
  std::optional<sigset_t> seen(Nanos since);

  // What to write to the terminal on stderr should the maker be killed; at most 200 bytes, "" for
  // nothing. Without a terminal there it is not written.
  void last_words(std::string_view text) const;

 private:
  pid_t pid_ = 0;
  UniqueFd line_;
};

}  // namespace bedplate::os
