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

TEST(Units, SizesAreReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_size("4096"), 4096);
  EXPECT_EQ(parse_size("128KiB"), 128 * kKiB);
  EXPECT_EQ(parse_size(" 1.5 MiB "), 3 * kMiB / 2);
  EXPECT_EQ(parse_size("64k"), 64 * kKiB);
  EXPECT_EQ(parse_size("1Gi"), kGiB);
  EXPECT_EQ(parse_size("200GB"), 200'000'000'000);
  EXPECT_EQ(parse_size("7 B"), 7);
  EXPECT_EQ(parse_size("3gb"), 3'000'000'000);
  EXPECT_EQ(parse_size("3gib"), 3 * kGiB);
  for (const char* wrong : {"", "B", "KiB", "x", "1x", "1KiBB", "1 2", "-1", "1e3", "1..2", "nan",
                            "9000000000000000000000", "10000000PB", "1 KB s"}) {
    EXPECT_EQ(parse_size(wrong), std::nullopt) << wrong;
  }
}

TEST(Units, SharesNeverShowAFalseZero) {
  EXPECT_EQ(human_share(0), "0 %");
  EXPECT_EQ(human_share(0.0002), "< 0.1 %");
  EXPECT_EQ(human_share(0.005), "0.5 %");
  EXPECT_EQ(human_share(0.414), "41 %");
}

}  // namespace
}  // namespace bedplate
