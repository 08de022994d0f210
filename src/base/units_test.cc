#include "base/units.h"

#include <gtest/gtest.h>

#include <limits>

namespace bedplate {
namespace {

TEST(Units, BytesUseBinaryPrefixes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1 KiB");
  EXPECT_EQ(human_bytes(1536.0 * 1024), "1.50 MiB");
  EXPECT_EQ(human_bytes(24.0 * kGiB), "24 GiB");
}

TEST(Units, DurationsChooseTheirUnit) {
  EXPECT_EQ(human_duration(0), "0 ns");
  EXPECT_EQ(human_duration(740 * kMicrosecond), "740 µs");
  EXPECT_EQ(human_duration(12'340 * kMicrosecond), "12.3 ms");
  EXPECT_EQ(human_duration(125 * kSecond), "2 min 5 s");
  EXPECT_EQ(human_duration(-kSecond), "-1 s");
  EXPECT_EQ(human_duration(3 * 3600 * kSecond + 720 * kSecond), "3 h 12 min");
}

TEST(Units, SharesNeverShowAFalseZero) {
  EXPECT_EQ(human_share(0), "0 %");
  EXPECT_EQ(human_share(0.0002), "< 0.1 %");
  EXPECT_EQ(human_share(0.005), "0.5 %");
  EXPECT_EQ(human_share(0.414), "41 %");
}

}  // namespace
}  // namespace bedplate
