#include "bench/internal/crew.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"

namespace bedplate::bench {
namespace {

constexpr Nanos kLook = 100 * kMillisecond;  // between two looks at the watch

// What the threads of one measurement share.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  int ended = 0;
  Nanos begin = 0;  // 0: not yet
  std::exception_ptr failure;
  std::atomic<bool> stop{false};
};

struct alignas(64) Share {
  std::vector<Nanos> lengths;
  std::int64_t amount = 0;
  Nanos end = 0;
};

void work(Shared& shared, Share& own, Nanos enough, const std::function<std::int64_t()>& act) {
  const Clock& clock = real_clock();
  Nanos begin = 0;
  {
    std::unique_lock lock(shared.mutex);
    shared.changed.wait(lock, [&] { return shared.begin != 0; });
    begin = shared.begin;
  }
  std::exception_ptr failure;
  try {
    for (Nanos now = clock.now(); !shared.stop && (enough == 0 || now - begin < enough);) {
      const std::int64_t done = act();
      if (done == 0) break;
      const Nanos then = std::exchange(now, clock.now());
      own.lengths.push_back(now - then);
      own.amount += done;
    }
  } catch (...) {
    failure = std::current_exception();
    shared.stop = true;
  }
  own.end = clock.now();
  const std::lock_guard lock(shared.mutex);
  if (failure && !shared.failure) shared.failure = failure;
  ++shared.ended;
  shared.changed.notify_all();
}

// Until all have ended; the reason to stop before that, if there was one.
std::exception_ptr wait_for(Shared& shared, const CrewOptions& options) {
  static const Watch kNobody;
  const Watch& watch = options.watch != nullptr ? *options.watch : kNobody;
  const Nanos longest = options.longest > 0 ? options.longest : options.enough + 60 * kSecond;
  std::exception_ptr why;
  std::unique_lock lock(shared.mutex);
  const auto all_ended = [&] { return shared.ended == options.threads; };
  while (!shared.changed.wait_for(lock, std::chrono::nanoseconds(kLook), all_ended)) {
    lock.unlock();
    const Nanos length = real_clock().now() - shared.begin;
    const double share = options.enough > 0 ? seconds(length) / seconds(options.enough) : 0;
    watch.progress(options.what,
                   options.begun + (options.done - options.begun) * std::min(share, 1.0));
    if (!why && watch.stopped()) {
      why = std::make_exception_ptr(Error(Code::kUnavailable, "{}: interrupted", options.what));
    } else if (!why && length > longest) {
      why = std::make_exception_ptr(
          Error(Code::kTimeout, "{}: not done after {}", options.what, human_duration(longest)));
    }
    if (why) shared.stop = true;
    lock.lock();
  }
  return why;
}

Nanos at_share(std::vector<Nanos>& lengths, double share) {
  if (lengths.empty()) return 0;
  const auto rank = static_cast<std::size_t>(share * static_cast<double>(lengths.size() - 1) + 0.5);
  const auto at = lengths.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(lengths.begin(), at, lengths.end());
  return *at;
}

}  // namespace

Figures measure(const CrewOptions& options, const std::function<std::int64_t(int thread)>& act) {
  BEDPLATE_CHECK(options.threads > 0);
  Shared shared;
  std::vector<Share> shares(static_cast<std::size_t>(options.threads));
  std::exception_ptr why;
  {
    std::vector<std::jthread> threads;
    const auto begin_all = [&] {
      const std::lock_guard lock(shared.mutex);
      shared.begin = real_clock().now();
      shared.changed.notify_all();
    };
    try {
      for (int t = 0; t < options.threads; ++t) {
        threads.emplace_back([&, t] {
          ::pthread_setname_np(::pthread_self(), "bedplate-bench");
          work(shared, shares[static_cast<std::size_t>(t)], options.enough, [&] { return act(t); });
        });
      }
    } catch (...) {
      shared.stop = true;
      begin_all();
      throw;
    }
    begin_all();
    why = wait_for(shared, options);
  }
  if (shared.failure) std::rethrow_exception(shared.failure);
  if (why) std::rethrow_exception(why);

  Figures figures;
  std::vector<Nanos> lengths;
  for (const Share& share : shares) {
    lengths.insert(lengths.end(), share.lengths.begin(), share.lengths.end());
    figures.amount += share.amount;
    figures.length = std::max(figures.length, share.end - shared.begin);
  }
  figures.calls = std::ssize(lengths);
  figures.median = at_share(lengths, 0.5);
  figures.p99 = at_share(lengths, 0.99);
  figures.longest = at_share(lengths, 1);
  return figures;
}

}  // namespace bedplate::bench
