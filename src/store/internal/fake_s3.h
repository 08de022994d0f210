// For tests: a server that does what a bucket of S3 does, and fails where it is told to.
//
//   FakeS3 fake;
//   fake.put("a", "bytes");
//   fake.server.fail("/corpus/a", {Fault::status(503)});
//   get(*fake.open(), "a");
#pragma once

#include <openssl/evp.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/text.h"
#include "store/driver.h"
#include "store/internal/http_fault_server.h"

namespace bedplate::store {

extern const Driver kS3;

inline std::string md5_of(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_md5(), nullptr);
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

inline HttpFaultServer::Reply error_reply(int status, std::string_view code,
                                          HttpHeaders headers = {}, std::string_view more = {}) {
  return {status, std::move(headers),
          fmt::format("<?xml version=\"1.0\"?><Error><Code>{}</Code><Message>told so</Message>{}"
                      "</Error>",
                      code, more)};
}

inline std::string parameter(const HttpFaultServer::Request& request, std::string_view name) {
  for (const auto piece : split(request.query, '&')) {
    const auto equals = std::min(piece.find('='), piece.size());
    if (piece.substr(0, equals) == name && equals < piece.size())
      return form_decode(piece.substr(equals + 1)).value_or("?");
  }
  return {};
}

inline bool has_parameter(const HttpFaultServer::Request& request, std::string_view name) {
  return request.query.starts_with(fmt::format("{}=", name)) ||
         request.query.find(fmt::format("&{}=", name)) != std::string::npos;
}

// One bucket, "corpus", by path. Thread-safe.
class FakeS3 {
 public:
  using Request = HttpFaultServer::Request;
  using Reply = HttpFaultServer::Reply;

  FakeS3() {
    server.handle([this](const Request& request) { return answer(request); });
  }

  void put(const std::string& key, const std::string& bytes) {
    const std::lock_guard lock(mutex_);
    objects_[key] = bytes;
  }
  std::map<std::string, std::string> objects() const {
    const std::lock_guard lock(mutex_);
    return objects_;
  }
  std::size_t uploads() const {  // that were begun and neither completed nor aborted
    const std::lock_guard lock(mutex_);
    return uploads_.size();
  }
  void set_page_size(std::size_t objects) {
    const std::lock_guard lock(mutex_);
    page_size_ = objects;
  }
  // What it gives for a request is answered in place of what a bucket would.
  void answer_before(std::function<std::optional<Reply>(const Request&)> before) {
    const std::lock_guard lock(mutex_);
    before_ = std::move(before);
  }

  std::shared_ptr<Store> open(StoreOptions options = {.anonymous = true}) const {
    options.endpoint = server.url();
    options.region = "us-east-1";
    options.retries = 3;
    options.first_pause = kMillisecond;
    options.longest_pause = 2 * kMillisecond;
    return kS3.open({"s3", "corpus", ""}, options).store;
  }

 private:
  Reply answer(const Request& request) {
    const std::lock_guard lock(mutex_);
    if (before_) {
      if (auto reply = before_(request)) return *std::move(reply);
    }
    constexpr std::string_view kBucket = "/corpus";
    if (!request.path.starts_with(kBucket)) return error_reply(404, "NoSuchBucket");
    const std::string key = form_decode(request.path.substr(kBucket.size())).value_or("/?");
    if (key.size() <= 1) return list(request);
    return answer_for(request, key.substr(1));
  }

  Reply answer_for(const Request& request, const std::string& key) {
    if (request.method == "POST" && has_parameter(request, "uploads")) {
      uploads_["id-1"];
      return {200,
              {},
              "<InitiateMultipartUploadResult><UploadId>id-1</UploadId>"
              "</InitiateMultipartUploadResult>"};
    }
    const std::string upload = parameter(request, "uploadId");
    if (!upload.empty() && !uploads_.contains(upload)) return error_reply(404, "NoSuchUpload");
    if (request.method == "POST") return complete(request, key, upload);
    if (request.method == "DELETE") {
      upload.empty() ? objects_.erase(key) : uploads_.erase(upload);
      return {204};
    }
    if (request.method == "PUT" && !upload.empty()) {
      uploads_[upload][static_cast<int>(*to_int(parameter(request, "partNumber")))] = request.body;
      return {200, {{"ETag", etag(request.body)}}};
    }
    if (request.method == "PUT") return put_whole(request, key, request.body);
    return read(request, key);
  }

