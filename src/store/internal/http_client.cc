#include "store/internal/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <random>

#include "base/text.h"
#include "os/per_process.h"
#include "store/internal/http_transfer.h"
#include "store/remote_counters.h"

namespace bedplate::store {
namespace {

// A multi handle, which keeps connections for the requests that are added to it.
class Connections {
 public:
  Connections() : multi_(curl_multi_init()) {
    if (multi_ == nullptr) throw Error(Code::kNoSpace, "no memory for an HTTP client");
  }
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections() { curl_multi_cleanup(multi_); }

  void keep_up_to(int connections) {
    connections = std::max(connections, 8);  // of several hosts
    if (connections <= kept_) return;
    kept_ = connections;
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(connections));
  }
  CURLM* multi() const { return multi_; }

 private:
  CURLM* multi_;
  int kept_ = 0;
};

// One attempt's handle: made anew, since one that failed may refuse its options (libcurl 7.88).
struct Cleanup {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
using Easy = std::unique_ptr<CURL, Cleanup>;

struct Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Connections>> idle;
};

// Never destroyed: threads may still be reading while the process ends.
Pool& pool() {
  static auto* const pools = [] {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
      throw Error(Code::kInternal, "libcurl cannot be used");
    return new os::PerProcess<Pool>;
  }();
  return pools->get();
}

// Connections for one call; those that another call left behind, if there are any.
class Lease {
 public:
  Lease() {
    const std::lock_guard lock(pool_.mutex);
    if (pool_.idle.empty()) return;
    connections_ = std::move(pool_.idle.back());
    pool_.idle.pop_back();
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    constexpr std::size_t kMostIdle = 64;
    const std::lock_guard lock(pool_.mutex);
    if (connections_ && pool_.idle.size() < kMostIdle)
      pool_.idle.push_back(std::move(connections_));
  }
  Connections& get() {
    if (!connections_) connections_ = std::make_unique<Connections>();
    return *connections_;
  }

 private:
  Pool& pool_ = pool();
  std::unique_ptr<Connections> connections_;
};

// One call of perform().
class Performance {
 public:
  Performance(std::span<HttpRequest> requests, int at_once, Deadline deadline,
              const RetryPolicy& policy)
      : policy_(policy),
        deadline_(deadline),
        at_once_(static_cast<std::size_t>(std::max(at_once, 1))),
        connections_(lease_.get()) {
    connections_.keep_up_to(static_cast<int>(at_once_));
    for (HttpRequest& request : requests) {
      request.error.reset();
      request.answer = {};
      waiting_.push_back({&transfers_.emplace_back(request, policy_), 0, {}});
    }
  }
  Performance(const Performance&) = delete;
  Performance& operator=(const Performance&) = delete;
  ~Performance() {
    while (!active_.empty()) remove(active_.begin());
  }

  void run() {
    while (!waiting_.empty() || !active_.empty()) {
      if (deadline_.passed()) {
        give_up();
        return;
      }
      start_ready();
      int running = 0;
      check(curl_multi_perform(connections_.multi(), &running));
      collect();
      end_stalled();
      if (waiting_.empty() && active_.empty()) return;
      check(curl_multi_poll(connections_.multi(), nullptr, 0, wait_milliseconds(), nullptr));
    }
  }

 private:
  struct Waiting {
    HttpTransfer* transfer;
    Nanos not_before;
    std::string last_failure;
  };
  struct Active {
    HttpTransfer* transfer;
    Easy easy;
  };

  static void check(CURLMcode code) {
    if (code != CURLM_OK) throw Error(Code::kInternal, "libcurl: {}", curl_multi_strerror(code));
  }

  void start_ready() {
    const Nanos now = real_clock().now();
    while (active_.size() < at_once_) {
      const auto ready =
          std::ranges::find_if(waiting_, [&](const Waiting& w) { return w.not_before <= now; });
      if (ready == waiting_.end()) return;
      HttpTransfer* transfer = ready->transfer;
      waiting_.erase(ready);
      Easy easy(curl_easy_init());
      if (!easy) throw Error(Code::kNoSpace, "no memory for an HTTP request");
      try {
        transfer->start(easy.get());
      } catch (const Error& error) {
        transfer->request().error = error;
        continue;
      }
      check(curl_multi_add_handle(connections_.multi(), easy.get()));
      active_.push_back({transfer, std::move(easy)});
    }
  }

  void remove(std::vector<Active>::iterator active) {
    curl_multi_remove_handle(connections_.multi(), active->easy.get());
    active_.erase(active);
  }

