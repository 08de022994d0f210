// A child of Bedplate's own that does what may block for ever: the vendor library of a dying GPU,
// statvfs() on a dead mount.
//
//   HelperProcess helper("bedplate-nvml", [](int socket) { … ::recv(socket, …); … ::send(socket,
//   …); … }); helper.send(bytes);                      // never waits if (auto n =
//   helper.receive(buffer)) …   // what has arrived by now, one message helper.kill(); // it did
//   not answer in time
//
// The child is a fork without exec: it begins in a session of its own, with no descriptor of the
// parent's but its end of a SOCK_SEQPACKET socket, standard streams on /dev/null, default signals,
// and dies with the thread that made it. It must not touch what other threads of the parent may
// have held at the fork. A child that even SIGKILL does not end (blocked inside the kernel) is left
// behind without waiting.
//
// Threads: an object belongs to one thread; helper_processes() may be called from any.
// Throws Error{kIo | kNoSpace} when no child can be made.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/units.h"
#include "os/unique_fd.h"

namespace bedplate::probe {

class HelperProcess {
 public:
  // `name` as ps shows it, at most 15 bytes. The child ends when `body` returns or the parent's end
  // is closed.
  HelperProcess(const char* name, const std::function<void(int socket)>& body);
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;
  ~HelperProcess();  // kills

  // False when the child has ended or its queue is full.
  bool send(std::span<const std::byte> message);

  // The length of a message that has arrived; waits for one at most `within`. nullopt: none yet, or
  // none will come (ended()).
  std::optional<std::size_t> receive(std::span<std::byte> buffer, Nanos within = 0);

  bool ended() const { return !socket_; }  // as far as send() and receive() have noticed
  void kill();

 private:
  pid_t pid_ = -1;
  os::UniqueFd process_;  // a pidfd: the number may be reaped and used again by the time of a kill
  os::UniqueFd socket_;
};

// The living helpers of this program: children that are none of the job's.
std::vector<pid_t> helper_processes();

}  // namespace bedplate::probe
