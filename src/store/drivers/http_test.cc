#include <gmock/gmock.h>

#include <memory>
#include <string>

#include "store/driver.h"
#include "store/internal/http_fault_server.h"

namespace bedplate::store {

extern const Driver kHttp;

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Request = HttpFaultServer::Request;
using Reply = HttpFaultServer::Reply;

Deadline soon() { return Deadline::after(10 * kSecond); }

std::shared_ptr<Store> open(const HttpFaultServer& server) {
  StoreOptions options;
  options.first_pause = kMillisecond;
  options.longest_pause = 2 * kMillisecond;
  return kHttp.open({"http", server.host(), ""}, options).store;
}

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

TEST(Http, TheKeyIsThePathWithItsQuery) {
  const auto place = kHttp.open({"https", "host:8443", "a/b%20c?sig=x/y"}, {});
  EXPECT_EQ(place.key, "a/b%20c?sig=x/y");
  EXPECT_EQ(place.store->url(), "https://host:8443");
  HttpFaultServer server;
  server.put("/a/b%20c%20%C3%BC", "0123456789");
  EXPECT_EQ(get(*open(server), "a/b%20c ü?sig=http://x"), "0123456789");
  EXPECT_EQ(server.seen().at(0).query, "sig=http://x");
}

TEST(Http, FindsSizeAndVersionByHead) {
  HttpFaultServer server;
  server.put("/a", "0123456789");
  const auto store = open(server);
  EXPECT_EQ(store->find("a", soon()), (ObjectInfo{"a", 10, "\"v1\""}));
  EXPECT_EQ(store->find("missing", soon()), std::nullopt);
  EXPECT_EQ(server.seen().at(0).method, "HEAD");
  EXPECT_EQ(server.requests("/a"), 1);
}

TEST(Http, WhereHeadIsRefusedTheFirstByteTells) {
  for (const int status : {403, 405, 501}) {
    HttpFaultServer server;
    server.put("/a", "0123456789");
    server.refuse_head(status);
    const auto store = open(server);
    EXPECT_EQ(store->find("a", soon()), (ObjectInfo{"a", 10, "\"v1\""}));
    EXPECT_EQ(header(server.seen().at(1).headers, "range"), "bytes=0-0");
    EXPECT_EQ(store->find("missing", soon()), std::nullopt);
    server.put("/empty", "");
    EXPECT_EQ(store->find("empty", soon())->size, 0);
  }
}

TEST(Http, WhatIsForbiddenIsNotMissing) {
  HttpFaultServer server;
  server.fail("/a", {Fault::status(403).repeated(2)});
  EXPECT_EQ(error_of([&] { open(server)->find("a?sig=secret", soon()); }).code(),
            Code::kPermission);
}

TEST(Http, ReadsOfOneVersionOnly) {
  HttpFaultServer server;
  server.put("/a", "old");
  const auto store = open(server);
  std::string into(3, '?');
  read_exactly(*store, read_of(into, "a", "\"v1\""));
  EXPECT_EQ(into, "old");
  EXPECT_EQ(header(server.seen().at(0).headers, "if-match"), "\"v1\"");
  server.put("/a", "new", "\"v2\"");
  const Error error = error_of([&] { read_exactly(*store, read_of(into, "a", "\"v1\"")); });
  EXPECT_EQ(error.code(), Code::kCorrupt);
  EXPECT_THAT(error.what(), HasSubstr("changed since it was indexed"));
}

TEST(Http, WithoutETagsTheTimeOfChangeIsTheVersion) {
  HttpFaultServer server;
  const auto serve = [&](const std::string& date) {
    server.handle([date](const Request& request) -> Reply {
      if (request.method == "HEAD") return {200, {{"Last-Modified", date}}, "xyz"};
      return {206, {{"Last-Modified", date}, {"Content-Range", "bytes 0-2/3"}}, "xyz"};
    });
  };
  serve("Wed, 21 Oct 2015 07:28:00 GMT");
  const auto store = open(server);
  const std::string version = info(*store, "a").version;
  std::string into(3, '?');
  read_exactly(*store, read_of(into, "a", version));
  EXPECT_EQ(into, "xyz");
  EXPECT_EQ(header(server.seen().back().headers, "if-unmodified-since"),
            "Wed, 21 Oct 2015 07:28:00 GMT");
  serve("Wed, 21 Oct 2015 08:00:00 GMT");  // and the server ignores the condition
  EXPECT_EQ(error_of([&] { read_exactly(*store, read_of(into, "a", version)); }).code(),
            Code::kCorrupt);
}

TEST(Http, AServerWithoutRangesServesWholeObjects) {
  HttpFaultServer server;
  server.put("/a", "0123456789");
  server.fail("/a", {Fault::ignore_range().repeated(2)});
  const auto store = open(server);
  std::string whole(10, '?');
  read_exactly(*store, read_of(whole, "a", "\"v1\""));
  EXPECT_EQ(whole, "0123456789");
  std::string part(3, '?');
  const Error error = error_of([&] { read_exactly(*store, read_of(part, "a?sig=secret")); });
  EXPECT_EQ(error.code(), Code::kUnsupported);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("no ranges of bytes"), Not(HasSubstr("secret"))));
}

TEST(Http, EachReadHasItsOwnError) {
  HttpFaultServer server;
  server.put("/a", "0123456789");
  std::string first(3, '?');
  std::string second(3, '?');
  std::string third(3, '?');
  std::string nothing;
  Read reads[] = {read_of(first, "missing"), read_of(second, "a"), read_of(third, "../a"),
                  read_of(nothing, "a")};
  for (Read& one : reads) one.error = Error(Code::kIo, "of an earlier attempt");
  open(server)->read(reads, soon());
  ASSERT_TRUE(reads[0].error && reads[2].error);
  EXPECT_EQ(reads[0].error->code(), Code::kNotFound);
  EXPECT_FALSE(reads[1].error);
  EXPECT_EQ(second, "012");
  EXPECT_EQ(reads[2].error->code(), Code::kInvalid);
  EXPECT_FALSE(reads[3].error);
}

TEST(Http, IsOnlyReadFrom) {
  HttpFaultServer server;
  const auto store = open(server);
  for (const Error& error :
       {error_of([&] {
          store->list(
              "", [](const ObjectInfo&) {}, soon());
        }),
        error_of([&] { store->create("a", IfExists::kReplace, kDefaultTimeout); }),
        error_of([&] { store->remove("a", soon()); })}) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr(server.url()));
  }
}

}  // namespace
}  // namespace bedplate::store
