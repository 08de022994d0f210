#include "os/internal/group_witness.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/clock.h"
#include "base/units.h"

namespace bedplate::os {
namespace {

constexpr Nanos kAnswerWithin = 200 * kMillisecond;

// Closes every descriptor but the two that are kept: a pipe of the job must see its end.
void close_others(int kept_a, int kept_b) {
  const int low = kept_a < kept_b ? kept_a : kept_b;
  const int high = kept_a < kept_b ? kept_b : kept_a;
  const auto close_span = [](unsigned first, unsigned last) {
    if (first > last) return;
#ifdef SYS_close_range
    if (::syscall(SYS_close_range, first, last, 0) == 0) return;
#endif
    for (unsigned fd = first; fd <= last && fd < 65536; ++fd) ::close(static_cast<int>(fd));
  };
  if (low > 0) close_span(0, static_cast<unsigned>(low) - 1);
  close_span(static_cast<unsigned>(low) + 1, static_cast<unsigned>(high) - 1);
  close_span(static_cast<unsigned>(high) + 1, ~0U);
}

[[noreturn]] void stand_witness(int line) {
  std::array<Nanos, NSIG> when{};
  sigset_t all;
  ::sigfillset(&all);
  const int signals = ::signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC);
  if (signals < 0) ::_exit(1);
  close_others(line, signals);
  if (::chdir("/") != 0) ::_exit(1);
  for (;;) {
    pollfd wanted[2] = {{line, POLLIN, 0}, {signals, POLLIN, 0}};
    if (::poll(wanted, 2, -1) < 0 && errno != EINTR) ::_exit(1);
    signalfd_siginfo info;
    while (::read(signals, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo < NSIG) when[info.ssi_signo] = real_clock().now();
    }
    if (wanted[0].revents == 0) continue;
    Nanos since = 0;
    if (::read(line, &since, sizeof since) != sizeof since) ::_exit(0);  // the maker is gone
    sigset_t fresh;
    ::sigemptyset(&fresh);
    for (int signal = 1; signal < NSIG; ++signal) {
      auto& time = when[static_cast<std::size_t>(signal)];
      if (time != 0 && time >= since) ::sigaddset(&fresh, signal);
      time = 0;
    }
    if (::send(line, &fresh, sizeof fresh, MSG_NOSIGNAL) != sizeof fresh) ::_exit(0);
  }
}

}  // namespace

GroupWitness::GroupWitness(const std::function<void()>& first) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
  line_.reset(ends[0]);
  UniqueFd far_end(ends[1]);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t maker = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != maker) ::_exit(0);
    if (first) first();
    stand_witness(far_end.get());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid > 0) pid_ = pid;
}

GroupWitness::~GroupWitness() {
  line_.reset();
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<sigset_t> GroupWitness::seen(Nanos since) {
  if (pid_ == 0) return std::nullopt;
  constexpr int kNoWait = MSG_NOSIGNAL | MSG_DONTWAIT;
  // An answer that came too late for an earlier question must not answer this one.
  sigset_t late;
  while (::recv(line_.get(), &late, sizeof late, MSG_DONTWAIT) > 0) {
  }
  if (::send(line_.get(), &since, sizeof since, kNoWait) != sizeof since) return std::nullopt;
  const Nanos deadline = real_clock().now() + kAnswerWithin;
  for (;;) {
    const Nanos left = deadline - real_clock().now();
    if (left <= 0) return std::nullopt;
    pollfd wanted{line_.get(), POLLIN, 0};
    if (::poll(&wanted, 1, static_cast<int>(left / kMillisecond) + 1) <= 0) continue;
    sigset_t fresh;
    if (::recv(line_.get(), &fresh, sizeof fresh, MSG_DONTWAIT) != sizeof fresh) {
      if (errno == EAGAIN || errno == EINTR) continue;
      return std::nullopt;
    }
    return fresh;
  }
}

}  // namespace bedplate::os
