#include "probe/internal/helper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <mutex>

#include "base/clock.h"
#include "base/error.h"

namespace bedplate::probe {
namespace {

struct Living {
  std::mutex mutex;
  std::vector<pid_t> pids;
};
Living& living() {
  static Living all;
  return all;
}

int open_pidfd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

// Only calls that are safe after a fork of a program with threads, until `body` takes over.
[[noreturn]] void child_main(const char* name, int socket, pid_t parent,
                             const std::function<void(int)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);  // it died before the line above
  ::setsid();                             // a Ctrl-C is for the job
  ::prctl(PR_SET_NAME, name);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);

  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; ++fd) {
    if (fd != socket) ::dup2(null, fd);
  }
  constexpr int kSocket = 3;
  if (socket != kSocket) ::dup2(socket, kSocket);
  // The job's pipes and terminals must not stay open because of this child.
  if (::syscall(SYS_close_range, kSocket + 1, UINT_MAX, 0) != 0) {
    const long most = std::min(::sysconf(_SC_OPEN_MAX), 65'536L);
    for (int fd = kSocket + 1; fd < most; ++fd) ::close(fd);
  }
  try {
    body(kSocket);
  } catch (...) {
    // Whoever waits for the answer sees the end of the child.
  }
  ::_exit(0);
}

}  // namespace

HelperProcess::HelperProcess(const char* name, const std::function<void(int socket)>& body) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw errno_error(errno, "making a socket for a helper process");
  }
  socket_.reset(ends[0]);
  const os::UniqueFd theirs(ends[1]);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw errno_error(errno, "starting a helper process");
  if (pid_ == 0) child_main(name, theirs.get(), parent, body);
  process_.reset(open_pidfd(pid_));
  const std::lock_guard lock(living().mutex);
  living().pids.push_back(pid_);
}

HelperProcess::~HelperProcess() { kill(); }

bool HelperProcess::send(std::span<const std::byte> message) {
  if (!socket_) return false;
  const ssize_t n =
      ::send(socket_.get(), message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n >= 0) return true;
  if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS) kill();
  return false;
}

std::optional<std::size_t> HelperProcess::receive(std::span<std::byte> buffer, Nanos within) {
  const Nanos deadline = real_clock().now() + within;
  while (socket_) {
    const ssize_t n = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      kill();
      break;
    }
    const Nanos left = deadline - real_clock().now();
    if (left <= 0) break;
    pollfd wait{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, static_cast<int>(left / kMillisecond) + 1);
  }
  return std::nullopt;
}

void HelperProcess::kill() {
  socket_.reset();
  if (pid_ < 0) return;
  if (process_) {
    ::syscall(SYS_pidfd_send_signal, process_.get(), SIGKILL, nullptr, 0);
  } else {
    ::kill(pid_, SIGKILL);  // Linux older than 5.3
  }
  // It is normally gone at once. One that is not sleeps inside the kernel, and waiting for it would
  // block as it does.
  constexpr Nanos kPatience = 200 * kMillisecond;
  for (const Nanos deadline = real_clock().now() + kPatience;;) {
    const pid_t reaped = ::waitpid(pid_, nullptr, WNOHANG);
    if (reaped == pid_ || (reaped < 0 && errno == ECHILD)) break;
    if (real_clock().now() > deadline) break;
    pollfd wait{.fd = process_.get(), .events = POLLIN, .revents = 0};
    ::poll(&wait, 1, 10);
  }
  {
    const std::lock_guard lock(living().mutex);
    std::erase(living().pids, pid_);
  }
  process_.reset();
  pid_ = -1;
}

std::vector<pid_t> helper_processes() {
  const std::lock_guard lock(living().mutex);
  return living().pids;
}

}  // namespace bedplate::probe
