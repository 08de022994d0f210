// The same work on many things at once.
//
//   for_each_of(shards.size(), 16, [&](std::size_t i) { shards[i] = open(names[i]); });
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace bedplate::data {

// Calls `work(i)` for 0 … count-1 from at most `threads` threads, the caller's among them; returns
// when all have ended. After a failure no further one begins; the error of the lowest i is thrown.
template <typename Work>
void for_each_of(std::size_t count, int threads, const Work& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t failed_at = count;
  std::exception_ptr failure;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed_at) failure = std::current_exception();
        failed_at = std::min(failed_at, i);
        next = count;
      }
    }
  };
  std::vector<std::jthread> others;
  const auto wanted = std::min<std::size_t>(count, static_cast<std::size_t>(std::max(1, threads)));
  for (std::size_t i = 1; i < wanted; ++i) {
    others.emplace_back([&run] {
      ::pthread_setname_np(::pthread_self(), "bedplate-data");
      run();
    });
  }
  run();
  others.clear();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace bedplate::data
