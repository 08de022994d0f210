#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "store/driver.h"
#include "store/internal/http_client.h"
#include "store/internal/remote_reads.h"

namespace bedplate::store {
namespace {

// In a key that was copied from a browser or a mail: what no URL may hold as it stands (RFC 3986,
// section 2). "%" stays, since a key is the URL's own text.
std::string url_text(std::string_view key) { return percent_encode(key, "%/?:@!$&'()*+,;=[]"); }

// Servers without an ETag: the time of the last change and the size stand for it.
constexpr std::string_view kModified = "modified ";

std::string version_of(const HttpHeaders& headers, std::int64_t size) {
  const auto etag = header(headers, "etag");
  if (!etag.empty()) return std::string(etag);
  const auto modified = header(headers, "last-modified");
  if (modified.empty()) return {};
  return fmt::format("{}{}; {} bytes", kModified, modified, size);
}

// The condition under which a server sends another version's bytes to nobody.
std::optional<HttpHeader> condition_for(std::string_view version) {
  if (version.starts_with('"')) return HttpHeader{"If-Match", std::string(version)};
  if (!version.starts_with(kModified)) return std::nullopt;  // a weak ETag never matches
  const auto date = version.substr(kModified.size(), version.find(';') - kModified.size());
  return HttpHeader{"If-Unmodified-Since", std::string(date)};
}

std::optional<std::int64_t> size_of_whole(const HttpAnswer& answer) {
  if (answer.status == 200) return to_int(header(answer.headers, "content-length"));
  if (answer.status == 416) {  // "bytes */0": an empty object has no first byte
    const auto text = header(answer.headers, "content-range");
    return to_int(trim(text.substr(std::min(text.find('/'), text.size() - 1) + 1)));
  }
  const auto range = parse_content_range(header(answer.headers, "content-range"));
  if (!range || range->total < 0) return std::nullopt;
  return range->total;
}

class HttpStore : public Store {
 public:
  HttpStore(std::string base, const StoreOptions& options)
      : base_(std::move(base)), options_(options), policy_(retry_policy(options)) {}

  std::string url() const override { return base_; }

  std::optional<ObjectInfo> find(std::string_view key, Deadline deadline) override {
    HttpAnswer answer = perform_one(look_at(key, HttpMethod::kHead), deadline, policy_);
    if (answer.status == 404 || answer.status == 410) return std::nullopt;
    auto size = answer.status == 200 ? size_of_whole(answer) : std::nullopt;
    if (!size) {
      answer = perform_one(look_at(key, HttpMethod::kGet), deadline, policy_);
      if (answer.status == 404 || answer.status == 410) return std::nullopt;
      size = size_of_whole(answer);
    }
    if (!size) {
      throw Error(Code::kUnsupported, "{} does not say how many bytes {} has", host_of(base_),
                  without_query(url_of(key)));
    }
    return ObjectInfo{std::string(key), *size, version_of(answer.headers, *size)};
  }

  void read(std::span<Read> reads, Deadline deadline) override {
    read_remotely<HttpRequest>(
        reads, {.request = [this](const Read& one) { return read_request(one); },
                .http = [](HttpRequest& request) -> HttpRequest& { return request; },
                .perform =
                    [&](std::span<HttpRequest> requests) {
                      perform(requests, options_.queue_depth, deadline, policy_);
                    },
                .version =
                    [](const HttpAnswer& answer) {
                      return version_of(answer.headers, size_of_whole(answer).value_or(-1));
                    }});
  }

  void list(std::string_view, const Visit&, Deadline) override {
    throw Error(Code::kUnsupported, "{}: a web server cannot list what it has; name the objects",
                base_);
  }
  std::unique_ptr<ObjectWriter> create(std::string_view, IfExists, Nanos) override {
    throw Error(Code::kUnsupported,
                "{}: a web server is only read from; write to s3:// or a folder", base_);
  }
  void remove(std::string_view, Deadline) override {
    throw Error(Code::kUnsupported, "{}: nothing is removed from a web server", base_);
  }

 private:
  static void check(std::string_view key) { check_key(key.substr(0, key.find('?'))); }

  std::string url_of(std::string_view key) const {
    check(key);
    return fmt::format("{}/{}", base_, url_text(key));
  }

  HttpRequest request_for(std::string_view key, HttpMethod method) const {
    HttpRequest request;
    request.url = url_of(key);
    request.what = fmt::format("cannot read {}", without_query(request.url));
    request.method = method;
    request.redirects = HttpRequest::Redirects::kFollow;
    return request;
  }

  // Size and version, by HEAD or by the first byte. URLs that are signed for GET and some servers
  // refuse HEAD, with various words.
  HttpRequest look_at(std::string_view key, HttpMethod method) const {
    HttpRequest request = request_for(key, method);
    if (method == HttpMethod::kHead) {
      request.expected = {200, 400, 401, 403, 404, 405, 410, 501};
    } else {
      request.headers = {{"Range", "bytes=0-0"}};
      request.expected = {200, 206, 404, 410, 416};
      request.take = HttpRequest::Take::kHeaders;
    }
    return request;
  }

  HttpRequest read_request(const Read& one) const {
    HttpRequest request = request_for(one.key, HttpMethod::kGet);
    if (auto condition = condition_for(one.version)) request.headers = {*std::move(condition)};
    return request;
  }

  const std::string base_;  // "http://host:port"
  const StoreOptions options_;
  const RetryPolicy policy_;
};

Driver::Opened open_http(const Url& url, const StoreOptions& options) {
  return {std::make_shared<HttpStore>(fmt::format("{}://{}", url.scheme, url.authority), options),
          url.path};
}

constexpr std::string_view kSchemes[] = {"http", "https"};

}  // namespace

extern const Driver kHttp = {
    .name = "http",
    .schemes = kSchemes,
    .summary = "objects behind a web server that sends ranges of bytes; read only",
    .open = open_http,
};

}  // namespace bedplate::store
