#include "bench/disk.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "bench/internal/disk_phase.h"
#include "bench/internal/fio.h"
#include "os/test_folder.h"

namespace bedplate::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Disk : public ::testing::TestWithParam<DiskEngine> {
 protected:
  void SetUp() override {
    if (GetParam() == DiskEngine::kFio && !fio_version({})) GTEST_SKIP() << "needs fio";
  }
  DiskOptions options() const {
    return {.folder = folder_.path(),
            .block = 64 * kKiB,
            .depth = 4,
            .length = 100 * kMillisecond,
            .size = 8 * kMiB,
            .reserve = 0,
            .engine = GetParam()};
  }
  Code code_of(const DiskOptions& options) {
    try {
      measure_disk(options);
    } catch (const Error& error) {
      message_ = error.what();
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return Code::kInternal;
  }
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      names.push_back(entry.path().filename().string());
    return names;
  }

  os::TestFolder folder_;
  std::string message_;
};

TEST_P(Disk, MeasuresReadingAndWriting) {
  DiskOptions how = options();
  how.writes = Writes::kMeasured;
  const DiskResult result = measure_disk(how);
  ASSERT_EQ(result.phases.size(), 4u);
  EXPECT_EQ(result.filling.amount, 8 * kMiB);
  for (const DiskPhase& phase : result.phases) {
    const Figures& figures = phase.figures;
    EXPECT_GT(figures.calls, 0) << phase.name;
    EXPECT_EQ(figures.amount, figures.calls * 64 * kKiB) << phase.name;
    EXPECT_GE(figures.length, 50 * kMillisecond) << phase.name;
    EXPECT_GT(figures.median, 0) << phase.name;
    EXPECT_LE(figures.median, figures.p99) << phase.name;
    EXPECT_LE(figures.p99, figures.longest) << phase.name;
    // No more than `depth` at once: Little's law.
    const double in_flight = figures.calls_per_second() * seconds(figures.median);
    EXPECT_LT(in_flight, 4 * 2.0) << phase.name;
  }
  EXPECT_THAT(left(), IsEmpty());
}

TEST_P(Disk, ThroughThePageCacheNoBlockIsReadTwice) {
  DiskOptions how = options();
  how.page_cache = PageCache::kThrough;
  how.length = 20 * kSecond;  // the file ends before that
  const DiskResult result = measure_disk(how);
  EXPECT_EQ(result.page_cache, PageCache::kThrough);
  EXPECT_EQ(result.sequential_read().amount, 8 * kMiB);
  EXPECT_EQ(result.random_read().amount, 8 * kMiB);
  EXPECT_THAT(result.notes, ::testing::Contains(HasSubstr("through the page cache")));
  EXPECT_THAT(result.notes, ::testing::Contains(HasSubstr("a larger --size")));
}

TEST_P(Disk, RefusesWhatMakesNoSense) {
  for (const auto& [block, size, depth] : {std::tuple{1000L, kMiB, 1},
                                           {0L, kMiB, 1},
                                           {128 * kMiB, kGiB, 1},
                                           {8192L, 4096L, 1},
                                           {4096L, kMiB, 0},
                                           {4096L, kMiB, 5000}}) {
    DiskOptions how = options();
    how.block = block;
    how.size = size;
    how.depth = depth;
    EXPECT_EQ(code_of(how), Code::kInvalid) << block << ' ' << size << ' ' << depth;
  }
  DiskOptions how = options();
  how.length = 0;
  EXPECT_EQ(code_of(how), Code::kInvalid);
  how = options();
  how.folder = folder_.path() / "missing";
  EXPECT_EQ(code_of(how), Code::kNotFound);
  EXPECT_THAT(message_, HasSubstr("missing"));
  how = options();
  how.reserve = INT64_MAX / 2;
  EXPECT_EQ(code_of(how), Code::kNoSpace);
  EXPECT_THAT(message_, HasSubstr("less than the reserve"));
  EXPECT_THAT(left(), IsEmpty());
}

TEST_P(Disk, EndsWhenItIsToldTo) {
  DiskOptions how = options();
  how.length = 100 * kSecond;
  double last = 0;
  how.watch.progress = [&](std::string_view, double share) {
    EXPECT_GE(share, last);
    EXPECT_LE(share, 1);
    last = share;
  };
  how.watch.stopped = [&] { return last > 0.33; };  // in the first phase of reading
  EXPECT_EQ(code_of(how), Code::kUnavailable);
  EXPECT_THAT(message_, HasSubstr("sequential read: interrupted"));
  EXPECT_THAT(left(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Engines, Disk, ::testing::Values(DiskEngine::kThreads, DiskEngine::kFio),
                         [](const auto& info) {
                           return info.param == DiskEngine::kFio ? "fio" : "threads";
                         });

TEST(FillBlock, NoTwoPlacesHoldTheSameAndEachIsRecognised) {
  std::vector<std::byte> a(16 * kKiB);
  std::vector<std::byte> b(16 * kKiB);
  fill_block(7, 0, a);
  fill_block(7, 16 * kKiB, b);
  EXPECT_NE(a, b);
  EXPECT_TRUE(holds(7, 0, a));
  EXPECT_TRUE(holds(7, 16 * kKiB, b));
  EXPECT_FALSE(holds(7, 0, b));
  EXPECT_FALSE(holds(8, 0, a));
  std::memset(a.data() + 8192, 0, 4096);
  EXPECT_FALSE(holds(7, 0, a));
  // Incompressible: each value of a byte comes about as often as each other.
  std::vector<int> counts(256, 0);
  for (const std::byte byte : b) ++counts[static_cast<std::size_t>(byte)];
  EXPECT_LT(*std::ranges::max_element(counts), 2 * 64);
  EXPECT_GT(*std::ranges::min_element(counts), 64 / 3);
}

}  // namespace
}  // namespace bedplate::bench
