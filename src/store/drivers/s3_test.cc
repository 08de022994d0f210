// The S3 driver against a fake that does what a bucket does, and fails where a bucket may.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "store/driver.h"
#include "store/internal/fake_s3.h"
#include "store/internal/s3_bucket.h"
#include "store/internal/s3_writer.h"

namespace bedplate::store {

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Request = HttpFaultServer::Request;
using Reply = HttpFaultServer::Reply;

Deadline soon() { return Deadline::after(10 * kSecond); }

template <typename Act>
Error error_of(Act act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  return {Code::kInternal, "nothing was thrown"};
}

Read read_of(std::string& into, const std::string& key, std::string version = {}) {
  return {
      .key = key, .into = std::as_writable_bytes(std::span(into)), .version = std::move(version)};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(S3, WritesFindsReadsAndRemoves) {
  FakeS3 fake;
  const auto store = fake.open();
  const std::string key = "a b/ü+%=~.tar";
  const ObjectInfo written = put(*store, key, "0123456789");
  EXPECT_EQ(written, (ObjectInfo{key, 10, md5_of("0123456789")}));
  EXPECT_EQ(store->find(key, soon()), written);
  EXPECT_EQ(get(*store, key), "0123456789");
  EXPECT_EQ(fake.objects().count(key), 1u);
  store->remove(key, soon());
  store->remove(key, soon());
  EXPECT_EQ(store->find(key, soon()), std::nullopt);
}

TEST(S3, ListsAllPagesInTheOrderOfTheKeys) {
  FakeS3 fake;
  fake.set_page_size(2);
  for (const char* key : {"t/a/1", "t/a-1", "t/b c+d", "t/ü", "t/z/", "u"}) fake.put(key, "xyz");
  std::vector<std::string> keys;
  fake.open()->list(
      "t/",
      [&](const ObjectInfo& object) {
        keys.push_back(object.key);
        EXPECT_EQ(object.size, 3);
        EXPECT_EQ(object.version, md5_of("xyz"));
      },
      soon());
  EXPECT_THAT(keys, ElementsAre("t/a-1", "t/a/1", "t/b c+d", "t/ü"));
  EXPECT_EQ(fake.server.requests("/corpus"), 3);
}

TEST(S3, AListThatLeadsNowhereIsCorrupt) {
  FakeS3 fake;
  fake.answer_before([](const Request&) -> std::optional<Reply> {
    return Reply{200, {}, "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"};
  });
  const Error error = error_of([&] {
    fake.open()->list(
        "", [](const ObjectInfo&) {}, soon());
  });
  EXPECT_EQ(error.code(), Code::kCorrupt);
  EXPECT_THAT(error.what(), HasSubstr("cannot list s3://corpus"));
}

TEST(S3, ReadsOfOneVersionOnly) {
  FakeS3 fake;
  fake.put("a", "old");
  const auto store = fake.open();
  const std::string version = info(*store, "a").version;
  std::string into(3, '?');
  read_exactly(*store, read_of(into, "a", version));
  EXPECT_EQ(into, "old");
  EXPECT_EQ(header(fake.server.seen().back().headers, "if-match"), '"' + version + '"');
  fake.put("a", "new");
  const Error error = error_of([&] { read_exactly(*store, read_of(into, "a", version)); });
  EXPECT_EQ(error.code(), Code::kCorrupt);
  EXPECT_THAT(error.what(), HasSubstr("changed since it was indexed"));
}

TEST(S3, AServerThatIgnoresIfMatchDoesNotPassAnotherVersion) {
  FakeS3 fake;
  fake.server.handle([](const Request&) -> Reply {
    return {206, {{"ETag", "\"other\""}, {"Content-Range", "bytes 0-2/3"}}, "new"};
  });
  std::string into(3, '?');
  const auto store = fake.open();
  EXPECT_EQ(error_of([&] { read_exactly(*store, read_of(into, "a", "v1")); }).code(),
            Code::kCorrupt);
}

TEST(S3, ErrorsSayWhatTheServerSaid) {
  FakeS3 fake;
  fake.answer_before([](const Request& request) -> std::optional<Reply> {
    if (request.path == "/corpus/secret") return error_reply(403, "AccessDenied");
    return std::nullopt;
  });
  const auto store = fake.open();
  std::string into(3, '?');
  const Error denied = error_of([&] { read_exactly(*store, read_of(into, "secret")); });
  EXPECT_EQ(denied.code(), Code::kPermission);
  EXPECT_THAT(denied.what(), AllOf(HasSubstr("cannot read s3://corpus/secret"),
                                   HasSubstr("403 (AccessDenied: told so)")));
  const Error missing = error_of([&] { read_exactly(*store, read_of(into, "missing")); });
  EXPECT_EQ(missing.code(), Code::kNotFound);
  Read again = read_of(into, "short");
  again.error = missing;
  again.into = {};
  store->read({&again, 1}, soon());
  EXPECT_FALSE(again.error);
  fake.put("short", "0");
  EXPECT_EQ(error_of([&] { read_exactly(*store, read_of(into, "short")); }).code(), Code::kInvalid);
}

TEST(S3, AMissingBucketIsNotAMissingObject) {
  FakeS3 fake;
  fake.answer_before([](const Request&) { return error_reply(404, "NoSuchBucket"); });
  const auto store = fake.open();
  std::string into(3, '?');
  for (const Error& error :
       {error_of([&] { store->find("a", soon()); }),
        error_of([&] { read_exactly(*store, read_of(into, "a")); }),
        error_of([&] { store->remove("a", soon()); }), error_of([&] { put(*store, "a", "x"); })}) {
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("the bucket corpus does not exist"));
  }
}

TEST(S3, FailuresThatPassAreTriedAgain) {
  FakeS3 fake;
  fake.put("a", "0123456789");
  fake.server.fail("/corpus/a", {Fault::status(503).repeated(2), Fault::reset_after(4)});
  std::string into(10, '?');
  read_exactly(*fake.open(), read_of(into, "a"));
  EXPECT_EQ(into, "0123456789");
  EXPECT_EQ(header(fake.server.seen().back().headers, "range"), "bytes=4-9");
}

// The environment holds keys while this lives.
class KeysInEnvironment {
 public:
  KeysInEnvironment() {
    ::setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE", 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
  }
  KeysInEnvironment(const KeysInEnvironment&) = delete;
  KeysInEnvironment& operator=(const KeysInEnvironment&) = delete;
  ~KeysInEnvironment() {
    ::unsetenv("AWS_ACCESS_KEY_ID");
    ::unsetenv("AWS_SECRET_ACCESS_KEY");
  }
};

TEST(S3, ABucketOfAnotherRegionIsAskedThereFromThenOn) {
  const KeysInEnvironment keys;
  const Reply answers[] = {
      error_reply(301, "PermanentRedirect", {{"x-amz-bucket-region", "eu-west-1"}}),
      error_reply(400, "AuthorizationHeaderMalformed", {}, "<Region>eu-west-1</Region>")};
  for (const Reply& reply : answers) {
    FakeS3 fake;
    fake.put("a", "xyz");
    fake.answer_before([&](const Request& request) -> std::optional<Reply> {
      const auto signature = header(request.headers, "authorization");
      if (signature.find("/eu-west-1/s3/aws4_request") != std::string_view::npos)
        return std::nullopt;
      return reply;
    });
    const auto store = fake.open(StoreOptions{});
    std::string into(3, '?');
    read_exactly(*store, read_of(into, "a"));
    EXPECT_EQ(into, "xyz");
    EXPECT_EQ(fake.server.seen().size(), 2u);
    read_exactly(*store, read_of(into, "a"));
    EXPECT_EQ(fake.server.seen().size(), 3u);
  }
}

TEST(S3, ARefusalNamesTheKeyAndNotItsSecret) {
  const KeysInEnvironment keys;
  FakeS3 fake;
  fake.answer_before([](const Request&) { return error_reply(403, "SignatureDoesNotMatch"); });
  std::string into(3, '?');
  const auto store = fake.open(StoreOptions{});
  for (const Error& error :
       {error_of([&] { read_exactly(*store, read_of(into, "a")); }),
        error_of([&] { store->find("a", soon()); }), error_of([&] { put(*store, "a", "x"); })}) {
    EXPECT_EQ(error.code(), Code::kPermission);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("signed with the key AKIAIOSFODNN7EXAMPLE"),
                                    Not(HasSubstr("secret"))));
  }
}

