#include "store/internal/s3_writer.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <pugixml.hpp>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::store {
namespace {

std::string md5_hex(std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  // A machine in FIPS mode has no MD5: then no ETag is known to be ours.
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_md5(), nullptr) != 1)
    return {};
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

// S3's ETag of a whole made of parts: the MD5 of their MD5s and their number. Empty where the
// parts' ETags are no MD5s (some ways of encryption).
std::string etag_of_parts(const std::vector<std::string>& etags) {
  std::vector<std::byte> digests;
  for (const std::string& etag : etags) {
    if (etag.size() != 32) return {};
    for (std::size_t i = 0; i < etag.size(); i += 2) {
      const auto byte = to_int(std::string_view(etag).substr(i, 2), 16);
      if (!byte || *byte < 0) return {};
      digests.push_back(static_cast<std::byte>(*byte));
    }
  }
  const std::string digest = md5_hex(digests);
  return digest.empty() ? digest : fmt::format("{}-{}", digest, etags.size());
}

Code code_of(const S3Error& error) {
  if (error.code == "AccessDenied") return Code::kPermission;
  if (error.code == "PreconditionFailed") return Code::kExists;
  if (error.code == "NoSuchUpload" || error.code == "NoSuchBucket") return Code::kNotFound;
  if (error.code.starts_with("InvalidPart")) return Code::kCorrupt;
  return Code::kUnavailable;
}

}  // namespace

std::string bare_etag(std::string_view etag) {
  if (etag.size() >= 2 && etag.starts_with('"') && etag.ends_with('"'))
    etag = etag.substr(1, etag.size() - 2);
  return std::string(etag);
}

std::optional<ObjectInfo> find_object(S3Bucket& bucket, std::string_view key, Deadline deadline) {
  S3Request request = bucket.request(HttpMethod::kHead, key, "cannot look up");
  request.http.expected = {200, 404};
  const HttpAnswer answer = bucket.perform_one(request, deadline);
  if (answer.status == 404) return std::nullopt;
  const auto size = to_int(header(answer.headers, "content-length"));
  if (!size) {
    throw Error(Code::kUnsupported, "{} does not say how many bytes {} has",
                host_of(request.http.url), bucket.url_of(key));
  }
  return ObjectInfo{std::string(key), *size, bare_etag(header(answer.headers, "etag"))};
}

S3Writer::S3Writer(std::shared_ptr<S3Bucket> bucket, std::string_view key, IfExists if_exists,
                   Nanos timeout)
    : bucket_(std::move(bucket)),
      key_(key),
      if_exists_(if_exists),
      timeout_(timeout),
      owner_(::getpid()) {
  refuse_if_it_exists(Deadline::after(timeout_));  // before gigabytes are sent in vain
}

S3Writer::~S3Writer() {
  if (upload_id_.empty() || owner_ != ::getpid()) return;
  constexpr Nanos kLongestGoodbye = 10 * kSecond;
  S3Request request = bucket_->request(HttpMethod::kDelete, key_, "cannot abort the upload of");
  request.query = {{"uploadId", upload_id_}};
  request.http.expected = {200, 204, 404};
  // What fails here is for the bucket's own rules to clean up: a destructor has nobody to tell.
  bucket_->perform({&request, 1}, Deadline::after(std::min(timeout_, kLongestGoodbye)));
}

void S3Writer::write(std::span<const std::byte> bytes) {
  const Deadline deadline = Deadline::after(timeout_);
  while (!bytes.empty()) {
    const auto limit = static_cast<std::size_t>(part_size(std::ssize(etags_)));
    if (buffer_.size() == limit) {
      send_part(deadline);
      continue;
    }
    const std::size_t n = std::min(bytes.size(), limit - buffer_.size());
    // Doubling by itself would hold up to two parts.
    if (buffer_.size() + n > buffer_.capacity())
      buffer_.reserve(std::min(limit, std::max(buffer_.size() + n, 2 * buffer_.capacity())));
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    size_ += static_cast<std::int64_t>(n);
  }
}

ObjectInfo S3Writer::commit() {
  const Deadline deadline = Deadline::after(timeout_);
  refuse_if_it_exists(deadline);  // for servers that know no If-None-Match
  return upload_id_.empty() ? commit_small(deadline) : commit_parts(deadline);
}

void S3Writer::refuse_if_it_exists(Deadline deadline) const {
  if (if_exists_ == IfExists::kRefuse && find_object(*bucket_, key_, deadline)) throw exists();
}

Error S3Writer::exists() const {
  return {Code::kExists, "{} exists and is not to be replaced", bucket_->url_of(key_)};
}

