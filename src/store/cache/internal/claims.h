// Numbers of which each is held by one thread of this process at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <unordered_set>

namespace bedplate::store::cache {

class Claims {
 public:
  bool try_claim(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    return held_.insert(number).second;
  }
  void release(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    held_.erase(number);
    released_.notify_all();
  }
  bool held(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    return held_.contains(number);
  }
  // Until `number` is free here, or for so long.
  void wait(std::uint64_t number, std::chrono::nanoseconds most) {
    std::unique_lock lock(mutex_);
    released_.wait_for(lock, most, [&] { return !held_.contains(number); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable released_;
  std::unordered_set<std::uint64_t> held_;
};

}  // namespace bedplate::store::cache
