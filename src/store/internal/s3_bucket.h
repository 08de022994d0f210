// Signed requests to one bucket.
//
//   S3Bucket bucket("corpus", options);
//   S3Request request = bucket.request(HttpMethod::kGet, "train/000.tar", "cannot read");
//   request.http.into = bytes;
//   bucket.perform({&request, 1}, deadline);
//   if (request.http.error) …
//
// Knows where the bucket is reached (endpoint, region, path or virtual-host style), signs, takes
// the error documents of S3 apart, and asks once more where the bucket lives in another region or
// the credentials have expired. Thread-safe.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "os/per_process.h"
#include "store/driver.h"
#include "store/internal/credentials.h"
#include "store/internal/http_client.h"
#include "store/internal/sigv4.h"

namespace bedplate::store {

struct S3Request {
  std::string key;  // empty: the bucket itself
  Query query = {};
  HttpRequest http = {};    // without URL and signature
  std::string region = {};  // out: what it was sent to and signed for
  std::string key_id = {};  // out: whose signature it carried last; empty: none
};

// <Error><Code>…</Code><Message>…</Message></Error>; empty for anything else.
struct S3Error {
  std::string code;
  std::string message;
  std::string region;  // the right one, if the error is about that
};
S3Error parse_s3_error(std::string_view xml);

class S3Bucket {
 public:
  // Throws Error{kInvalid} for an endpoint that is no URL and a name that no bucket can have.
  S3Bucket(std::string_view name, const StoreOptions& options,
           const Environment& environment = process_environment());

  const std::string& name() const { return name_; }
  std::string url() const { return "s3://" + name_; }
  std::string url_of(std::string_view key) const;  // for messages

  // `purpose` begins its messages: "cannot read".
  S3Request request(HttpMethod method, std::string_view key, std::string_view purpose) const;
  // As many at once as StoreOptions::queue_depth says; each request has its own error.
  void perform(std::span<S3Request> requests, Deadline deadline);
  // One request; throws its error.
  HttpAnswer perform_one(S3Request& request, Deadline deadline);

 private:
  struct Address {
    std::string scheme_and_host;
    std::string path;  // encoded
  };
  struct Learnt {
    std::mutex mutex;
    std::string region;
  };

  Address address_of(std::string_view key, std::string_view region) const;
  std::string region();
  void prepare(S3Request& request, Deadline deadline);
  void perform_prepared(std::span<S3Request* const> requests, Deadline deadline);
  bool asks_for_another_try(const S3Request& request);
  void refine_error(S3Request& request) const;

  const std::string name_;
  const StoreOptions options_;
  const bool anonymous_;
  const RetryPolicy policy_;
  std::string endpoint_;  // "http://host:port/prefix"; empty: Amazon's
  std::string first_region_;
  bool virtual_host_ = false;
  CredentialChain credentials_;
  os::PerProcess<Learnt> learnt_;
};

}  // namespace bedplate::store
