#include "store/internal/http_client.h"

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <string>

#include "store/internal/http_fault_server.h"
#include "store/internal/http_test_requests.h"
#include "store/remote_counters.h"

namespace bedplate::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(HttpClient, ReadsManyRangesAtOnceOverFewConnections) {
  HttpFaultServer server;
  const std::string object = numbered_bytes(4000);
  server.put("/a", object);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::string> parts(40, std::string(100, '?'));
    std::vector<HttpRequest> requests;
    for (std::size_t i = 0; i < parts.size(); ++i)
      requests.push_back(get_range(server, "/a", static_cast<std::int64_t>(i) * 100, parts[i]));
    perform(requests, 8, soon(), kQuick);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(code(requests[i]), std::nullopt) << message(requests[i]);
      EXPECT_EQ(parts[i], object.substr(i * 100, 100));
    }
  }
  EXPECT_EQ(server.requests("/a"), 80);
  EXPECT_LE(server.connections(), 8);
}

TEST(HttpClient, CountsReadsWithTheirRetriesAndNothingElse) {
  HttpFaultServer server;
  server.put("/a", numbered_bytes(1000));
  server.fail("/a", {Fault::reset_after(400)});
  const RemoteCounters before = remote_counters();
  std::string into(600, '?');
  HttpRequest again = get_range(server, "/a", 100, into);
  run(again);
  HttpRequest none = get_range(server, "/none", 0, into);
  run(none);
  EXPECT_NE(code(none), std::nullopt);
  perform_one(get(server, "/a"), soon(), kQuick);  // a text is no range of an object
  const RemoteCounters after = remote_counters();
  EXPECT_EQ(after.reads - before.reads, 2);
  EXPECT_EQ(after.failed - before.failed, 1);
  EXPECT_EQ(after.bytes - before.bytes, 600);
  EXPECT_EQ(after.retries - before.retries, 1);
  EXPECT_GT(after.read_ns, before.read_ns);
}

TEST(HttpClient, CallsInTurnShareOneConnection) {
  HttpFaultServer server;
  server.put("/a", "text");
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(perform_one(get(server, "/a"), soon(), kQuick).text, "text");
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpClient, GoesOnBehindThePartThatCameBeforeAReset) {
  HttpFaultServer server;
  const std::string object = numbered_bytes(1000);
  server.put("/a", object);
  server.fail("/a", {Fault::reset_after(400)});
  std::string into(600, '?');
  HttpRequest request = get_range(server, "/a", 100, into);
  run(request);
  EXPECT_EQ(message(request), "no error");
  EXPECT_EQ(into, object.substr(100, 600));
  const auto seen = server.seen();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(header(seen[0].headers, "range"), "bytes=100-699");
  EXPECT_EQ(header(seen[1].headers, "range"), "bytes=500-699");
  EXPECT_EQ(header(seen[1].headers, "if-match"), "\"v1\"");
}

TEST(HttpClient, WithoutAnETagReadsFromTheBeginAgain) {
  HttpFaultServer server;
  server.put("/a", numbered_bytes(100), "");
  server.fail("/a", {Fault::reset_after(40)});
  std::string into(100, '?');
  HttpRequest request = get_range(server, "/a", 0, into);
  run(request);
  EXPECT_EQ(into, numbered_bytes(100));
  EXPECT_EQ(header(server.seen().at(1).headers, "range"), "bytes=0-99");
}

TEST(HttpClient, NeverJoinsPartsOfTwoVersions) {
  HttpFaultServer server;
  const std::string newer(100, 'n');
  server.put("/a", numbered_bytes(100));
  server.fail("/a", {Fault::reset_after(40)});
  std::string into(100, '?');
  HttpRequest request = get_range(server, "/a", 0, into);
  int attempts = 0;
  request.sign = [&](HttpHeaders&) {
    if (++attempts == 2) server.put("/a", newer, "\"v2\"");
  };
  run(request);
  EXPECT_EQ(message(request), "no error");
  EXPECT_EQ(into, newer);
  EXPECT_EQ(attempts, 3);  // the second one met 412
}

TEST(HttpClient, ABodyThatStallsIsTriedAgain) {
  HttpFaultServer server;
  server.put("/a", numbered_bytes(100));
  server.fail("/a", {Fault::stall_after(10)});
  std::string into(100, '?');
  HttpRequest request = get_range(server, "/a", 0, into);
  RetryPolicy policy = kQuick;
  policy.attempt_timeout = 50 * kMillisecond;
  run(request, policy);
  EXPECT_EQ(message(request), "no error");
  EXPECT_EQ(into, numbered_bytes(100));
  EXPECT_EQ(request.answer.attempts, 2);
}

