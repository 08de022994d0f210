#include "store/internal/sigv4.h"

#include <gmock/gmock.h>

#include <string>

namespace bedplate::store {
namespace {

using ::testing::HasSubstr;

// The examples of the Amazon S3 API Reference, "Signature Calculations for the Authorization
// Header: Transferring Payload in a Single Chunk".
const Credentials kExample{
    "AKIAIOSFODNN7EXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"), {}};
constexpr Nanos kExampleTime = 1'369'353'600 * kSecond;  // 20130524T000000Z

std::string authorization(std::string_view method, std::string_view path, const Query& query,
                          HttpHeaders headers, std::string_view body = {},
                          const Credentials& credentials = kExample) {
  const std::string encoded_path = canonical_path(path);
  const std::string encoded_query = canonical_query(query);
  const std::string body_sha256 = sha256_hex(std::as_bytes(std::span(body)));
  sign_v4({credentials, "us-east-1", kExampleTime},
          {method, "examplebucket.s3.amazonaws.com", encoded_path, encoded_query, body_sha256},
          headers);
  return std::string(header(headers, "Authorization"));
}

TEST(SignV4, GetObjectExample) {
  EXPECT_EQ(authorization("GET", "/test.txt", {}, {{"Range", "bytes=0-9"}}),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(SignV4, PutObjectExample) {
  EXPECT_EQ(authorization("PUT", "/test$file.text", {},
                          {{"Date", "Fri, 24 May 2013 00:00:00 GMT"},
                           {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                          "Welcome to Amazon S3."),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,"
            "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(SignV4, GetBucketLifecycleExample) {
  EXPECT_THAT(
      authorization("GET", "/", {{"lifecycle", ""}}, {}),
      HasSubstr("Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
}

TEST(SignV4, ListObjectsExample) {
  EXPECT_THAT(
      authorization("GET", "/", {{"prefix", "J"}, {"max-keys", "2"}}, {}),
      HasSubstr("Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

TEST(SignV4, ASessionTokenIsSentAndSigned) {
  const Credentials session{"AKIAIOSFODNN7EXAMPLE", Secret("secret"), Secret("the token")};
  HttpHeaders headers;
  sign_v4({session, "us-east-1", kExampleTime}, {"GET", "h", "/", "", "hash"}, headers);
  EXPECT_EQ(header(headers, "x-amz-security-token"), "the token");
  EXPECT_EQ(header(headers, "x-amz-date"), "20130524T000000Z");
  EXPECT_THAT(std::string(header(headers, "Authorization")),
              HasSubstr("host;x-amz-content-sha256;x-amz-date;x-amz-security-token"));
}

TEST(SignV4, PathsAreEncodedOnceAndSlashesStay) {
  EXPECT_EQ(canonical_path("/a b+c/ü%=~/$&,;:@"), "/a%20b%2Bc/%C3%BC%25%3D~/%24%26%2C%3B%3A%40");
  EXPECT_EQ(canonical_path("/A-Z_a.z~09"), "/A-Z_a.z~09");
}

TEST(SignV4, QueriesAreEncodedThenSorted) {
  EXPECT_EQ(canonical_query({{"prefix", "a/b c"}, {"list-type", "2"}, {"b", "+"}, {"b", "%"}}),
            "b=%25&b=%2B&list-type=2&prefix=a%2Fb%20c");
  EXPECT_EQ(canonical_query({}), "");
}

TEST(SignV4, HashOfNothing) {
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace bedplate::store
