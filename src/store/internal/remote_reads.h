// What stores behind HTTP do alike with reads: one request for each, all at once, and a look at the
// version that came, since not every server heeds the condition under which it was asked.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "store/internal/http_client.h"
#include "store/store.h"

namespace bedplate::store {

template <typename Request>
struct RemoteReads {
  // For one read's key and version; its range is filled in here. Throws Error for what is no key.
  std::function<Request(const Read&)> request;
  std::function<HttpRequest&(Request&)> http;
  std::function<void(std::span<Request>)> perform;
  std::function<std::string(const HttpAnswer&)> version;  // of the object that was answered with
};

template <typename Request>
void read_remotely(std::span<Read> reads, const RemoteReads<Request>& how) {
  std::vector<Request> requests;
  std::vector<Read*> asked;
  begin_reads(reads, [&](Read& one) {
    Request request = how.request(one);
    if (one.offset < 0) {
      throw Error(Code::kInvalid, "{}: a range cannot begin at byte {}", how.http(request).what,
                  one.offset);
    }
    if (one.into.empty()) return;
    how.http(request).into = one.into;
    how.http(request).range_begin = one.offset;
    requests.push_back(std::move(request));
    asked.push_back(&one);
  });
  how.perform(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Read& one = *asked[i];
    const HttpRequest& http = how.http(requests[i]);
    const bool other_version =
        !one.version.empty() &&
        (http.error ? http.answer.status == 412 : how.version(http.answer) != one.version);
    one.error = other_version
                    ? Error(Code::kCorrupt, "{}: it changed since it was indexed (then version {})",
                            http.what, to_utf8(one.version))
                    : http.error;
  }
}

}  // namespace bedplate::store
