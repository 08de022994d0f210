#include "os/stop_signals.h"

#include <atomic>

namespace bedplate::os {
namespace {

std::atomic<int> came_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

void remember(int signal) { came_signal = signal; }

}  // namespace

StopSignals::StopSignals() {
  came_signal = 0;
  constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    old_[i].signal = kSignals[i];
    struct sigaction action {};
    action.sa_handler = remember;
    action.sa_flags = SA_RESTART;
    ::sigaction(kSignals[i], nullptr, &old_[i].action);
    if (old_[i].action.sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (const Old& old : old_) ::sigaction(old.signal, &old.action, nullptr);
}

int StopSignals::came() const { return came_signal; }

void StopSignals::end_as_asked() {
  const int signal = came();
  if (signal == 0) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace bedplate::os
