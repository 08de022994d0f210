#include "store/internal/http_transfer.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/text.h"

namespace bedplate::store {
namespace {

constexpr std::size_t kMostErrorText = 64 * kKiB;
constexpr long kBuffer = 256 * kKiB;  // curl's own 16 KiB cost four times the calls
constexpr long kMostRedirects = 5;

using Again = HttpFailure::Again;

template <typename T>
void set(CURL* easy, CURLoption option, T value) {
  const CURLcode code = curl_easy_setopt(easy, option, value);
  if (code != CURLE_OK) {
    throw Error(Code::kInternal, "libcurl refuses option {}: {}", static_cast<int>(option),
                curl_easy_strerror(code));
  }
}

// Descriptors of connections are not for programs that this process starts.
curl_socket_t open_socket(void*, curlsocktype, curl_sockaddr* address) {
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

bool can_be_matched(std::string_view etag) { return etag.starts_with('"'); }  // no weak one can

bool may_pass(int status) {
  constexpr int kPassing[] = {408, 429, 500, 502, 503, 504};
  return std::ranges::find(kPassing, status) != std::end(kPassing);
}

Code code_of(int status) {
  if (status == 401 || status == 403 || status == 407) return Code::kPermission;
  if (status == 404 || status == 410) return Code::kNotFound;
  if (status == 405 || status == 501) return Code::kUnsupported;
  if (status == 412) return Code::kCorrupt;
  if (status == 507) return Code::kNoSpace;
  return may_pass(status) || status == 409 ? Code::kUnavailable : Code::kInvalid;
}

}  // namespace

void HttpTransfer::start(CURL* easy) {
  ++request_.answer.attempts;
  if (!can_be_matched(part_etag_)) received_ = 0;
  if (received_ == 0) part_etag_.clear();
  sent_ = 0;
  body_began_ = stopped_ = false;
  verdict_.reset();
  curl_message_[0] = '\0';
  request_.answer = {.attempts = request_.answer.attempts};
  last_progress_ = real_clock().now();
  if (began_ == 0) began_ = last_progress_;

  set(easy, CURLOPT_URL, request_.url.c_str());
  set(easy, CURLOPT_PRIVATE, static_cast<void*>(this));
  set(easy, CURLOPT_ERRORBUFFER, static_cast<char*>(curl_message_));
  set(easy, CURLOPT_NOSIGNAL, 1L);
  set(easy, CURLOPT_QUICK_EXIT, 1L);  // a name that is not resolved in time is not waited for
  set(easy, CURLOPT_PATH_AS_IS, 1L);
  set(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  // One transfer a connection: streams of one HTTP/2 connection would share its one TCP window.
  set(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(easy, CURLOPT_SSL_VERIFYPEER, 1L);
  set(easy, CURLOPT_SSL_VERIFYHOST, 2L);
  set(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  set(easy, CURLOPT_BUFFERSIZE, kBuffer);
  set(easy, CURLOPT_UPLOAD_BUFFERSIZE, kBuffer);
  set(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(easy, CURLOPT_OPENSOCKETFUNCTION, &open_socket);
  set(easy, CURLOPT_HEADERFUNCTION, &HttpTransfer::on_header);
  set(easy, CURLOPT_HEADERDATA, static_cast<void*>(this));
  set(easy, CURLOPT_WRITEFUNCTION, &HttpTransfer::on_body);
  set(easy, CURLOPT_WRITEDATA, static_cast<void*>(this));
  // Over a kept connection that turns out to have ended curl itself sends a request twice.
  if (request_.repeat == HttpRequest::Repeat::kWhenNotDone) set(easy, CURLOPT_FRESH_CONNECT, 1L);
  if (request_.proxy == HttpRequest::Proxy::kNone) set(easy, CURLOPT_PROXY, "");
  set_method(easy);
  set_headers(easy);
}

void HttpTransfer::set_method(CURL* easy) {
  switch (request_.method) {
    case HttpMethod::kGet:
      set(easy, CURLOPT_HTTPGET, 1L);
      break;
    case HttpMethod::kHead:
      set(easy, CURLOPT_NOBODY, 1L);
      break;
    case HttpMethod::kDelete:
      set(easy, CURLOPT_CUSTOMREQUEST, "DELETE");
      break;
    case HttpMethod::kPost:
    case HttpMethod::kPut:
      set(easy, CURLOPT_UPLOAD, 1L);
      if (request_.method == HttpMethod::kPost) set(easy, CURLOPT_CUSTOMREQUEST, "POST");
      set(easy, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(body_size()));
      set(easy, CURLOPT_READFUNCTION, &HttpTransfer::on_send);
      set(easy, CURLOPT_READDATA, static_cast<void*>(this));
      set(easy, CURLOPT_SEEKFUNCTION, &HttpTransfer::on_seek);
      set(easy, CURLOPT_SEEKDATA, static_cast<void*>(this));
      return;
  }
  if (request_.redirects == HttpRequest::Redirects::kFollow &&
      request_.method != HttpMethod::kDelete) {
    set(easy, CURLOPT_FOLLOWLOCATION, 1L);
    set(easy, CURLOPT_MAXREDIRS, kMostRedirects);
    set(easy, CURLOPT_UNRESTRICTED_AUTH, 0L);  // another host gets no Authorization header
    const bool encrypted = request_.url.starts_with("https://");
    set(easy, CURLOPT_REDIR_PROTOCOLS_STR, encrypted ? "https" : "http,https");
  }
}

void HttpTransfer::set_headers(CURL* easy) {
  HttpHeaders headers = request_.headers;
  if (!request_.into.empty()) {
    const std::int64_t end = request_.range_begin + std::ssize(request_.into);
    headers.push_back(
        {"Range", fmt::format("bytes={}-{}", request_.range_begin + received_, end - 1)});
    if (received_ > 0 && header(headers, "If-Match").empty())
      headers.push_back({"If-Match", part_etag_});
  }
  if (request_.sign) request_.sign(headers);
  sent_headers_.reset();
  const auto append = [&](const std::string& line) {
    curl_slist* grown = curl_slist_append(sent_headers_.get(), line.c_str());
    if (grown == nullptr) throw Error(Code::kNoSpace, "no memory for the headers of a request");
    static_cast<void>(sent_headers_.release());
    sent_headers_.reset(grown);
  };
  for (const auto& [key, value] : headers) {
    if ((key + value).find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos)
      throw Error(Code::kInvalid, "the header {} of a request holds a line break", to_utf8(key));
    append(value.empty() ? key + ";" : key + ": " + value);
  }
  append("Expect:");  // no waiting for "100 Continue", which not every server sends
  set(easy, CURLOPT_HTTPHEADER, sent_headers_.get());
}

std::size_t HttpTransfer::on_header(char* data, std::size_t size, std::size_t n, void* self) {
  auto& transfer = *static_cast<HttpTransfer*>(self);
  transfer.last_progress_ = real_clock().now();
  transfer.take_header({data, size * n});
  return size * n;
}

void HttpTransfer::take_header(std::string_view line) {
  HttpAnswer& answer = request_.answer;
  if (line.starts_with("HTTP/")) {  // of an interim answer, a redirect or the last one
    const auto parts = words(line);
    answer.headers.clear();
    answer.text.clear();
    answer.status = parts.size() < 2 ? 0 : static_cast<int>(to_int(parts[1]).value_or(0));
    return;
  }
  const auto colon = line.find(':');
  if (colon == std::string_view::npos) return;
  answer.headers.push_back(
      {ascii_lower(trim(line.substr(0, colon))), std::string(trim(line.substr(colon + 1)))});
}

std::size_t HttpTransfer::on_body(char* data, std::size_t size, std::size_t n, void* self) {
  auto& transfer = *static_cast<HttpTransfer*>(self);
  transfer.last_progress_ = real_clock().now();
  // Anything but the number of bytes ends the attempt.
  return transfer.take_body({data, size * n}) ? size * n : 0;
}

bool HttpTransfer::take_body(std::string_view bytes) {
  if (bytes.empty()) return true;
  HttpAnswer& answer = request_.answer;
  if (!is_expected(answer.status)) {
    answer.text += bytes.substr(0, kMostErrorText - std::min(kMostErrorText, answer.text.size()));
    return true;
  }
  if (request_.take == HttpRequest::Take::kHeaders) {
    stopped_ = true;
    return false;
  }
  if (request_.into.empty()) {
    if (std::ssize(answer.text) + std::ssize(bytes) > request_.most_text) {
      verdict_ = {Code::kInvalid,
                  fmt::format("the answer of {} is longer than {}", host_of(request_.url),
                              human_bytes(static_cast<double>(request_.most_text)))};
      return false;
    }
    answer.text += bytes;
    return true;
  }
  if (!std::exchange(body_began_, true)) verdict_ = check_range();
  if (verdict_) return false;
  if (std::ssize(bytes) > std::ssize(request_.into) - received_) {
    verdict_ = {
        answer.status == 206 ? Code::kCorrupt : Code::kUnsupported,
        fmt::format("{} sent more than the range that was asked for", host_of(request_.url))};
    return false;
  }
  std::memcpy(request_.into.data() + received_, bytes.data(), bytes.size());
  received_ += std::ssize(bytes);
  return true;
}

std::size_t HttpTransfer::on_send(char* into, std::size_t size, std::size_t n, void* self) {
  auto& transfer = *static_cast<HttpTransfer*>(self);
  transfer.last_progress_ = real_clock().now();
  try {
    return transfer.send_body({reinterpret_cast<std::byte*>(into), size * n});
  } catch (const Error& error) {
    transfer.verdict_ = {error.code(), error.what()};
    return CURL_READFUNC_ABORT;
  }
}

std::size_t HttpTransfer::send_body(std::span<std::byte> into) {
  std::size_t n = std::min(into.size(), static_cast<std::size_t>(body_size() - sent_));
  if (request_.read_body) {
    n = n == 0 ? 0 : request_.read_body(sent_, into.first(n));
  } else if (n > 0) {
    std::memcpy(into.data(), request_.body.data() + sent_, n);
  }
  sent_ += static_cast<std::int64_t>(n);
  return n;
}

int HttpTransfer::on_seek(void* self, curl_off_t offset, int origin) {
  if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  auto& transfer = *static_cast<HttpTransfer*>(self);
  transfer.sent_ = offset;
  // A kept connection had ended: curl sends the request once more over another one.
  ++transfer.request_.answer.attempts;
  return CURL_SEEKFUNC_OK;
}

std::int64_t HttpTransfer::body_size() const {
  return request_.read_body ? request_.body_size : std::ssize(request_.body);
}

bool HttpTransfer::is_expected(int status) const {
  if (!request_.into.empty()) return status == 206 || status == 200;
  return std::ranges::find(request_.expected, status) != request_.expected.end();
}

HttpFailure HttpTransfer::beyond_the_end(std::int64_t object_size) const {
  return {Code::kInvalid, fmt::format("{} bytes from byte {} are not there: the object has {}",
                                      request_.into.size(), request_.range_begin, object_size)};
}

HttpFailure HttpTransfer::short_body(std::int64_t size) const {
  return {Code::kCorrupt,
          fmt::format("{} sent {} bytes of the {} that were asked for", host_of(request_.url), size,
                      request_.into.size()),
          Again::kAlways};
}

// Whether the body that begins is what was asked for.
std::optional<HttpFailure> HttpTransfer::check_range() {
  const HttpHeaders& headers = request_.answer.headers;
  const std::string_view host = host_of(request_.url);
  const std::int64_t size = std::ssize(request_.into);
  const std::int64_t end = request_.range_begin + size;
  const std::string_view etag = header(headers, "etag");
  if (request_.answer.status == 200) {
    const auto length = to_int(header(headers, "content-length"));
    if (length && *length < end) {
      // Of a version that is known the caller knows the size as well.
      if (header(request_.headers, "If-Match").empty()) return beyond_the_end(*length);
      return short_body(*length);
    }
    if (request_.range_begin != 0 || (length && *length != size)) {
      return HttpFailure{
          Code::kUnsupported,
          fmt::format("{} sends whole objects only, no ranges of bytes; copy the object to "
                      "where ranges can be read",
                      host)};
    }
    received_ = 0;
  } else if (received_ > 0 && etag != part_etag_) {
    received_ = 0;
    return HttpFailure{Code::kCorrupt, "the object changed while it was read", Again::kAlways};
  } else {
    const std::string_view text = header(headers, "content-range");
    const auto range = parse_content_range(text);
    const std::int64_t first = request_.range_begin + received_;
    if (range && range->first == first && range->last < end - 1 &&
        range->total == range->last + 1) {
      return beyond_the_end(range->total);
    }
    if (!range || range->first != first || range->last != end - 1) {
      return HttpFailure{Code::kCorrupt,
                         fmt::format("{} sent the range \"{}\" where bytes {}-{} were asked for",
                                     host, to_utf8(text), first, end - 1),
                         Again::kAlways};
    }
  }
  part_etag_ = etag;
  return std::nullopt;
}

std::optional<HttpFailure> HttpTransfer::finish(CURLcode result) {
  if (verdict_) return verdict_;
  if (stopped_) return std::nullopt;
  const int status = request_.answer.status;
  // A server may refuse an upload and close before all of it was sent.
  if (status >= 400 && !is_expected(status)) return of_status();
  if (result != CURLE_OK) return of_curl(result);
  if (!is_expected(status)) return of_status();
  if (request_.into.empty()) return std::nullopt;
  if (!body_began_) {
    if (auto failure = check_range()) return failure;
  }
  if (received_ == std::ssize(request_.into)) return std::nullopt;
  return short_body(received_);
}

HttpFailure HttpTransfer::stalled() const {
  return {Code::kUnavailable,
          fmt::format("nothing came from {} for {}", host_of(request_.url),
                      human_duration(policy_.attempt_timeout)),
          Again::kIfRepeatable};
}

HttpFailure HttpTransfer::of_status() {
  const HttpAnswer& answer = request_.answer;
  std::string reason = fmt::format("{} answered {}", host_of(request_.url), answer.status);
  const std::string more = request_.explain ? request_.explain(answer) : std::string();
  if (!more.empty()) reason += fmt::format(" ({})", more);
  HttpFailure failure{code_of(answer.status), std::move(reason)};
  // Of an object that grew shorter or changed, the part that is there is no use any more; a range
  // whose first part came existed.
  const bool ours = received_ > 0 && header(request_.headers, "If-Match").empty();
  if (ours && (answer.status == 412 || answer.status == 416)) {
    received_ = 0;
    failure = {Code::kCorrupt, "the object changed while it was read", Again::kAlways};
  } else if (may_pass(answer.status)) {
    const bool undone = answer.status == 429 || answer.status == 503 || answer.status == 408;
    failure.again = undone ? Again::kAlways : Again::kIfRepeatable;
    failure.retry_after =
        parse_retry_after(header(answer.headers, "retry-after"), real_clock().wall_now());
  }
  return failure;
}

HttpFailure HttpTransfer::of_curl(CURLcode result) const {
  std::string_view detail = trim(curl_message_);
  if (detail.empty() || detail.find("://") != std::string_view::npos)  // no URL: it has its query
    detail = curl_easy_strerror(result);
  const std::string reason = fmt::format("{}: {}", host_of(request_.url), to_utf8(detail));
  switch (result) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
      return {Code::kUnavailable, reason, Again::kAlways};
    case CURLE_PARTIAL_FILE:
      return {Code::kCorrupt, reason, Again::kIfRepeatable};
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
      return {Code::kUnavailable, reason, Again::kIfRepeatable};
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return {Code::kPermission, reason + "; its TLS certificate is not trusted here"};
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return {Code::kInvalid, reason};
    case CURLE_OUT_OF_MEMORY:
      return {Code::kNoSpace, reason};
    default:
      return {Code::kUnavailable, reason};
  }
}

Error HttpTransfer::error(const HttpFailure& failure) const {
  const int attempts = request_.answer.attempts;
  return {failure.code, "{}: {}{}", request_.what, failure.reason,
          attempts > 1 ? fmt::format("; tried {} times", attempts) : std::string()};
}

}  // namespace bedplate::store