TEST(HttpClient, ABodyThatComesSlowlyIsNoStall) {
  HttpFaultServer server;
  server.put("/a", numbered_bytes(100));
  server.fail("/a", {Fault::slow(40)});  // four pieces, together longer than the timeout
  RetryPolicy policy = kQuick;
  policy.attempt_timeout = 120 * kMillisecond;
  HttpRequest request = get(server, "/a");
  run(request, policy);
  EXPECT_EQ(request.answer.text, numbered_bytes(100));
  EXPECT_EQ(request.answer.attempts, 1);
}

TEST(HttpClient, AShortBodyIsTriedAgainAndNeverAccepted) {
  HttpFaultServer server;
  server.put("/a", "0123456789", "");
  server.fail("/a", {Fault::close_after(5)});
  EXPECT_EQ(perform_one(get(server, "/a"), soon(), kQuick).text, "0123456789");

  server.fail("/a", {Fault::close_after(5).repeated(4)});
  std::string into(10, '?');
  HttpRequest request = get_range(server, "/a", 0, into);
  run(request);
  EXPECT_EQ(code(request), Code::kCorrupt);
  EXPECT_THAT(message(request), AllOf(HasSubstr(server.host()), HasSubstr("tried 4 times")));
}

TEST(HttpClient, ABodyShorterThanItsRangeIsNeverAccepted) {
  HttpFaultServer server;
  server.handle([](const HttpFaultServer::Request&) -> HttpFaultServer::Reply {
    return {206, {{"Content-Range", "bytes 0-9/10"}}, "01234"};
  });
  std::string into(10, '?');
  HttpRequest request = get_range(server, "/a", 0, into);
  run(request);
  EXPECT_EQ(code(request), Code::kCorrupt);
  EXPECT_THAT(message(request), HasSubstr("sent 5 bytes of the 10"));
  EXPECT_EQ(server.requests("/a"), 4);
}

TEST(HttpClient, AnotherRangeThanWasAskedForIsNeverAccepted) {
  HttpFaultServer server;
  server.put("/a", numbered_bytes(100));
  server.fail("/a", {Fault::wrong_range()});
  std::string into(50, '?');
  HttpRequest request = get_range(server, "/a", 10, into);
  run(request);
  EXPECT_EQ(into, numbered_bytes(100).substr(10, 50));
  EXPECT_EQ(request.answer.attempts, 2);

  server.fail("/a", {Fault::wrong_range().repeated(4)});
  run(request);
  EXPECT_EQ(code(request), Code::kCorrupt);
  EXPECT_THAT(message(request), HasSubstr("where bytes 10-59 were asked for"));
}

TEST(HttpClient, ARangeBeyondTheEndIsTheCallersMistake) {
  HttpFaultServer server;
  server.put("/a", "0123456789");
  std::string into(5, '?');
  HttpRequest over = get_range(server, "/a", 8, into);
  run(over);
  EXPECT_EQ(code(over), Code::kInvalid);
  EXPECT_THAT(message(over), HasSubstr("the object has 10"));
  HttpRequest behind = get_range(server, "/a", 10, into);
  run(behind);
  EXPECT_EQ(code(behind), Code::kInvalid);
  EXPECT_EQ(server.requests("/a"), 2);
}

TEST(HttpClient, AServerWithoutRangesGivesWholeObjectsOnly) {
  HttpFaultServer server;
  server.put("/a", "0123456789");
  server.fail("/a", {Fault::ignore_range().repeated(2)});
  std::string whole(10, '?');
  HttpRequest request = get_range(server, "/a", 0, whole);
  run(request);
  EXPECT_EQ(message(request), "no error");
  EXPECT_EQ(whole, "0123456789");
  std::string part(4, '?');
  request = get_range(server, "/a", 0, part);
  run(request);
  EXPECT_EQ(code(request), Code::kUnsupported);
  EXPECT_THAT(message(request), HasSubstr("no ranges"));
}

