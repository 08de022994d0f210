// The S3 driver against a real server: BEDPLATE_TEST_S3 is its endpoint, the keys are in AWS_*.
// Works in the bucket BEDPLATE_TEST_S3_BUCKET ("bedplate-test"), which is made if it is missing,
// and removes what it wrote.
#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "store/driver.h"
#include "store/internal/s3_bucket.h"
#include "store/internal/s3_writer.h"

namespace bedplate::store {

extern const Driver kS3;

namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

class S3Server : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto environment = process_environment();
    const auto endpoint = environment("BEDPLATE_TEST_S3");
    if (!endpoint) GTEST_SKIP() << "BEDPLATE_TEST_S3 is not set: the endpoint of an S3 server";
    if (!environment("AWS_ACCESS_KEY_ID"))
      GTEST_SKIP() << "AWS_ACCESS_KEY_ID is not set: keys for the server of BEDPLATE_TEST_S3";
    options_.endpoint = *endpoint;
    bucket_ = environment("BEDPLATE_TEST_S3_BUCKET").value_or("bedplate-test");
    S3Bucket bucket(bucket_, options_);
    S3Request make = bucket.request(HttpMethod::kPut, {}, "cannot make");
    make.http.expected = {200, 409};  // 409: it is there
    bucket.perform_one(make, soon());
    store_ = kS3.open({"s3", bucket_, ""}, options_).store;
    prefix_ = fmt::format("test-{}/", ::getpid());
  }
  void TearDown() override {
    if (!store_) return;
    for (const std::string& key : keys()) store_->remove(key, soon());
  }

  static Deadline soon() { return Deadline::after(20 * kSecond); }
  std::vector<std::string> keys() const {
    std::vector<std::string> found;
    store_->list(
        prefix_, [&](const ObjectInfo& object) { found.push_back(object.key); }, soon());
    return found;
  }
  template <typename Act>
  static std::optional<Code> code_of(Act act) {
    try {
      act();
      return std::nullopt;
    } catch (const Error& error) {
      return error.code();
    }
  }

  StoreOptions options_;
  std::string bucket_;
  std::string prefix_;
  std::shared_ptr<Store> store_;  // shared as every store is
};

TEST_F(S3Server, WritesFindsReadsAndRemoves) {
  const std::string key = prefix_ + "a b/ü+%=~&;$.tar";
  const ObjectInfo written = put(*store_, key, "0123456789");
  EXPECT_EQ(store_->find(key, soon()), written);
  std::string part(4, '?');
  read_exactly(*store_, {.key = key,
                         .offset = 3,
                         .into = std::as_writable_bytes(std::span(part)),
                         .version = written.version});
  EXPECT_EQ(part, "3456");
  EXPECT_EQ(code_of([&] {
              read_exactly(
                  *store_,
                  {.key = key, .offset = 8, .into = std::as_writable_bytes(std::span(part))});
            }),
            Code::kInvalid);
  store_->remove(key, soon());
  EXPECT_EQ(store_->find(key, soon()), std::nullopt);
}

TEST_F(S3Server, AnotherVersionIsNotRead) {
  const std::string key = prefix_ + "a";
  const ObjectInfo old = put(*store_, key, "old");
  put(*store_, key, "new");
  std::string into(3, '?');
  EXPECT_EQ(code_of([&] {
              read_exactly(*store_, {.key = key,
                                     .into = std::as_writable_bytes(std::span(into)),
                                     .version = old.version});
            }),
            Code::kCorrupt);
}

TEST_F(S3Server, ListsInTheOrderOfTheKeys) {
  std::vector<std::string> written;
  for (const char* name : {"a b+c", "a-1", "a/1", "b%20", "ü"}) {
    written.push_back(prefix_ + name);
    put(*store_, written.back(), "x");
  }
  EXPECT_THAT(keys(), ElementsAreArray(written));
}

TEST_F(S3Server, LargeObjectsGoInParts) {
  std::string bytes(20 * kMiB, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i >> 8 ^ i);
  const std::string key = prefix_ + "big";
  const ObjectInfo written = put(*store_, key, bytes);
  EXPECT_EQ(written.size, 20 * kMiB);
  EXPECT_EQ(store_->find(key, soon()), written);
  EXPECT_TRUE(get(*store_, key) == bytes);
}

TEST_F(S3Server, WhatIsThereIsNotReplacedAndWhatIsNotCommittedNotWritten) {
  const std::string key = prefix_ + "once";
  put(*store_, key, "first", IfExists::kRefuse);
  EXPECT_EQ(code_of([&] { put(*store_, key, "second", IfExists::kRefuse); }), Code::kExists);
  EXPECT_EQ(get(*store_, key), "first");
  store_->remove(key, soon());
  const std::string bytes(9 * kMiB, 'x');
  store_->create(key, IfExists::kReplace, kDefaultTimeout)->write(std::as_bytes(std::span(bytes)));
  EXPECT_THAT(keys(), IsEmpty());
}

TEST_F(S3Server, AMissingBucketIsNamed) {
  const auto other = kS3.open({"s3", bucket_ + "-missing", ""}, options_).store;
  // By reading: SeaweedFS makes a bucket that is written to.
  EXPECT_EQ(code_of([&] { other->find("a", soon()); }), Code::kNotFound);
}

}  // namespace
}  // namespace bedplate::store
