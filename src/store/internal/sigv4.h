// AWS Signature Version 4 of one request to S3, its body signed as a whole.
//
//   sign_v4(scope, {.method = "GET", .host = "b.s3.amazonaws.com", .path = "/a%20b"}, headers);
//   // headers now holds x-amz-date, x-amz-content-sha256, Authorization, …
//
// Source: Amazon S3 API Reference, "Authenticating Requests: Using the Authorization Header (AWS
// Signature Version 4)", docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html.
// Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "store/internal/credentials.h"
#include "store/internal/http_text.h"

namespace bedplate::store {

struct SigningScope {
  const Credentials& credentials;
  std::string_view region;
  Nanos wall_time = 0;  // since 1970
};

// Names and values of a query as they are, not encoded.
using Query = std::vector<std::pair<std::string, std::string>>;

struct SignedParts {
  std::string_view method;
  std::string_view host;   // as the Host header has it
  std::string_view path;   // encoded: canonical_path()
  std::string_view query;  // encoded and sorted: canonical_query()
  std::string_view body_sha256;
};

// Signs all of `headers`, the host, and what it adds to `headers`.
void sign_v4(const SigningScope& scope, const SignedParts& parts, HttpHeaders& headers);

std::string canonical_path(std::string_view path);  // "/a b" → "/a%20b"
std::string canonical_query(Query query);           // {{"lifecycle", ""}} → "lifecycle="

std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace bedplate::store
