#include "store/cache/internal/siphash.h"

#include <gtest/gtest.h>

#include <string_view>

namespace bedplate::store {
namespace {

TEST(SipHash, GivesThePublishedSums) {
  // Aumasson and Bernstein's vectors_sip128: key 00 … 0f, inputs 00 01 02 …
  const cache::Hash128 key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  EXPECT_EQ(cache::siphash(key, ""), (cache::Hash128{0xe6a825ba047f81a3, 0x930255c71472f66d}));
  EXPECT_EQ(cache::siphash(key, std::string_view("\0", 1)),
            (cache::Hash128{0x44af996bd8c187da, 0x45fc229b11597634}));
}

}  // namespace
}  // namespace bedplate::store