TEST(S3, TheRightRegionIsNotAskedTwice) {
  const KeysInEnvironment keys;
  FakeS3 fake;
  fake.answer_before([](const Request&) {
    return error_reply(400, "Strange", {{"x-amz-bucket-region", "us-east-1"}});
  });
  std::string into(3, '?');
  const auto store = fake.open(StoreOptions{});
  EXPECT_EQ(error_of([&] { read_exactly(*store, read_of(into, "a")); }).code(), Code::kInvalid);
  EXPECT_EQ(fake.server.seen().size(), 1u);
}

TEST(S3, AnonymousRequestsAreNotSigned) {
  FakeS3 fake;
  fake.put("a", "xyz");
  EXPECT_EQ(get(*fake.open(), "a"), "xyz");
  for (const Request& request : fake.server.seen())
    EXPECT_EQ(header(request.headers, "authorization"), "");
}

// 8 + 8 + 4 MiB.
std::string three_parts() {
  std::string bytes(20 * kMiB, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i >> 8 ^ i);
  return bytes;
}

TEST(S3, LargeObjectsGoInParts) {
  FakeS3 fake;
  fake.server.fail("/corpus/big", {Fault::status(503)});
  const std::string bytes = three_parts();
  const auto writer = fake.open()->create("big", IfExists::kReplace, kDefaultTimeout);
  for (std::size_t at = 0; at < bytes.size(); at += 3'000'000)
    writer->write(bytes_of(std::string_view(bytes).substr(at, 3'000'000)));
  EXPECT_THAT(fake.objects(), IsEmpty());
  const ObjectInfo written = writer->commit();
  EXPECT_EQ(written, (ObjectInfo{"big", 20 * kMiB, md5_of(bytes)}));
  EXPECT_TRUE(fake.objects().at("big") == bytes);
  EXPECT_EQ(fake.uploads(), 0u);
}

