#include "store/internal/s3_bucket.h"

#include <algorithm>
#include <pugixml.hpp>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::store {
namespace {

constexpr std::string_view kFirstRegion = "us-east-1";

// Without a slash at its end and the port that its scheme has anyway: curl leaves that out of the
// Host header, which is signed.
std::string tidy_endpoint(std::string_view text) {
  const std::string_view given = text;
  const auto scheme_end = text.find("://");
  const std::string scheme = ascii_lower(text.substr(0, scheme_end));
  const bool known = scheme == "http" || scheme == "https";
  if (scheme_end == std::string_view::npos || !known ||
      text.find_first_of("@?# ") != std::string_view::npos) {
    throw Error(Code::kInvalid, "'{}' is no endpoint for S3; give http://host:port or https://host",
                text.find('@') == std::string_view::npos ? without_query(given) : "…@…");
  }
  text.remove_prefix(scheme_end + 3);
  while (text.ends_with('/')) text.remove_suffix(1);
  const auto slash = std::min(text.find('/'), text.size());
  std::string host = ascii_lower(text.substr(0, slash));
  const std::string_view port = scheme == "http" ? ":80" : ":443";
  if (host.ends_with(port)) host.resize(host.size() - port.size());
  if (host.empty()) throw Error(Code::kInvalid, "the endpoint '{}' names no host", given);
  return fmt::format("{}://{}{}", scheme, host, text.substr(slash));
}

// Names that can be a label of a host; one with a dot would not fit Amazon's certificate.
bool can_be_host(std::string_view bucket) {
  return std::ranges::all_of(
      bucket, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

std::string amazon_host(std::string_view region) {
  return fmt::format("s3.{}.amazonaws.com{}", region, region.starts_with("cn-") ? ".cn" : "");
}

std::string explain(const HttpAnswer& answer) {
  constexpr std::size_t kMost = 300;
  const S3Error error = parse_s3_error(answer.text);
  if (error.code.empty()) return {};
  const std::string text =
      error.message.empty() ? error.code : fmt::format("{}: {}", error.code, error.message);
  return to_utf8(std::string_view(text).substr(0, kMost));
}

}  // namespace

S3Error parse_s3_error(std::string_view xml) {
  pugi::xml_document document;
  if (xml.empty() || !document.load_buffer(xml.data(), xml.size())) return {};
  const pugi::xml_node error = document.child("Error");
  return {error.child_value("Code"), error.child_value("Message"), error.child_value("Region")};
}

S3Bucket::S3Bucket(std::string_view name, const StoreOptions& options,
                   const Environment& environment)
    : name_(name),
      options_(options),
      anonymous_(options.anonymous || switched_on(environment, kAnonymousVariable)),
      policy_(retry_policy(options)),
      credentials_({.environment = environment,
                    .instance_profile = options.instance_profile ||
                                                switched_on(environment, kInstanceProfileVariable)
                                            ? CredentialSources::InstanceProfile::kAllowed
                                            : CredentialSources::InstanceProfile::kRefused}) {
  if (name.empty() || name == "." || name == ".." || name.find_first_of("/:") != name.npos)
    throw Error(Code::kInvalid, "'{}' is no name of a bucket", to_utf8(name));
  const AwsSettings settings = aws_settings(environment);
  const std::string& endpoint = options.endpoint.empty() ? settings.endpoint : options.endpoint;
  if (!endpoint.empty()) endpoint_ = tidy_endpoint(endpoint);
  first_region_ = options.region.empty() ? settings.region : options.region;
  if (first_region_.empty()) first_region_ = kFirstRegion;
  using Addressing = StoreOptions::Addressing;
  virtual_host_ =
      options.addressing == Addressing::kVirtualHost ||
      (options.addressing == Addressing::kAuto && endpoint_.empty() && can_be_host(name));
}

std::string S3Bucket::url_of(std::string_view key) const {
  return key.empty() ? url() : fmt::format("{}/{}", url(), to_utf8(key));
}

S3Request S3Bucket::request(HttpMethod method, std::string_view key,
                            std::string_view purpose) const {
  S3Request request;
  request.key = key;
  request.http.method = method;
  request.http.what = fmt::format("{} {}", purpose, url_of(key));
  request.http.explain = explain;
  return request;
}

S3Bucket::Address S3Bucket::address_of(std::string_view key, std::string_view region) const {
  const std::string endpoint =
      endpoint_.empty() ? fmt::format("https://{}", amazon_host(region)) : endpoint_;
  const auto host_begin = endpoint.find("://") + 3;
  const auto host_end = std::min(endpoint.find('/', host_begin), endpoint.size());
  std::string host = endpoint.substr(0, host_end);
  std::string path = endpoint.substr(host_end);
  if (virtual_host_) {
    host.insert(host_begin, name_ + ".");
  } else {
    path += "/" + canonical_path(name_);
  }
  // Signed and sent alike: a bucket by itself is "/" or "/bucket".
  if (virtual_host_ || !key.empty()) path += "/" + canonical_path(key);
  return {std::move(host), std::move(path)};
}

std::string S3Bucket::region() {
  Learnt& learnt = learnt_.get();
  const std::lock_guard lock(learnt.mutex);
  return learnt.region.empty() ? first_region_ : learnt.region;
}

void S3Bucket::prepare(S3Request& request, Deadline deadline) {
  request.region = region();
  const Address address = address_of(request.key, request.region);
  const std::string query = canonical_query(request.query);
  HttpRequest& http = request.http;
  http.url = address.scheme_and_host + address.path + (query.empty() ? "" : "?" + query);
  if (anonymous_) return;
  http.sign = [this, &request, deadline, query, region = request.region, path = address.path,
               method = store::name(http.method),
               host = std::string(host_of(address.scheme_and_host)),
               body_sha256 = sha256_hex(http.body)](HttpHeaders& headers) {
    const Credentials credentials = credentials_.get(deadline);
    request.key_id = credentials.key_id;
    sign_v4({credentials, region, real_clock().wall_now()},
            {method, host, path, query, body_sha256}, headers);
  };
}

void S3Bucket::perform_prepared(std::span<S3Request* const> requests, Deadline deadline) {
  std::vector<HttpRequest> http;
  http.reserve(requests.size());
  for (S3Request* request : requests) {
    prepare(*request, deadline);
    http.push_back(std::move(request->http));
  }
  store::perform(http, options_.queue_depth, deadline, policy_);
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i]->http = std::move(http[i]);
}

void S3Bucket::perform(std::span<S3Request> requests, Deadline deadline) {
  std::vector<S3Request*> to_do;
  for (S3Request& request : requests) to_do.push_back(&request);
  perform_prepared(to_do, deadline);
  std::erase_if(to_do, [&](const S3Request* request) { return !asks_for_another_try(*request); });
  perform_prepared(to_do, deadline);
  for (S3Request& request : requests) refine_error(request);
}

HttpAnswer S3Bucket::perform_one(S3Request& request, Deadline deadline) {
  perform({&request, 1}, deadline);
  if (request.http.error) throw *request.http.error;
  return request.http.answer;
}

// A bucket of another region says where it is; Amazon S3 API Reference, "Error responses", and
// HeadBucket. Keys that expired meanwhile may have been replaced at their source.
bool S3Bucket::asks_for_another_try(const S3Request& request) {
  if (!request.http.error) return false;
  const HttpAnswer& answer = request.http.answer;
  if (answer.status < 300 || answer.status >= 500) return false;
  const S3Error error = parse_s3_error(answer.text);
  if (error.code == "ExpiredToken") {
    credentials_.forget();
    return true;
  }
  const bool about_region = answer.status == 301 || answer.status == 307 || answer.status == 400;
  std::string right(header(answer.headers, "x-amz-bucket-region"));
  if (right.empty()) right = error.region;
  if (!about_region || right.empty()) return false;
  // A name of a host is made of it.
  if (!can_be_host(right)) return false;
  Learnt& learnt = learnt_.get();
  const std::lock_guard lock(learnt.mutex);
  learnt.region = right;
  return request.region != right;
}

void S3Bucket::refine_error(S3Request& request) const {
  std::optional<Error>& error = request.http.error;
  if (!error) return;
  if (parse_s3_error(request.http.answer.text).code == "NoSuchBucket") {
    error = Error(Code::kNotFound, "{}: the bucket {} does not exist at {}", request.http.what,
                  name_, host_of(request.http.url));
  } else if (error->code() == Code::kPermission && !request.key_id.empty()) {
    error = Error(Code::kPermission, "{}; it was signed with the key {}", error->what(),
                  to_utf8(request.key_id));
  }
}

}  // namespace bedplate::store