void S3Writer::begin_upload(Deadline deadline) {
  S3Request request = bucket_->request(HttpMethod::kPost, key_, "cannot write");
  request.query = {{"uploads", ""}};
  const HttpAnswer answer = bucket_->perform_one(request, deadline);
  pugi::xml_document document;
  document.load_buffer(answer.text.data(), answer.text.size());
  upload_id_ = document.child("InitiateMultipartUploadResult").child_value("UploadId");
  if (upload_id_.empty()) {
    throw Error(Code::kCorrupt, "{}: {} began an upload in parts without an id", request.http.what,
                host_of(request.http.url));
  }
}

void S3Writer::send_part(Deadline deadline) {
  if (upload_id_.empty()) begin_upload(deadline);
  S3Request request = bucket_->request(HttpMethod::kPut, key_, "cannot write");
  request.query = {{"partNumber", fmt::format("{}", etags_.size() + 1)}, {"uploadId", upload_id_}};
  request.http.body = buffer_;
  const HttpAnswer answer = bucket_->perform_one(request, deadline);
  std::string etag = bare_etag(header(answer.headers, "etag"));
  if (etag.empty()) {
    throw Error(Code::kCorrupt, "{}: {} took part {} without an ETag", request.http.what,
                host_of(request.http.url), etags_.size() + 1);
  }
  etags_.push_back(std::move(etag));
  buffer_.clear();
}

ObjectInfo S3Writer::commit_small(Deadline deadline) {
  S3Request request = bucket_->request(HttpMethod::kPut, key_, "cannot write");
  request.http.body = buffer_;
  const HttpAnswer answer = send_last(std::move(request), md5_hex(buffer_), deadline);
  return written(header(answer.headers, "etag"), deadline);
}

ObjectInfo S3Writer::commit_parts(Deadline deadline) {
  if (!buffer_.empty()) send_part(deadline);
  std::string list = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (std::size_t i = 0; i < etags_.size(); ++i) {
    list += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>\"{}\"</ETag></Part>", i + 1,
                        etags_[i]);
  }
  list += "</CompleteMultipartUpload>";
  S3Request request = bucket_->request(HttpMethod::kPost, key_, "cannot write");
  request.query = {{"uploadId", upload_id_}};
  request.http.body = std::as_bytes(std::span(list));
  const std::string what = request.http.what;
  const HttpAnswer answer = send_last(std::move(request), etag_of_parts(etags_), deadline);
  std::string etag(header(answer.headers, "etag"));
  if (!answer.text.empty()) {
    // The status is sent before the parts are joined: the body alone tells how that went.
    if (const S3Error error = parse_s3_error(answer.text); !error.code.empty()) {
      if (code_of(error) == Code::kExists) throw exists();
      throw Error(code_of(error), "{}: joining its {} parts failed ({}: {})", what, etags_.size(),
                  to_utf8(error.code), to_utf8(error.message));
    }
    pugi::xml_document document;
    document.load_buffer(answer.text.data(), answer.text.size());
    const pugi::xml_node result = document.child("CompleteMultipartUploadResult");
    if (!result)
      throw Error(Code::kCorrupt, "{}: the answer to joining its parts is no XML of S3", what);
    etag = result.child_value("ETag");
  }
  upload_id_.clear();
  return written(etag, deadline);
}

// Sends what makes the object appear. An attempt whose answer was lost may have done so: then a
// later one meets the object, or no upload any more.
HttpAnswer S3Writer::send_last(S3Request request, std::string_view own_etag, Deadline deadline) {
  HttpRequest& http = request.http;
  const HttpHeaders headers = http.headers;
  if (if_exists_ == IfExists::kRefuse) http.headers.push_back({"If-None-Match", "*"});
  bucket_->perform({&request, 1}, deadline);
  if (http.error && http.answer.status == 501 && if_exists_ == IfExists::kRefuse) {
    http.headers = headers;
    bucket_->perform({&request, 1}, deadline);
  }
  if (!http.error) return http.answer;
  const int status = http.answer.status;
  if (http.answer.attempts > 1 && (status == 412 || status == 404) && !own_etag.empty()) {
    const auto found = find_object(*bucket_, key_, deadline);
    if (found && found->version == own_etag && found->size == size_)
      return {.status = 200, .headers = {{"etag", found->version}}};
  }
  if (status == 412) throw exists();
  throw *http.error;
}

ObjectInfo S3Writer::written(std::string_view etag, Deadline deadline) const {
  if (!etag.empty()) return {key_, size_, bare_etag(etag)};
  auto found = find_object(*bucket_, key_, deadline);
  if (!found || found->size != size_) {
    throw Error(Code::kCorrupt, "{} was written and is not there, or not with its {} bytes",
                bucket_->url_of(key_), size_);
  }
  return *std::move(found);
}

}  // namespace bedplate::store
