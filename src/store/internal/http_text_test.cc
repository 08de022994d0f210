#include "store/internal/http_text.h"

#include <gmock/gmock.h>

#include <optional>

namespace bedplate::store {
namespace {

TEST(HttpText, RetryAfterIsSecondsOrADate) {
  constexpr Nanos kNow = 1'445'412'480 * kSecond;  // Wed, 21 Oct 2015 07:28:00 GMT
  EXPECT_EQ(parse_retry_after("120", kNow), 120 * kSecond);
  EXPECT_EQ(parse_retry_after("Wed, 21 Oct 2015 07:28:30 GMT", kNow), 30 * kSecond);
  EXPECT_EQ(parse_retry_after("Wed, 21 Oct 2015 07:00:00 GMT", kNow), 0);
  EXPECT_EQ(parse_retry_after("-1", kNow), std::nullopt);
  EXPECT_EQ(parse_retry_after("", kNow), std::nullopt);
  EXPECT_EQ(parse_retry_after("soon", kNow), std::nullopt);
}

TEST(HttpText, ContentRange) {
  const auto range = parse_content_range("bytes 3-9/100");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 3);
  EXPECT_EQ(range->last, 9);
  EXPECT_EQ(range->total, 100);
  EXPECT_EQ(parse_content_range("bytes 3-9/*")->total, -1);
  for (const char* text : {"", "bytes */10", "bytes 3/9-10", "items 3-9/100", "bytes a-b/c"})
    EXPECT_FALSE(parse_content_range(text)) << text;
}

TEST(HttpText, FormDecoding) {
  EXPECT_EQ(form_decode("a+b%2Bc%C3%BC"), "a b+cü");
  EXPECT_EQ(form_decode("100%"), std::nullopt);
  EXPECT_EQ(form_decode("%4"), std::nullopt);
  EXPECT_EQ(form_decode("%zz"), std::nullopt);
}

TEST(HttpText, MessagesShowNoQueries) {
  EXPECT_EQ(without_query("http://h/a?b=c"), "http://h/a?…");
  EXPECT_EQ(host_of("http://h:80?b"), "h:80");
}

}  // namespace
}  // namespace bedplate::store