TEST(S3, AnUploadThatFailsInTheMiddleIsAborted) {
  FakeS3 fake;
  fake.answer_before([](const Request& request) -> std::optional<Reply> {
    if (parameter(request, "partNumber") != "2") return std::nullopt;
    return error_reply(403, "AccessDenied");
  });
  {
    const std::string bytes = three_parts();
    const auto writer = fake.open()->create("big", IfExists::kReplace, kDefaultTimeout);
    const Error error = error_of([&] { writer->write(bytes_of(bytes)); });
    EXPECT_EQ(error.code(), Code::kPermission);
    EXPECT_THAT(error.what(), HasSubstr("cannot write s3://corpus/big"));
    EXPECT_EQ(fake.uploads(), 1u);
  }
  EXPECT_EQ(fake.uploads(), 0u);
  EXPECT_THAT(fake.objects(), IsEmpty());
}

TEST(S3, AnUploadWithoutCommitLeavesNothing) {
  FakeS3 fake;
  fake.open()->create("small", IfExists::kReplace, kDefaultTimeout)->write(bytes_of("x"));
  fake.open()->create("big", IfExists::kReplace, kDefaultTimeout)->write(bytes_of(three_parts()));
  EXPECT_EQ(fake.uploads(), 0u);
  EXPECT_THAT(fake.objects(), IsEmpty());
}

TEST(S3, AnErrorInAnAnswerOf200IsAnError) {
  FakeS3 fake;
  fake.answer_before([](const Request& request) -> std::optional<Reply> {
    if (request.method != "POST" || parameter(request, "uploadId").empty()) return std::nullopt;
    return error_reply(200, "InternalError");
  });
  const Error error = error_of([&] { put(*fake.open(), "big", three_parts()); });
  EXPECT_EQ(error.code(), Code::kUnavailable);
  EXPECT_THAT(error.what(), HasSubstr("InternalError: told so"));
  EXPECT_EQ(fake.uploads(), 0u);
  EXPECT_THAT(fake.objects(), IsEmpty());
}

