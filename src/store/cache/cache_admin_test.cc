#include "store/cache/cache_admin.h"

#include <gmock/gmock.h>

#include <atomic>

#include "os/test_folder.h"
#include "store/cache/internal/cache_file.h"
#include "store/driver.h"

namespace bedplate::store {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::int64_t kBlock = 64 * kKiB;

class CacheAdmin : public ::testing::Test {
 protected:
  CacheAdmin() {
    for (const char* key : {"a/1", "a/2", "b/1"})
      put(*origin_, key, std::string(3 * kBlock + 100, key[2]));
  }
  std::shared_ptr<Cache> open(std::int64_t cap = 16 * kMiB) {
    return Cache::open({.folder = cache_, .cap_bytes = cap, .block_bytes = kBlock});
  }
  std::string url(const std::string& below) { return (folder_.path() / "origin" / below).string(); }
  std::filesystem::path file() { return cache_ / cache::kFileName; }

  os::TestFolder folder_;
  const std::filesystem::path cache_ = folder_.path() / "cache";
  std::shared_ptr<Store> origin_ = (std::filesystem::create_directory(folder_.path() / "origin"),
                                    locate((folder_.path() / "origin").string() + "/").store);
};

TEST_F(CacheAdmin, WarmsOnceAndSaysWhatIsThere) {
  const std::string urls[] = {url("") + "/"};
  std::vector<std::int64_t> shown;
  const auto first = warm_cache(
      *open(), urls, {}, {.show = [&](std::int64_t done, std::int64_t) { shown.push_back(done); }});
  EXPECT_EQ(first.objects, 3);
  EXPECT_EQ(first.bytes, 3 * (3 * kBlock + 100));
  EXPECT_EQ(first.fetched_bytes, first.bytes);
  EXPECT_THAT(first.failed, SizeIs(0));
  EXPECT_THAT(shown, SizeIs(3));
  EXPECT_EQ(shown.back(), first.bytes);
  EXPECT_EQ(warm_cache(*open(), urls).fetched_bytes, 0);

  const auto report = look_at_cache(cache_);
  EXPECT_EQ(report.blocks, 12);
  EXPECT_EQ(report.bytes, first.bytes);
  EXPECT_EQ(report.cap_bytes, 16 * kMiB);
  EXPECT_GE(report.disk_bytes, first.bytes);
  EXPECT_LE(report.disk_bytes, 2 * first.bytes);
  ASSERT_THAT(report.origins, SizeIs(1));
  EXPECT_EQ(report.origins[0].url, origin_->url());
  EXPECT_EQ(report.origins[0].blocks, 12);
  EXPECT_EQ(report.counters.misses, 12);
  EXPECT_EQ(report.counters.filled_bytes, first.bytes);
  EXPECT_EQ(look_at_memory(cache_), std::nullopt);
}

TEST_F(CacheAdmin, WarmRefusesWhatHasNoRoomAndWhatIsNotThere) {
  const std::string all[] = {url("") + "/"};
  const auto small = open(8 * kBlock);
  EXPECT_THROW(warm_cache(*small, all), Error);
  EXPECT_EQ(look_at_cache(cache_).blocks, 0);
  const std::string none[] = {url("c")};
  EXPECT_THROW(warm_cache(*small, none), Error);
  EXPECT_THROW(look_at_cache(folder_.path()), Error);
}

TEST_F(CacheAdmin, WarmGoesOnWhereItWasStopped) {
  const std::string urls[] = {url("") + "/"};
  std::atomic<bool> stop{false};
  const auto part = warm_cache(*open(), urls, {.threads = 1},
                               {.show = [&](std::int64_t, std::int64_t) { stop = true; },
                                .stop = [&] { return stop.load(); }});
  EXPECT_TRUE(part.stopped);
  EXPECT_EQ(part.fetched_bytes, 3 * kBlock + 100);
  EXPECT_EQ(warm_cache(*open(), urls).fetched_bytes, 2 * (3 * kBlock + 100));
}

TEST_F(CacheAdmin, DropsAnObjectAFolderAndEverything) {
  const std::string urls[] = {url("") + "/"};
  warm_cache(*open(), urls);
  const std::string object[] = {url("a/1")};
  EXPECT_EQ(drop_from_cache(cache_, object).blocks, 4);
  const std::string folder[] = {url("a") + "/"};
  EXPECT_EQ(drop_from_cache(cache_, folder).blocks, 4);
  EXPECT_EQ(look_at_cache(cache_).blocks, 4);
  const auto cache = open();
  const auto store = cache->over(origin_);
  EXPECT_EQ(get(*store, "b/1"), std::string(3 * kBlock + 100, '1'));
  EXPECT_EQ(cache->counters().misses, 0);
  EXPECT_EQ(drop_from_cache(cache_, {}).blocks, 4);
  EXPECT_EQ(get(*store, "b/1"), std::string(3 * kBlock + 100, '1')) << "while it is open";
  EXPECT_EQ(cache->counters().misses, 4);
}

TEST_F(CacheAdmin, VerifyFindsWhatWasChangedAndRepairsOnlyWhenAsked) {
  const std::string urls[] = {url("") + "/"};
  warm_cache(*open(), urls);
  EXPECT_THAT(verify_cache(cache_, Repair::kNo).bad, SizeIs(0));
  const auto raw = cache::CacheFile::find(cache_);
  raw->put(raw->block_at(2) + 5, 'x');
  raw->put(raw->entry_at(5) + offsetof(cache::Entry, sums), 'x');
  for (const Repair repair : {Repair::kNo, Repair::kYes}) {
    const auto check = verify_cache(cache_, repair);
    EXPECT_EQ(check.blocks, 12);
    ASSERT_THAT(check.bad, SizeIs(2));
    EXPECT_EQ(check.bad[0].slot, 2U);
    EXPECT_EQ(check.bad[0].origin, origin_->url());
    EXPECT_THAT(check.bad[0].what, HasSubstr("bytes 0 to 4096"));
    EXPECT_THAT(check.bad[1].what, HasSubstr("entry in the index"));
  }
  EXPECT_THAT(verify_cache(cache_, Repair::kNo).bad, SizeIs(0));
  EXPECT_EQ(look_at_cache(cache_).blocks, 10);
}

}  // namespace
}  // namespace bedplate::store
