// The S3 driver against a real server: BEDPLATE_TEST_S3 is its endpoint, the keys are in AWS_*.
// Works in the bucket BEDPLATE_TEST_S3_BUCKET ("bedplate-test"), which is made if it is missing,
// and removes what it wrote.
#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "store/driver.h"
#include "store/internal/s3_bucket.h"
#include "store/internal/s3_writer.h"

namespace bedplate::store {

extern const Driver kS3;

namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Of an environment variable, while this lives.
class OtherValue {
 public:
  OtherValue(std::string name, const std::string& value)
      : name_(std::move(name)), old_(process_environment()(name_)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  OtherValue(const OtherValue&) = delete;
  OtherValue& operator=(const OtherValue&) = delete;
  ~OtherValue() {
    if (old_) {
      ::setenv(name_.c_str(), old_->c_str(), 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }

 private:
  std::string name_;
  std::optional<std::string> old_;
};

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
    const std::vector<std::string> left = keys();
    at_once(left.size(), [&](std::size_t i) { store_->remove(left[i], soon()); });
  }

  static Deadline soon() { return Deadline::after(20 * kSecond); }
  std::vector<std::string> keys() const {
    std::vector<std::string> found;
    store_->list(
        prefix_, [&](const ObjectInfo& object) { found.push_back(object.key); }, soon());
    return found;
  }
  // act(0) … act(count - 1), by several threads.
  static void at_once(std::size_t count, const std::function<void(std::size_t)>& act) {
    std::atomic<std::size_t> next{0};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        try {
          for (std::size_t i = next++; i < count; i = next++) act(i);
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
      });
    }
  }
  template <typename Act>
  static std::optional<Error> error_of(Act act) {
    try {
      act();
      return std::nullopt;
    } catch (const Error& error) {
      return error;
    }
  }
  template <typename Act>
  static std::optional<Code> code_of(Act act) {
    const auto error = error_of(act);
    return error ? std::optional(error->code()) : std::nullopt;
  }
  // What is said by a store that is opened while the environment holds another key.
  Error error_with_key(const std::string& key_id, const std::string& secret) const {
    const OtherValue id("AWS_ACCESS_KEY_ID", key_id);
    const OtherValue key("AWS_SECRET_ACCESS_KEY", secret);
    const auto store = kS3.open({"s3", bucket_, ""}, options_).store;
    std::byte one{};  // by a read: refusals of HEAD have no words
    return error_of([&] {
             read_exactly(*store, {.key = prefix_ + "a", .into = {&one, 1}});
           })
        .value_or(Error(Code::kInternal, "nothing was thrown"));
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

TEST_F(S3Server, AReaderOfOneVersionNeverSeesAnother) {
  constexpr std::size_t kSize = 512 * kKiB;
  constexpr std::size_t kPiece = 16 * kKiB;
  const std::string key = prefix_ + "a";
  std::string version = put(*store_, key, std::string(kSize, 'a')).version;
  for (char letter = 'a'; letter < 'i'; ++letter) {
    std::vector<std::string> pieces(kSize / kPiece, std::string(kPiece, '?'));
    std::vector<Read> reads;
    for (std::string& piece : pieces) {
      reads.push_back({.key = key,
                       .offset = static_cast<std::int64_t>(reads.size() * kPiece),
                       .into = std::as_writable_bytes(std::span(piece)),
                       .version = version});
    }
    std::string next;
    {
      const std::jthread writer([&] {
        next = put(*store_, key, std::string(kSize, static_cast<char>(letter + 1))).version;
      });
      store_->read(reads, soon());
    }
    for (std::size_t i = 0; i < reads.size(); ++i) {
      if (reads[i].error) {
        EXPECT_EQ(reads[i].error->code(), Code::kCorrupt) << reads[i].error->what();
      } else {
        EXPECT_EQ(pieces[i], std::string(kPiece, letter)) << i;
      }
    }
    for (Read& again : reads) again.version = next;
    store_->read(reads, soon());
    for (std::size_t i = 0; i < reads.size(); ++i) {
      ASSERT_FALSE(reads[i].error) << reads[i].error->what();
      ASSERT_EQ(pieces[i], std::string(kPiece, static_cast<char>(letter + 1))) << i;
    }
    version = next;
  }
}

TEST_F(S3Server, AWrongSecretIsRefusedNamingTheKeyAlone) {
  const std::string key_id = process_environment()("AWS_ACCESS_KEY_ID").value();
  put(*store_, prefix_ + "a", "x");
  const Error error = error_with_key(key_id, "wrong-secret-of-a-test");
  EXPECT_EQ(error.code(), Code::kPermission);
  EXPECT_THAT(error.what(), AllOf(HasSubstr(key_id), HasSubstr("SignatureDoesNotMatch"),
                                  Not(HasSubstr("wrong-secret-of-a-test"))));
}

TEST_F(S3Server, AnUnknownKeyIsRefusedByName) {
  put(*store_, prefix_ + "a", "x");
  const Error error = error_with_key("AKIAUNKNOWNTOTHESERVER", "some-secret-of-a-test");
  EXPECT_EQ(error.code(), Code::kPermission);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("AKIAUNKNOWNTOTHESERVER"), Not(HasSubstr("some-secret-of-a-test"))));
}

