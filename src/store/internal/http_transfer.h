// One request on its way: what has come of its answer, over all attempts. Used by perform() alone.
#pragma once

#include <curl/curl.h>

#include <memory>
#include <optional>
#include <string>

#include "store/internal/http_client.h"

namespace bedplate::store {

// Why an attempt came to nothing.
struct HttpFailure {
  Code code;
  std::string reason;
  enum class Again { kNever, kIfRepeatable, kAlways } again = Again::kNever;
  std::optional<Nanos> retry_after = {};
};

class HttpTransfer {
 public:
  HttpTransfer(HttpRequest& request, const RetryPolicy& policy)
      : request_(request), policy_(policy) {}
  HttpTransfer(const HttpTransfer&) = delete;
  HttpTransfer& operator=(const HttpTransfer&) = delete;

  // Prepares `easy`, a handle without options, for the next attempt. Throws what signing throws.
  void start(CURL* easy);
  // What the attempt came to; nullopt: the request is answered.
  std::optional<HttpFailure> finish(CURLcode result);
  // The same for one that makes no progress any more.
  HttpFailure stalled() const;

  HttpRequest& request() const { return request_; }
  Nanos began() const { return began_; }  // the first attempt; 0: none yet
  Nanos stalls_at() const { return last_progress_ + policy_.attempt_timeout; }
  Error error(const HttpFailure& failure) const;

 private:
  static std::size_t on_header(char* data, std::size_t size, std::size_t n, void* self);
  static std::size_t on_body(char* data, std::size_t size, std::size_t n, void* self);
  static std::size_t on_send(char* into, std::size_t size, std::size_t n, void* self);
  static int on_seek(void* self, curl_off_t offset, int origin);

  void set_method(CURL* easy);
  void set_headers(CURL* easy);
  void take_header(std::string_view line);
  bool take_body(std::string_view bytes);
  std::size_t send_body(std::span<std::byte> into);
  bool is_expected(int status) const;
  std::optional<HttpFailure> check_range();
  HttpFailure beyond_the_end(std::int64_t object_size) const;
  HttpFailure short_body(std::int64_t size) const;
  HttpFailure of_status();
  HttpFailure of_curl(CURLcode result) const;
  std::int64_t body_size() const;

  HttpRequest& request_;
  const RetryPolicy& policy_;
  Nanos began_ = 0;
  Nanos last_progress_ = 0;
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> sent_headers_{nullptr,
                                                                            &curl_slist_free_all};
  char curl_message_[CURL_ERROR_SIZE] = "";

  std::int64_t received_ =
      0;                   // of `into`; more than 0 at the start of an attempt: it goes on there
  std::string part_etag_;  // of what was received
  std::int64_t sent_ = 0;
  bool body_began_ = false;
  bool stopped_ = false;                // all that was wanted has come
  std::optional<HttpFailure> verdict_;  // found while the body came
};

}  // namespace bedplate::store
