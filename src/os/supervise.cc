#include "os/supervise.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>

#include "base/clock.h"
#include "base/error.h"
#include "os/internal/group_witness.h"

namespace bedplate::os {
namespace {

// Between a signal to this process and the same one to the whole group lie at most a few
// microseconds (timeout(1) sends both in turn); then the witness knows of it too.
constexpr Nanos kSettle = 10 * kMillisecond;
constexpr Nanos kFresh = 2 * kSecond;

// Signals that a fault of this process's own raises; blocking them would end it all the same.
constexpr int kOfFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPIPE};

// Signals by which the kernel tells this very process something about itself or its terminal.
bool own_business(const signalfd_siginfo& info) {
  if (info.ssi_signo == SIGCHLD) return true;
  if (info.ssi_code != SI_KERNEL) return false;
  // An alarm() that was set before this program was executed is meant for the job; a hangup reaches
  // the session's leader alone.
  constexpr std::uint32_t kAlsoTheJobs[] = {SIGINT,  SIGQUIT, SIGHUP,  SIGTERM,
                                            SIGALRM, SIGCONT, SIGWINCH};
  return std::ranges::find(kAlsoTheJobs, info.ssi_signo) == std::end(kAlsoTheJobs);
}

bool asks_to_stop(const signalfd_siginfo& info) {
  return info.ssi_signo == SIGTSTP || info.ssi_signo == SIGTTIN || info.ssi_signo == SIGTTOU;
}

bool in_foreground() {
  const UniqueFd terminal(::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC));
  return terminal && ::tcgetpgrp(terminal.get()) == ::getpgrp();
}

void default_action(int signal) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action, nullptr);
}

void unblock(int signal) {
  sigset_t one;
  ::sigemptyset(&one);
  ::sigaddset(&one, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
}

UniqueFd tick_timer(Nanos every) {
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer) throw errno_error(errno, "cannot make a timer");
  const timespec period{every / kSecond, every % kSecond};
  const itimerspec spec{period, period};
  if (::timerfd_settime(timer.get(), 0, &spec, nullptr) != 0) {
    throw errno_error(errno, "cannot set a timer");
  }
  return timer;
}

// What the handler of let_signals_end_us() needs, where a handler may read it.
struct LastWords {
  int exit_code = 0;
  Nanos not_before = 0;
  std::string text;
};
LastWords g_last_words;

void end_by_signal(int) {
  if (real_clock().now() < g_last_words.not_before) return;
  [[maybe_unused]] const auto n =
      ::write(STDERR_FILENO, g_last_words.text.data(), g_last_words.text.size());
  ::_exit(g_last_words.exit_code);
}

}  // namespace

struct Supervisor::State {
  InheritedSignals inherited;
  sigset_t blocked;
  UniqueFd signals;
  UniqueFd epoll;
  std::unique_ptr<GroupWitness> witness;
  std::optional<Child> child;
  bool interrupted = false;
  Nanos resumed = 0;  // when this process last ran again after it had stopped itself
  Nanos stop_began = 0;
  Nanos stop_signal_came = 0;  // when one last reached this process

  void watch(int fd) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      throw errno_error(errno, "cannot watch the job");
    }
  }

  // Takes what is pending into `batch`.
  void take_signals(std::vector<signalfd_siginfo>& batch) {
    signalfd_siginfo info;
    while (::read(signals.get(), &info, sizeof info) == sizeof info) batch.push_back(info);
    if (std::ranges::any_of(batch, asks_to_stop)) stop_signal_came = real_clock().now();
  }

  void handle_signals(const WaitOptions& options) {
    std::vector<signalfd_siginfo> batch;
    take_signals(batch);
    const auto to_judge = [&] {
      return std::ranges::any_of(batch, [](const auto& info) { return !own_business(info); });
    };
    if (to_judge()) {
      constexpr timespec kPause{0, kSettle};
      ::nanosleep(&kPause, nullptr);
      take_signals(batch);
      forward(batch);
    }
    const bool child_changed =
        std::ranges::any_of(batch, [](const auto& info) { return info.ssi_signo == SIGCHLD; });
    if (!child_changed) return;
    const auto stop = child->stopped_by();
    if (!stop || !should_stop_too()) return;
    if (options.before_stop) options.before_stop();
    stop_too(*stop);
    if (options.after_stop) options.after_stop();
  }

  void forward(const std::vector<signalfd_siginfo>& batch) {
    const Nanos now = real_clock().now();
    // A signal to the group while this process was stopped waited for it, not for the witness.
    const bool just_resumed = resumed != 0 && now - resumed < kFresh;
    const auto seen = witness->seen((just_resumed ? stop_began : now) - kFresh);
    sigset_t done;  // standard signals do not queue: one of a kind is enough
    ::sigemptyset(&done);
    for (const auto& info : batch) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGINT && info.ssi_code == SI_KERNEL) interrupted = true;
      if (own_business(info)) continue;
      // The job speaks to its parent; the parent is not the job.
      if (static_cast<pid_t>(info.ssi_pid) == child->pid() && info.ssi_code != SI_KERNEL) continue;
      const bool reached_the_job =
          seen ? ::sigismember(&*seen, signal) == 1 : info.ssi_code == SI_KERNEL;
      if (reached_the_job) continue;
      if (signal >= SIGRTMIN && info.ssi_code == SI_QUEUE) {
        sigval value{};
        value.sival_ptr = reinterpret_cast<void*>(info.ssi_ptr);
        child->forward(signal, value);
        continue;
      }
      if (::sigismember(&done, signal) == 1) continue;
      ::sigaddset(&done, signal);
      // A job that was stopped anew since would run again.
      if (signal == SIGCONT && std::ranges::any_of(batch, asks_to_stop)) continue;
      child->send(signal);
    }
  }

  // A stop that reached us as well, or in the foreground, is for the shell to see: it would wait
  // for ever for a job that does not run. Any other may come from somebody who continues the job
  // alone.
  bool should_stop_too() const {
    const bool meant_us = stop_signal_came != 0 && real_clock().now() - stop_signal_came < kFresh;
    return meant_us || in_foreground();
  }

  void stop_too(int signal) {
    stop_began = real_clock().now();
    if (inherited.ignored[static_cast<std::size_t>(signal)]) signal = SIGSTOP;
    // The signal that the terminal sent to the group has been read; this one stops the process
    // here.
    ::kill(::getpid(), signal);
    if (signal != SIGSTOP) {
      unblock(signal);
      ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
    }
    resumed = real_clock().now();
  }
};