// But a backslash, which SeaweedFS takes for a slash.
TEST_F(S3Server, KeysOfAnyText) {
  std::vector<std::string> written;
  for (const char* name :
       {"a b",    "a+b",    "a%b",      "a%20b",         "a%2Fb",      "a?b=c&d", "a#b",
        "a;b,c",  "a'b\"c", "<a>&amp;", "...",           "a.",         "~a",      "$HOME",
        "{a..b}", "é",      "e\u0301",  "日本語/данные", "\U0001F600", " a",      "a "}) {
    written.push_back(prefix_ + name);
  }
  std::ranges::sort(written);
  at_once(written.size(), [&](std::size_t i) { put(*store_, written[i], written[i]); });
  EXPECT_THAT(keys(), ElementsAreArray(written));
  at_once(written.size(), [&](std::size_t i) { EXPECT_EQ(get(*store_, written[i]), written[i]); });
  at_once(written.size(), [&](std::size_t i) { store_->remove(written[i], soon()); });
  EXPECT_THAT(keys(), IsEmpty());
}

TEST_F(S3Server, MoreObjectsThanOnePageOfAList) {
  std::vector<std::string> written;
  for (int i = 0; i < 1'203; ++i) written.push_back(fmt::format("{}{:04}/ü {}", prefix_, i / 7, i));
  std::ranges::sort(written);
  at_once(written.size(), [&](std::size_t i) { put(*store_, written[i], "x"); });
  EXPECT_THAT(keys(), ElementsAreArray(written));
}

TEST_F(S3Server, AMissingObjectIsNotFoundAndItsRemovalNoError) {
  const std::string key = prefix_ + "missing";
  EXPECT_EQ(store_->find(key, soon()), std::nullopt);
  std::string into(3, '?');
  EXPECT_EQ(code_of([&] {
              read_exactly(*store_, {.key = key, .into = std::as_writable_bytes(std::span(into))});
            }),
            Code::kNotFound);
  store_->remove(key, soon());
}

TEST_F(S3Server, AnEmptyObjectIsOne) {
  const std::string key = prefix_ + "empty";
  EXPECT_EQ(put(*store_, key, "").size, 0);
  EXPECT_EQ(store_->find(key, soon()).value().size, 0);
  EXPECT_EQ(get(*store_, key), "");
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
  std::string across(kMiB, '?');  // a border of two parts
  read_exactly(*store_, {.key = key,
                         .offset = part_size(0) - kMiB / 2,
                         .into = std::as_writable_bytes(std::span(across)),
                         .version = written.version});
  EXPECT_TRUE(bytes.compare(part_size(0) - kMiB / 2, across.size(), across) == 0);
  EXPECT_EQ(code_of([&] {
              read_exactly(*store_, {.key = key,
                                     .offset = 20 * kMiB - 1,
                                     .into = std::as_writable_bytes(std::span(across))});
            }),
            Code::kInvalid);
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
