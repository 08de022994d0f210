#include "os/mapped_copy.h"

#include <setjmp.h>
#include <signal.h>

#include <cstdint>
#include <cstring>

namespace bedplate::os {
namespace {

// The copy that this thread is in.
struct Copy {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  sigjmp_buf back;
};
thread_local Copy* volatile copy_of_thread = nullptr;

struct sigaction previous {};

// Signals are not blocked while it runs (SA_NODEFER), so that jumping out of it leaves no mask
// behind.
void on_bus_error(int signal, siginfo_t* info, void* context) {
  Copy* const copy = copy_of_thread;
  const auto* const at = static_cast<const std::byte*>(info->si_addr);
  if (copy != nullptr && at >= copy->begin && at < copy->end) siglongjmp(copy->back, 1);
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(signal);
  } else {
    // What would have happened without us: the access is tried again, and the process ends by it.
    ::sigaction(SIGBUS, &previous, nullptr);
  }
}

bool installed() {
  static const bool done = [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &previous) == 0;
  }();
  return done;
}

}  // namespace

bool can_copy_mapped() {
  if (!installed()) return false;
  struct sigaction now {};
  if (::sigaction(SIGBUS, nullptr, &now) != 0 || now.sa_sigaction != on_bus_error) return false;
  sigset_t blocked;
  return ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked) == 0 &&
         ::sigismember(&blocked, SIGBUS) == 0;
}

bool copy_mapped(void* into, const void* from, std::size_t bytes) {
  Copy copy;
  copy.begin = static_cast<const std::byte*>(from);
  copy.end = copy.begin + bytes;
  if (sigsetjmp(copy.back, 0) != 0) {
    copy_of_thread = nullptr;
    return false;
  }
  copy_of_thread = &copy;
  std::memcpy(into, from, bytes);
  copy_of_thread = nullptr;
  return true;
}

}  // namespace bedplate::os
