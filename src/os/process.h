// Starting a program as a child, with everything it inherits as if this process were not there.
//
//   const auto signals = InheritedSignals::of_this_process();   // before any is changed
//   ...
//   auto started = spawn({.arguments = {"python", "train.py"}, .signals = signals});
//   if (auto* failure = std::get_if<ExecFailure>(&started)) return failure->exit_code;
//   Child& child = std::get<Child>(started);
//
// The child keeps this process's group, session, terminal, working folder, limits, priorities and
// every descriptor that is not close-on-exec. The search in PATH, the fallback to /bin/sh for a
// script without "#!", and the exit codes 126 and 127 are those of a shell.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "os/host_root.h"
#include "os/unique_fd.h"

namespace bedplate::os {

// Signal mask and ignored signals: what exec hands on.
struct InheritedSignals {
  sigset_t mask;
  std::array<bool, NSIG> ignored{};

  static InheritedSignals of_this_process();
};

struct SpawnRequest {
  std::vector<std::string> arguments;  // [0] is looked up in PATH
  std::optional<std::vector<std::string>> environment =
      {};                    // "NAME=value"; default: this process's
  InheritedSignals signals;  // the program starts with these
  // Runs in the child between fork and exec: only async-signal-safe calls, no allocation.
  std::function<void()> in_child = {};
};

// Why a program could not be started, for people, and what a shell would answer.
struct ExecFailure {
  int error_number;
  int exit_code;     // 127: no such command, 126: it is there but cannot be executed
  std::string text;  // "train.sh: not executable; chmod +x train.sh"
};

struct Ended {
  int wait_status;  // as of waitpid()
  rusage use;       // of the child and those of its children that it waited for

  int exit_code() const;  // of a shell: 128 + signal when killed
  std::optional<int> signal() const;
};

// A running child; it is not ended by destroying this.
class Child {
 public:
  Child(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid() const { return pid_; }
  // Readable once the child has ended; -1 on kernels and sandboxes without pidfds (SIGCHLD must
  // do).
  int pidfd() const { return pidfd_.get(); }
  // As `host`'s /proc numbers it: differs from pid() after unshare(CLONE_NEWPID) without a new
  // /proc.
  pid_t proc_pid(const HostRoot& host) const;

  bool send(int signal) const;                   // false: it has ended
  bool forward(int signal, sigval value) const;  // the same as sigqueue()
  std::optional<Ended> try_wait();               // reaps; nullopt: still running
  std::optional<int> stopped_by();               // a stop since the last call: the stopping signal

 private:
  pid_t pid_;
  UniqueFd pidfd_;
};

// Throws Error when not even a process can be had (limits, memory) or `arguments` is empty.
std::variant<Child, ExecFailure> spawn(const SpawnRequest& request);

// Opens /dev/null, close-on-exec, on each of the descriptors 0, 1, 2 that is closed, so that no
// file of this process gets such a number and the job finds them closed all the same. Call first in
// main.
void guard_standard_descriptors();

}  // namespace bedplate::os