TEST(HttpClient, StatusesThatMayPassAreTriedAgainOthersNot) {
  HttpFaultServer server;
  server.put("/a", "text");
  server.fail("/a", {Fault::status(503).repeated(2), Fault::status(429)});
  EXPECT_EQ(perform_one(get(server, "/a"), soon(), kQuick).attempts, 4);

  HttpRequest missing = get(server, "/missing");
  run(missing);
  EXPECT_EQ(code(missing), Code::kNotFound);
  EXPECT_EQ(server.requests("/missing"), 1);

  server.fail("/forbidden", {Fault::status(403)});
  HttpRequest forbidden = get(server, "/forbidden");
  run(forbidden);
  EXPECT_EQ(code(forbidden), Code::kPermission);
  EXPECT_EQ(server.requests("/forbidden"), 1);

  server.fail("/broken", {Fault::status(500).repeated(9)});
  HttpRequest broken = get(server, "/broken");
  run(broken);
  EXPECT_EQ(code(broken), Code::kUnavailable);
  EXPECT_THAT(message(broken), HasSubstr(server.host() + " answered 500; tried 4 times"));
  EXPECT_EQ(server.requests("/broken"), 4);
}

TEST(HttpClient, ARetryAfterBeyondTheLongestPauseEndsTheRequest) {
  HttpFaultServer server;
  server.put("/a", "text");
  for (const char* when : {"3600", "Fri, 01 Jan 2100 00:00:00 GMT"}) {
    server.fail("/a", {Fault::status(503, {{"Retry-After", when}})});
    HttpRequest request = get(server, "/a");
    run(request);
    EXPECT_EQ(code(request), Code::kUnavailable);
    EXPECT_THAT(message(request), HasSubstr("asks to come back in"));
    EXPECT_EQ(request.answer.attempts, 1);
  }
  server.fail("/a", {Fault::status(503, {{"Retry-After", "0"}})});
  EXPECT_EQ(perform_one(get(server, "/a"), soon(), kQuick).attempts, 2);
}

TEST(HttpClient, OtherRequestsGoOnDuringAPause) {
  HttpFaultServer server;
  server.put("/a", "text");
  server.put("/b", "text");
  server.fail("/a", {Fault::status(503)});
  std::vector<HttpRequest> requests{get(server, "/a"), get(server, "/b")};
  perform(requests, 1, soon(), kQuick);
  std::string order;
  for (const auto& request : server.seen()) order += request.path;
  EXPECT_EQ(order, "/a/b/a");
  EXPECT_EQ(message(requests[0]), "no error");
}

TEST(HttpClient, TheDeadlineNamesWhatWasWaitedFor) {
  HttpFaultServer server;
  server.put("/a", "text");
  server.fail("/a", {Fault::status(503), Fault::stall_after(0)});
  HttpRequest request = get(server, "/a");
  perform({&request, 1}, 1, Deadline::after(100 * kMillisecond), kQuick);
  EXPECT_EQ(code(request), Code::kTimeout);
  EXPECT_THAT(message(request),
              AllOf(HasSubstr("cannot read " + server.url() + "/a"), HasSubstr("tried 2 times")));
}

TEST(HttpClient, APauseThatOutlastsTheDeadlineIsNotWaitedFor) {
  HttpFaultServer server;
  server.fail("/a", {Fault::status(503, {{"Retry-After", "15"}})});
  RetryPolicy patient = kQuick;
  patient.longest_pause = 20 * kSecond;
  HttpRequest request = get(server, "/a");
  run(request, patient);
  EXPECT_EQ(code(request), Code::kTimeout);
  EXPECT_THAT(message(request), HasSubstr("answered 503; the deadline comes before"));
}

TEST(HttpClient, AnotherHostGetsNoAuthorizationByARedirect) {
  HttpFaultServer first;
  HttpFaultServer other;
  other.put("/b", "there");
  first.fail("/a", {Fault::redirect(other.url() + "/b")});
  HttpRequest request = get(first, "/a");
  request.headers = {{"Authorization", "Bearer secret"}};
  request.redirects = HttpRequest::Redirects::kFollow;
  run(request);
  EXPECT_EQ(request.answer.text, "there");
  EXPECT_EQ(header(first.seen().at(0).headers, "authorization"), "Bearer secret");
  EXPECT_EQ(header(other.seen().at(0).headers, "authorization"), "");
}

TEST(HttpClient, RedirectsAreFollowedOnlyWhereWantedAndFiveTimes) {
  HttpFaultServer server;
  server.fail("/a", {Fault::redirect(server.url() + "/a").repeated(20)});
  HttpRequest request = get(server, "/a");
  run(request);
  EXPECT_EQ(code(request), Code::kInvalid);
  EXPECT_THAT(message(request), HasSubstr("answered 302"));
  EXPECT_EQ(server.requests("/a"), 1);
  request.redirects = HttpRequest::Redirects::kFollow;
  run(request);
  EXPECT_EQ(code(request), Code::kInvalid);
  EXPECT_EQ(server.requests("/a"), 1 + 6);
}

