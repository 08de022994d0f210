#include "os/internal/group_witness.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <initializer_list>

#include "base/clock.h"
#include "base/units.h"

namespace bedplate::os {
namespace {

constexpr Nanos kAnswerWithin = 200 * kMillisecond;

// What goes over the line to the witness.
struct Message {
  enum class Kind : std::uint8_t { kAsk, kLastWords } kind;
  std::uint8_t length;  // of text
  Nanos since;
  char text[200];
};

// Closes every descriptor but `kept`, ascending: a pipe of the job must see its end.
void close_others(std::initializer_list<int> kept) {
  const auto close_span = [](unsigned first, unsigned last) {
    if (first > last) return;
#ifdef SYS_close_range
    if (::syscall(SYS_close_range, first, last, 0) == 0) return;
#endif
    for (unsigned fd = first; fd <= last && fd < 65536; ++fd) ::close(static_cast<int>(fd));
  };
  unsigned next = 0;
  for (const int fd : kept) {
    const auto here = static_cast<unsigned>(fd);
    if (here > next) close_span(next, here - 1);
    next = here + 1;
  }
  close_span(next, ~0U);
}

class Witness {
 public:
  Witness(int line, pid_t maker) : line_(line), maker_(maker) {}

  [[noreturn]] void stand() {
    sigset_t all;
    ::sigfillset(&all);
    signals_ = ::signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC);
    if (signals_ < 0 || ::chdir("/") != 0) ::_exit(1);
    terminal_ = ::isatty(STDERR_FILENO) == 1;
    const int first = terminal_ ? STDERR_FILENO : std::min(line_, signals_);
    close_others({first, std::min(line_, signals_), std::max(line_, signals_)});
    for (;;) {
      pollfd wanted[2] = {{line_, POLLIN, 0}, {signals_, POLLIN, 0}};
      if (::poll(wanted, 2, -1) < 0 && errno != EINTR) ::_exit(1);
      note_signals();
      if (wanted[0].revents != 0) serve();
      if (::getppid() != maker_) leave();
    }
  }

 private:
  void note_signals() {
    signalfd_siginfo info;
    while (::read(signals_, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo < NSIG) when_[info.ssi_signo] = real_clock().now();
    }
  }

  void serve() {
    Message message;
    if (::read(line_, &message, sizeof message) != sizeof message) leave();  // the maker is gone
    if (message.kind == Message::Kind::kLastWords) {
      last_words_ = message;
      return;
    }
    sigset_t fresh;
    ::sigemptyset(&fresh);
    for (int signal = 1; signal < NSIG; ++signal) {
      auto& time = when_[static_cast<std::size_t>(signal)];
      if (time != 0 && time >= message.since) ::sigaddset(&fresh, signal);
      time = 0;
    }
    if (::send(line_, &fresh, sizeof fresh, MSG_NOSIGNAL) != sizeof fresh) leave();
  }

  [[noreturn]] void leave() const {
    if (terminal_ && last_words_.length > 0) {
      [[maybe_unused]] const auto n = ::write(STDERR_FILENO, last_words_.text, last_words_.length);
    }
    ::_exit(0);
  }

  int line_;
  pid_t maker_;
  int signals_ = -1;
  bool terminal_ = false;
  std::array<Nanos, NSIG> when_{};
  Message last_words_{};
};

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
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // blocked here: it wakes the witness
    if (::getppid() != maker) ::_exit(0);
    if (first) first();
    Witness(far_end.get(), maker).stand();
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
  Message ask{};
  ask.kind = Message::Kind::kAsk;
  ask.since = since;
  if (::send(line_.get(), &ask, sizeof ask, kNoWait) != sizeof ask) return std::nullopt;
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

void GroupWitness::last_words(std::string_view text) const {
  if (pid_ == 0) return;
  Message message{};
  message.kind = Message::Kind::kLastWords;
  message.length = static_cast<std::uint8_t>(text.copy(message.text, sizeof message.text));
  [[maybe_unused]] const auto n =
      ::send(line_.get(), &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace bedplate::os