  void collect() {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(connections_.multi(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode result = message->data.result;
      const auto active = std::ranges::find_if(
          active_, [&](const Active& one) { return one.easy.get() == message->easy_handle; });
      HttpTransfer* transfer = active->transfer;
      remove(active);
      settle(*transfer, transfer->finish(result));
    }
  }

  void end_stalled() {
    const Nanos now = real_clock().now();
    for (std::size_t i = active_.size(); i-- > 0;) {
      HttpTransfer* transfer = active_[i].transfer;
      if (transfer->stalls_at() > now) continue;
      remove(active_.begin() + static_cast<std::ptrdiff_t>(i));
      settle(*transfer, transfer->stalled());
    }
  }

  void settle(HttpTransfer& transfer, const std::optional<HttpFailure>& failure) {
    if (!failure || !goes_on(transfer, *failure)) count_read(transfer);
  }

  // Ranges of objects only: what looks, lists or writes is no read.
  static void count_read(const HttpTransfer& transfer) {
    const HttpRequest& request = transfer.request();
    if (request.into.empty() || transfer.began() == 0) return;
    count_remote_read({.latency = real_clock().now() - transfer.began(),
                       .bytes = std::ssize(request.into),
                       .attempts = request.answer.attempts,
                       .end = request.error ? RemoteRead::End::kFailed : RemoteRead::End::kWell});
  }

  // False: the request has its error.
  bool goes_on(HttpTransfer& transfer, const HttpFailure& failure) {
    HttpRequest& request = transfer.request();
    const bool repeatable = request.repeat == HttpRequest::Repeat::kAlways;
    const bool again = failure.again == HttpFailure::Again::kAlways ||
                       (failure.again == HttpFailure::Again::kIfRepeatable && repeatable);
    if (!again || request.answer.attempts > policy_.retries) {
      request.error = transfer.error(failure);
      return false;
    }
    const Nanos asked = failure.retry_after.value_or(0);
    if (asked > policy_.longest_pause) {
      request.error =
          transfer.error({Code::kUnavailable,
                          fmt::format("{}, and asks to come back in {}, later than the {} that "
                                      "are waited at most",
                                      failure.reason, human_duration(asked),
                                      human_duration(policy_.longest_pause))});
      return false;
    }
    const Nanos pause = std::max(asked, random_pause(request.answer.attempts));
    if (pause >= deadline_.left()) {
      request.error =
          transfer.error({Code::kTimeout,
                          fmt::format("{}; the deadline comes before the next attempt, {} from now",
                                      failure.reason, human_duration(pause))});
      return false;
    }
    waiting_.push_back({&transfer, real_clock().now() + pause, failure.reason});
    return true;
  }

  // "Full jitter": M. Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015.
  Nanos random_pause(int attempts) {
    if (!random_) random_.emplace(std::random_device{}());
    Nanos most = policy_.first_pause;
    for (int i = 1; i < attempts && most < policy_.longest_pause; ++i) most *= 2;
    most = std::max<Nanos>(0, std::min(most, policy_.longest_pause));
    return std::uniform_int_distribution<Nanos>(0, most)(*random_);
  }

  int wait_milliseconds() const {
    const Nanos now = real_clock().now();
    Nanos wait = std::min(deadline_.left(), kSecond);
    for (const Active& active : active_) wait = std::min(wait, active.transfer->stalls_at() - now);
    if (active_.size() < at_once_) {
      for (const Waiting& waiting : waiting_) wait = std::min(wait, waiting.not_before - now);
    }
    return static_cast<int>((std::max<Nanos>(wait, 0) + kMillisecond - 1) / kMillisecond);
  }

  void give_up() {
    while (!active_.empty()) {
      HttpTransfer* transfer = active_.back().transfer;
      remove(active_.end() - 1);
      time_out(*transfer, {});
    }
    for (const Waiting& waiting : waiting_) time_out(*waiting.transfer, waiting.last_failure);
    waiting_.clear();
  }

  static void time_out(HttpTransfer& transfer, std::string_view last_failure) {
    const HttpRequest& request = transfer.request();
    std::string reason =
        request.answer.attempts == 0
            ? fmt::format("the deadline passed before {} was asked", host_of(request.url))
            : fmt::format("the deadline passed while {} was waited for", host_of(request.url));
    if (!last_failure.empty()) reason += fmt::format(" (before: {})", last_failure);
    transfer.request().error = transfer.error({Code::kTimeout, std::move(reason)});
    count_read(transfer);
  }

  const RetryPolicy& policy_;
  const Deadline deadline_;
  const std::size_t at_once_;
  Lease lease_;
  Connections& connections_;
  std::deque<HttpTransfer> transfers_;
  std::deque<Waiting> waiting_;  // those that were not begun before those that are tried again
  std::vector<Active> active_;
  std::optional<std::minstd_rand> random_;
};

}  // namespace

RetryPolicy retry_policy(const StoreOptions& options) {
  return {options.retries, options.attempt_timeout, options.first_pause, options.longest_pause};
}

std::string_view name(HttpMethod method) {
  constexpr std::string_view kNames[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};
  return kNames[static_cast<std::size_t>(method)];
}

void perform(std::span<HttpRequest> requests, int at_once, Deadline deadline,
             const RetryPolicy& policy) {
  if (requests.empty()) return;
  try {
    Performance(requests, at_once, deadline, policy).run();
  } catch (const Error& error) {  // no memory, no descriptors: nobody gets an answer
    for (HttpRequest& request : requests) request.error = error;
  }
}

HttpAnswer perform_one(HttpRequest request, Deadline deadline, const RetryPolicy& policy) {
  perform({&request, 1}, 1, deadline, policy);
  if (request.error) throw *request.error;
  return std::move(request.answer);
}

}  // namespace bedplate::store
