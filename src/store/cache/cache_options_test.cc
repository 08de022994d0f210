#include "store/cache/cache_options.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/units.h"

namespace bedplate::store {
namespace {

TEST(ParseCache, TakesFoldersSizesMemoryAndReadTypes) {
  const auto all = parse_cache("memory:4GiB, /nvme/cache:200GB,CACHE");
  EXPECT_EQ(all.folder, "/nvme/cache");
  EXPECT_EQ(all.cap_bytes, 200'000'000'000);
  EXPECT_EQ(all.memory_bytes, 4 * kGiB);
  EXPECT_EQ(all.read_type, ReadType::kCache);
  EXPECT_EQ(parse_cache("/nvme/a:b/cache").folder, "/nvme/a:b/cache");
  EXPECT_EQ(parse_cache("/nvme/cache").cap_bytes, 0);
  EXPECT_EQ(parse_cache("ä/ü ß:1.5k").cap_bytes, 1536);
  for (const char* bad : {"", ",", "memory", "memory:x", "/a:", "/a:12Q", "/a:-1", "/a:0", "/a,/b",
                          ":5GB", "/a:1e300GB", "CACHE", "10GB", "4096"})
    EXPECT_THROW(parse_cache(bad), Error) << bad;
  EXPECT_EQ(parse_cache("./10GB").folder, "./10GB");
}

}  // namespace
}  // namespace bedplate::store
