// HTTP requests, many at once in the calling thread, tried again here and nowhere else.
//
//   HttpRequest request{.what = "cannot read http://host/a", .url = "http://host/a"};
//   request.range_begin = 100;
//   request.into = buffer;            // exactly these bytes of the object
//   perform(std::span(&request, 1), 8, deadline, retry_policy(options));
//   if (request.error) throw *request.error;
//
// Tried again, as often as the policy allows: connections that fail or are reset, bodies that stall
// or are shorter than announced, and the statuses 408, 429, 500, 502, 503 and 504; with pauses that
// double, at random between none and the whole, or as long as the server's Retry-After says. Other
// requests go on meanwhile. A ranged read whose first part came goes on behind it if the ETag of
// the part is known, and from its begin otherwise.
//
// Thread-safe. Connections are kept for the next call of any thread. After fork() the child makes
// its own and leaves the parent's alone.
//
// perform() throws nothing: each request has its own error. No message holds a query string, an
// Authorization header or credentials. TLS certificates are verified always. http_proxy and
// no_proxy are honoured as curl does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/units.h"
#include "store/driver.h"
#include "store/internal/http_text.h"

namespace bedplate::store {

struct RetryPolicy {
  int retries = 5;                         // further attempts
  Nanos attempt_timeout = 30 * kSecond;    // without any progress
  Nanos first_pause = 100 * kMillisecond;  // at most, before the second attempt; doubles
  Nanos longest_pause = 20 * kSecond;      // a longer Retry-After ends the request
};
RetryPolicy retry_policy(const StoreOptions& options);

enum class HttpMethod { kGet, kHead, kPut, kPost, kDelete };
std::string_view name(HttpMethod method);

struct HttpAnswer {
  int status = 0;       // 0: none came
  HttpHeaders headers;  // names in lower case
  std::string text;     // the body, unless it went into `into`; of an error its begin
  int attempts = 0;
};

struct HttpRequest {
  std::string what;  // begins each message, "cannot read s3://bucket/key": without secrets
  HttpMethod method = HttpMethod::kGet;
  std::string url;  // encoded; sent as it stands
  HttpHeaders headers;

  // PUT and POST: the bytes to send, or what gives those from `offset` on, `body_size` in all.
  std::span<const std::byte> body;
  std::function<std::size_t(std::int64_t offset, std::span<std::byte> into)> read_body;
  std::int64_t body_size = 0;

  // Where the answer's body goes. `into`, if it is not empty: exactly into.size() bytes of the
  // object from `range_begin` on; a range beyond the end is kInvalid, and a server that sends the
  // whole object in place of a part of it kUnsupported. Else `answer.text`.
  std::span<std::byte> into;
  std::int64_t range_begin = 0;
  std::int64_t most_text = kMiB;                         // a longer text is kInvalid
  enum class Take { kAll, kHeaders } take = Take::kAll;  // kHeaders: the body is not waited for

  std::vector<int> expected = {200};  // other statuses are errors; for `into` 206 is one of them
  enum class Repeat {
    kAlways,       // doing it twice is as good as once
    kWhenNotDone,  // only after failures that leave no doubt that the server did nothing
  } repeat = Repeat::kAlways;
  enum class Redirects { kRefuse, kFollow } redirects = Redirects::kRefuse;  // GET, HEAD; at most 5
  enum class Proxy { kFromEnvironment, kNone } proxy = Proxy::kFromEnvironment;

  // Called before each attempt with the headers that it will carry: adds a signature with the date.
  // What it throws is the request's error.
  std::function<void(HttpHeaders& headers)> sign;
  // What an answer with an unexpected status says in its body; without secrets.
  std::function<std::string(const HttpAnswer&)> explain;

  HttpAnswer answer = {};           // out: of the last attempt
  std::optional<Error> error = {};  // out
};

// At most `at_once` are on their way at a time, in the order of the span.
void perform(std::span<HttpRequest> requests, int at_once, Deadline deadline,
             const RetryPolicy& policy);

// One request; throws its error.
HttpAnswer perform_one(HttpRequest request, Deadline deadline, const RetryPolicy& policy);

}  // namespace bedplate::store
