// For tests: requests to an HttpFaultServer, and what became of them.
#pragma once

#include <optional>
#include <string>

#include "store/internal/http_client.h"
#include "store/internal/http_fault_server.h"

namespace bedplate::store {

constexpr RetryPolicy kQuick{.retries = 3,
                             .attempt_timeout = 5 * kSecond,
                             .first_pause = kMillisecond,
                             .longest_pause = 2 * kMillisecond};

inline Deadline soon() { return Deadline::after(10 * kSecond); }

inline std::string numbered_bytes(std::size_t size) {
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>('a' + i * i % 23);
  return bytes;
}

inline HttpRequest get(const HttpFaultServer& server, const std::string& path) {
  HttpRequest request;
  request.url = server.url() + path;
  request.what = "cannot read " + without_query(request.url);
  return request;
}

inline HttpRequest get_range(const HttpFaultServer& server, const std::string& path,
                             std::int64_t begin, std::string& into) {
  HttpRequest request = get(server, path);
  request.range_begin = begin;
  request.into = std::as_writable_bytes(std::span(into));
  return request;
}

inline void run(HttpRequest& request, const RetryPolicy& policy = kQuick) {
  perform({&request, 1}, 1, soon(), policy);
}

inline std::string message(const HttpRequest& request) {
  return request.error ? request.error->what() : "no error";
}

inline std::optional<Code> code(const HttpRequest& request) {
  return request.error ? std::optional(request.error->code()) : std::nullopt;
}

}  // namespace bedplate::store