TEST(HttpClient, NoMessageHoldsASecret) {
  HttpFaultServer server;
  server.fail("/a",
              {Fault::status(403), Fault::lose_answer().repeated(4),
               Fault::status(503, {{"Retry-After", "99"}}), Fault::redirect("ftp://x/?topsecret")});
  HttpRequest request = get(server, "/a?X-Amz-Signature=topsecret");
  request.headers = {{"Authorization", "Bearer topsecret"}};
  request.redirects = HttpRequest::Redirects::kFollow;
  for (int i = 0; i < 4; ++i) {
    run(request);
    EXPECT_THAT(message(request), AllOf(HasSubstr("/a?…: "), Not(HasSubstr("topsecret"))));
  }
  request.url = "http://127.0.0.1:1/a?topsecret";  // nobody listens
  run(request);
  EXPECT_EQ(code(request), Code::kUnavailable);
  EXPECT_THAT(message(request), Not(HasSubstr("topsecret")));
}

TEST(HttpClient, WhatMustNotBeDoneTwiceIsRepeatedOnlyIfItWasNotDone) {
  HttpFaultServer server;
  server.handle([](const HttpFaultServer::Request&) { return HttpFaultServer::Reply{}; });
  HttpRequest request = get(server, "/a");
  request.method = HttpMethod::kPost;
  request.repeat = HttpRequest::Repeat::kWhenNotDone;
  server.fail("/a", {Fault::status(503), Fault::status(500)});
  run(request);
  EXPECT_EQ(code(request), Code::kUnavailable);
  EXPECT_EQ(server.requests("/a"), 2);  // 503 says that nothing was done, 500 does not
  server.fail("/a", {Fault::status(503, {}, ""), Fault::reset_after(0)});
  server.handle([](const HttpFaultServer::Request&) -> HttpFaultServer::Reply {
    return {200, {}, "done"};
  });
  run(request);
  EXPECT_EQ(code(request), Code::kUnavailable);
  EXPECT_EQ(server.requests("/a"), 4);
}

TEST(HttpClient, ABodyIsSentAnewByEachAttempt) {
  HttpFaultServer server;
  server.handle([](const HttpFaultServer::Request&) { return HttpFaultServer::Reply{}; });
  server.fail("/a", {Fault::status(503)});
  const std::string body = numbered_bytes(300'000);
  HttpRequest request = get(server, "/a");
  request.method = HttpMethod::kPut;
  request.body_size = std::ssize(body);
  request.read_body = [&](std::int64_t offset, std::span<std::byte> into) {
    return body.copy(reinterpret_cast<char*>(into.data()), into.size(),
                     static_cast<std::size_t>(offset));
  };
  run(request);
  EXPECT_EQ(message(request), "no error");
  const auto seen = server.seen();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_TRUE(seen[0].body == body);
  EXPECT_TRUE(seen[1].body == body);
  EXPECT_EQ(header(seen[1].headers, "expect"), "");
}

TEST(HttpClient, ATextLongerThanAllowedIsRefused) {
  HttpFaultServer server;
  server.put("/a", numbered_bytes(1000));
  HttpRequest request = get(server, "/a");
  request.most_text = 999;
  run(request);
  EXPECT_EQ(code(request), Code::kInvalid);
  EXPECT_THAT(message(request), HasSubstr("is longer than"));
}

TEST(HttpClient, WhatSigningThrowsIsTheRequestsError) {
  HttpFaultServer server;
  server.put("/a", "text");
  std::vector<HttpRequest> requests{get(server, "/a"), get(server, "/a")};
  requests[0].sign = [](HttpHeaders&) { throw Error(Code::kPermission, "no keys"); };
  perform(requests, 2, soon(), kQuick);
  EXPECT_EQ(message(requests[0]), "no keys");
  EXPECT_EQ(requests[1].answer.text, "text");
}

TEST(HttpClient, AChildUsesConnectionsOfItsOwn) {
  HttpFaultServer server;
  server.put("/a", "text");
  const auto reads = [&] {
    HttpRequest request = get(server, "/a");
    run(request);
    return request.answer.text == "text";
  };
  ASSERT_TRUE(reads());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(reads() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(reads());
  EXPECT_EQ(server.connections(), 2);  // the parent's went on
}

}  // namespace
}  // namespace bedplate::store