TEST(S3, RefusesToReplaceWhatIsThere) {
  FakeS3 fake;
  fake.put("a", "old");
  const auto store = fake.open();
  EXPECT_EQ(error_of([&] { put(*store, "a", "new", IfExists::kRefuse); }).code(), Code::kExists);
  // Appeared between the look and the write: the server itself refuses.
  fake.server.fail("/corpus/a", {Fault::status(404).repeated(2)});
  EXPECT_EQ(error_of([&] { put(*store, "a", "new", IfExists::kRefuse); }).code(), Code::kExists);
  EXPECT_EQ(fake.objects().at("a"), "old");
  put(*store, "b", "new", IfExists::kRefuse);
  EXPECT_EQ(fake.objects().at("b"), "new");
  EXPECT_EQ(header(fake.server.seen().back().headers, "if-none-match"), "*");
}

TEST(S3, RefusesAlsoWhereTheServerKnowsNoCondition) {
  FakeS3 fake;
  fake.answer_before([](const Request& request) -> std::optional<Reply> {
    if (header(request.headers, "if-none-match").empty()) return std::nullopt;
    return error_reply(501, "NotImplemented");
  });
  const auto store = fake.open();
  put(*store, "a", "first", IfExists::kRefuse);
  EXPECT_EQ(error_of([&] { put(*store, "a", "next", IfExists::kRefuse); }).code(), Code::kExists);
  EXPECT_EQ(fake.objects().at("a"), "first");
}

TEST(S3, AWriteWhoseAnswerWasLostIsNotTakenForAnothers) {
  FakeS3 fake;
  const auto store = fake.open();
  const auto writer = store->create("a", IfExists::kRefuse, kDefaultTimeout);
  writer->write(bytes_of("mine"));
  // The look of commit(), and the write, which is done and not answered.
  fake.server.fail("/corpus/a", {Fault::status(404), Fault::reset_after(0)});
  fake.answer_before([&](const Request& request) -> std::optional<Reply> {
    if (request.method != "PUT" || fake.objects().contains("a")) return std::nullopt;
    fake.put("a", request.body);
    return Reply{200, {{"ETag", "\"lost\""}}, "cut off"};
  });
  EXPECT_EQ(writer->commit(), (ObjectInfo{"a", 4, md5_of("mine")}));
}

TEST(S3, PartsGrowSoThatTheLargestObjectFits) {
  std::int64_t sum = 0;
  for (int part = 0; part < 10'000; ++part) sum += part_size(part);
  EXPECT_GE(sum, 5 * 1024 * kGiB);
  EXPECT_EQ(part_size(0), 8 * kMiB);
  EXPECT_LE(part_size(9'999), 5 * kGiB);
}

// Where a request for `key` would go.
std::string address(const std::string& bucket_name, const std::string& key, StoreOptions options) {
  options.anonymous = true;
  S3Bucket bucket(bucket_name, options, [](const std::string&) { return std::nullopt; });
  S3Request request = bucket.request(HttpMethod::kGet, key, "cannot read");
  bucket.perform({&request, 1}, Deadline::after(0));
  return request.http.url;
}

TEST(S3, Addresses) {
  using Addressing = StoreOptions::Addressing;
  EXPECT_EQ(address("corpus", "a b", {}), "https://corpus.s3.us-east-1.amazonaws.com/a%20b");
  EXPECT_EQ(address("corpus", "a", {.region = "cn-north-1"}),
            "https://corpus.s3.cn-north-1.amazonaws.com.cn/a");
  EXPECT_EQ(address("my.corpus", "a", {}), "https://s3.us-east-1.amazonaws.com/my.corpus/a");
  EXPECT_EQ(address("corpus", "a", {.addressing = Addressing::kPath}),
            "https://s3.us-east-1.amazonaws.com/corpus/a");
  EXPECT_EQ(address("corpus", "a", {.endpoint = "http://Host:80/s3/"}), "http://host/s3/corpus/a");
  EXPECT_EQ(address("corpus", "", {.endpoint = "https://host:443"}), "https://host/corpus");
  EXPECT_EQ(address("corpus", "a",
                    {.endpoint = "http://host:9000", .addressing = Addressing::kVirtualHost}),
            "http://corpus.host:9000/a");
  for (const char* endpoint : {"host:9000", "ftp://host", "http://user:pass@host", "http://"}) {
    const Error error = error_of([&] { address("corpus", "a", {.endpoint = endpoint}); });
    EXPECT_EQ(error.code(), Code::kInvalid) << endpoint;
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("pass")));
  }
}

}  // namespace
}  // namespace bedplate::store