  static std::string etag(std::string_view bytes) { return '"' + md5_of(bytes) + '"'; }

  Reply put_whole(const Request& request, const std::string& key, const std::string& bytes) {
    if (header(request.headers, "if-none-match") == "*" && objects_.contains(key))
      return error_reply(412, "PreconditionFailed");
    objects_[key] = bytes;
    return {200, {{"ETag", etag(bytes)}}};
  }

  Reply complete(const Request& request, const std::string& key, const std::string& upload) {
    std::string whole;
    for (const auto& [number, bytes] : uploads_[upload]) {
      if (request.body.find(fmt::format("<PartNumber>{}</PartNumber><ETag>{}</ETag>", number,
                                        etag(bytes))) == std::string::npos)
        return error_reply(400, "InvalidPart");
      whole += bytes;
    }
    const Reply reply = put_whole(request, key, whole);
    if (reply.status != 200) return reply;
    uploads_.erase(upload);
    return {200,
            {},
            fmt::format("<CompleteMultipartUploadResult><ETag>{}</ETag>"
                        "</CompleteMultipartUploadResult>",
                        etag(whole))};
  }

  Reply read(const Request& request, const std::string& key) const {
    const auto found = objects_.find(key);
    if (found == objects_.end()) return error_reply(404, "NoSuchKey");
    const std::string& bytes = found->second;
    const auto match = header(request.headers, "if-match");
    if (!match.empty() && match != etag(bytes)) return error_reply(412, "PreconditionFailed");
    Reply reply{200, {{"ETag", etag(bytes)}}, bytes};
    const auto range = header(request.headers, "range");
    if (range.empty()) return reply;
    const auto ends = split(range.substr(6), '-');
    const auto first = static_cast<std::size_t>(*to_int(ends.at(0)));
    if (first >= bytes.size()) return error_reply(416, "InvalidRange");
    const auto last = std::min(static_cast<std::size_t>(*to_int(ends.at(1))), bytes.size() - 1);
    reply.status = 206;
    reply.headers.push_back(
        {"Content-Range", fmt::format("bytes {}-{}/{}", first, last, bytes.size())});
    reply.body = bytes.substr(first, last - first + 1);
    return reply;
  }

  Reply list(const Request& request) const {
    const std::string prefix = parameter(request, "prefix");
    auto at = objects_.upper_bound(parameter(request, "continuation-token"));
    std::string xml =
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
        "<EncodingType>url</EncodingType>";
    std::string last;
    for (std::size_t n = 0; at != objects_.end() && n < page_size_; ++at) {
      if (!at->first.starts_with(prefix)) continue;
      ++n;
      last = at->first;
      std::string key = percent_encode(last, "/ ");
      std::ranges::replace(key, ' ', '+');
      xml += fmt::format(
          "<Contents><Key>{}</Key><ETag>&quot;{}&quot;</ETag><Size>{}</Size>"
          "</Contents>",
          key, md5_of(at->second), at->second.size());
    }
    const bool more = at != objects_.end();
    xml += fmt::format("<IsTruncated>{}</IsTruncated>", more);
    if (more) xml += fmt::format("<NextContinuationToken>{}</NextContinuationToken>", last);
    return {200, {}, xml + "</ListBucketResult>"};
  }

  mutable std::recursive_mutex mutex_;  // answer_before() may look at the objects
  std::map<std::string, std::string> objects_;
  std::map<std::string, std::map<int, std::string>> uploads_;
  std::size_t page_size_ = 1000;
  std::function<std::optional<Reply>(const Request&)> before_;

 public:
  HttpFaultServer server;  // the last: ends before what its threads use
};

}  // namespace bedplate::store