Supervisor::Supervisor() : state_(std::make_unique<State>()) {
  state_->inherited = InheritedSignals::of_this_process();
  ::sigfillset(&state_->blocked);
  for (const int signal : kOfFaults) ::sigdelset(&state_->blocked, signal);
  ::pthread_sigmask(SIG_BLOCK, &state_->blocked, nullptr);
  // A launcher that ignores SIGCHLD would make the kernel reap the job unseen.
  default_action(SIGCHLD);
  // A reader that left must not end this process; writing says so by EPIPE.
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, nullptr);
  state_->signals.reset(::signalfd(-1, &state_->blocked, SFD_NONBLOCK | SFD_CLOEXEC));
  state_->epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!state_->signals || !state_->epoll) throw errno_error(errno, "cannot watch signals");
  state_->watch(state_->signals.get());
}

Supervisor::~Supervisor() {
  state_->witness.reset();
  for (const int signal : {SIGCHLD, SIGPIPE}) {
    struct sigaction action {};
    const bool ignored = state_->inherited.ignored[static_cast<std::size_t>(signal)];
    action.sa_handler = ignored ? SIG_IGN : SIG_DFL;
    ::sigaction(signal, &action, nullptr);
  }
  // What is still pending was meant for the job.
  signalfd_siginfo info;
  while (::read(state_->signals.get(), &info, sizeof info) == sizeof info) {
  }
  ::pthread_sigmask(SIG_SETMASK, &state_->inherited.mask, nullptr);
}

std::optional<ExecFailure> Supervisor::start(const StartRequest& request) {
  BEDPLATE_CHECK(!state_->child);
  state_->witness = std::make_unique<GroupWitness>(request.enter);
  auto started = spawn({.arguments = request.arguments,
                        .environment = request.environment,
                        .signals = state_->inherited,
                        .in_child = request.enter});
  if (auto* failure = std::get_if<ExecFailure>(&started)) {
    state_->witness.reset();
    return std::move(*failure);
  }
  state_->child = std::move(std::get<Child>(started));
  if (state_->child->pidfd() >= 0) state_->watch(state_->child->pidfd());
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null) {
    ::dup3(null.get(), STDIN_FILENO, O_CLOEXEC);
    if (!request.keep_stdout) ::dup3(null.get(), STDOUT_FILENO, O_CLOEXEC);
  }
  return std::nullopt;
}

const Child& Supervisor::child() const {
  BEDPLATE_CHECK(state_->child);
  return *state_->child;
}

pid_t Supervisor::witness() const { return state_->witness ? state_->witness->pid() : 0; }

void Supervisor::last_words(std::string_view text) {
  if (state_->witness) state_->witness->last_words(text);
}

bool Supervisor::interrupted() const { return state_->interrupted; }

Ended Supervisor::wait(const WaitOptions& options) {
  BEDPLATE_CHECK(state_->child);
  UniqueFd timer;
  if (options.tick) {
    timer = tick_timer(options.tick_every);
    state_->watch(timer.get());
  }
  for (;;) {
    if (auto ended = state_->child->try_wait()) {
      // A Ctrl-C that ended the job may not have been read yet.
      std::vector<signalfd_siginfo> batch;
      state_->take_signals(batch);
      for (const auto& info : batch) {
        if (info.ssi_signo == SIGINT && info.ssi_code == SI_KERNEL) state_->interrupted = true;
      }
      state_->witness.reset();
      return *ended;
    }
    epoll_event events[4];
    const int n = ::epoll_wait(state_->epoll.get(), events, 4, -1);
    if (n < 0 && errno != EINTR) throw errno_error(errno, "cannot wait for the job");
    for (int i = 0; i < n; ++i) {
      if (events[i].data.fd == state_->signals.get()) state_->handle_signals(options);
      if (timer && events[i].data.fd == timer.get()) {
        std::uint64_t expirations = 0;
        if (::read(timer.get(), &expirations, sizeof expirations) > 0) options.tick();
      }
    }
  }
}

void Supervisor::let_signals_end_us(int exit_code, std::string_view last_words) {
  g_last_words = {exit_code, real_clock().now() + kSecond, std::string(last_words)};
  state_->signals.reset();
  struct sigaction action {};
  action.sa_handler = end_by_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) {
    ::sigaction(signal, &action, nullptr);
    unblock(signal);
  }
}

void end_as(const Ended& ended, bool interrupted) {
  std::fflush(nullptr);
  if (interrupted && ended.signal() == SIGINT) {
    default_action(SIGINT);
    ::kill(::getpid(), SIGINT);
    unblock(SIGINT);
  }
  ::_exit(ended.exit_code());
}

}  // namespace bedplate::os
