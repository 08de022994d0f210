// A mutex that can be waited for until a deadline.
//
//   const std::unique_lock lock(mutex, std::chrono::nanoseconds(deadline.left()));
//   if (!lock) throw Error(Code::kTimeout, "…");
//
// std::timed_mutex, but for its pthread_mutex_clocklock(3), which ThreadSanitizer does not know: it
// would call all that the mutex guards a race.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace bedplate {

class PatientMutex {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [this] { return !held_; });
    held_ = true;
  }

  bool try_lock_for(std::chrono::nanoseconds patience) {
    std::unique_lock lock(mutex_);
    if (!freed_.wait_for(lock, patience, [this] { return !held_; })) return false;
    held_ = true;
    return true;
  }

  void unlock() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    freed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  bool held_ = false;
};

}  // namespace bedplate
