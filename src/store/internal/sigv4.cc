#include "store/internal/sigv4.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::store {
namespace {

using Digest = std::array<unsigned char, 32>;

std::string hex(const Digest& digest) {
  std::string out;
  for (const unsigned char byte : digest) out += fmt::format("{:02x}", byte);
  return out;
}

Digest sha256(std::span<const std::byte> bytes) {
  Digest digest{};
  BEDPLATE_CHECK(
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1);
  return digest;
}

Digest hmac_sha256(std::span<const unsigned char> key, std::string_view text) {
  Digest digest{};
  unsigned int size = 0;
  BEDPLATE_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                      reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                      digest.data(), &size) != nullptr);
  return digest;
}

// "20130524T000000Z".
std::string basic_iso_time(Nanos wall_time) {
  const std::time_t time = wall_time / kSecond;
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1,
                     utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

// Runs of spaces inside a value count as one.
std::string canonical_value(std::string_view value) {
  std::string out;
  for (const auto word : words(value)) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

Digest signing_key(const SigningScope& scope, std::string_view date) {
  const std::string secret = "AWS4" + scope.credentials.secret_key.reveal();
  Digest key =
      hmac_sha256({reinterpret_cast<const unsigned char*>(secret.data()), secret.size()}, date);
  for (const std::string_view step :
       {scope.region, std::string_view("s3"), std::string_view("aws4_request")}) {
    key = hmac_sha256(key, step);
  }
  return key;
}

}  // namespace

void sign_v4(const SigningScope& scope, const SignedParts& parts, HttpHeaders& headers) {
  const std::string time = basic_iso_time(scope.wall_time);
  const std::string_view date = std::string_view(time).substr(0, 8);
  headers.push_back({"x-amz-content-sha256", std::string(parts.body_sha256)});
  headers.push_back({"x-amz-date", time});
  if (!scope.credentials.session_token.empty())
    headers.push_back({"x-amz-security-token", scope.credentials.session_token.reveal()});

  HttpHeaders canonical{{"host", std::string(parts.host)}};
  for (const auto& [key, value] : headers)
    canonical.push_back({ascii_lower(key), canonical_value(value)});
  std::ranges::sort(canonical, {}, &HttpHeader::name);
  std::string lines;
  std::string names;
  for (const auto& [key, value] : canonical) {
    lines += fmt::format("{}:{}\n", key, value);
    names += (names.empty() ? "" : ";") + key;
  }
  const std::string request = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", parts.method, parts.path,
                                          parts.query, lines, names, parts.body_sha256);
  const std::string credential_scope = fmt::format("{}/{}/s3/aws4_request", date, scope.region);
  const std::string to_sign = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, credential_scope,
                                          sha256_hex(std::as_bytes(std::span(request))));
  headers.push_back({"Authorization",
                     fmt::format("AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={},Signature={}",
                                 scope.credentials.key_id, credential_scope, names,
                                 hex(hmac_sha256(signing_key(scope, date), to_sign)))});
}

std::string canonical_path(std::string_view path) { return percent_encode(path, "/"); }

std::string canonical_query(Query query) {
  for (auto& [key, value] : query) {
    key = percent_encode(key);
    value = percent_encode(value);
  }
  std::ranges::sort(query);  // after encoding, as the rule says
  std::string out;
  for (const auto& [key, value] : query)
    out += fmt::format("{}{}={}", out.empty() ? "" : "&", key, value);
  return out;
}

std::string sha256_hex(std::span<const std::byte> bytes) { return hex(sha256(bytes)); }

}  // namespace bedplate::store
