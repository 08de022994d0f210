#include "bench/internal/fio.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "base/error.h"

namespace bedplate::bench {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

using Way = DiskPhaseKind::Way;
using Order = DiskPhaseKind::Order;

std::string recorded(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(fmt::format("{}/src/bench/testdata/{}", BEDPLATE_SOURCE_DIR, name)).rdbuf();
  return text.str();
}

TEST(Fio, ReadsItsReport) {
  const Figures read = parse_fio(recorded("fio-3.33-randread.json"), "", Way::kRead);
  EXPECT_EQ(read.calls, 35'927);
  EXPECT_EQ(read.amount, 4'709'023'744);
  EXPECT_NEAR(read.amount_per_second(), 15'644'597'156.0, 100);
  EXPECT_NEAR(seconds(read.length), 0.301, 0.001);
  EXPECT_EQ(read.median, 108'032);
  EXPECT_EQ(read.p99, 4'292'608);
  EXPECT_EQ(read.longest, 11'079'124);
  const Figures write = parse_fio(recorded("fio-3.33-randwrite.json"), "", Way::kWrite);
  EXPECT_EQ(write.calls, 3'127);
  EXPECT_EQ(write.longest, 16'299'003);
}

TEST(Fio, NotesBeforeTheReportAreLeftOut) {
  const std::string text = "fio: note\n" + recorded("fio-3.33-randread.json");
  EXPECT_EQ(parse_fio(text, "", Way::kRead).calls, 35'927);
}

TEST(Fio, AFailedJobIsAnErrorWithItsReason) {
  try {
    parse_fio(recorded("fio-3.33-full.json"), "one\nfio: No space left on device\n", Way::kWrite);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNoSpace);
    EXPECT_THAT(error.what(), HasSubstr("fio: No space left on device"));
    EXPECT_THAT(error.what(), Not(HasSubstr("one")));
  }
}

TEST(Fio, WhatIsNoReportIsNotTakenForOne) {
  const std::string whole = recorded("fio-3.33-randread.json");
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("no JSON"), std::string("{\"jobs\": []}"),
        whole.substr(0, whole.size() / 2)}) {
    try {
      parse_fio(text, "it said this", Way::kRead);
      ADD_FAILURE() << text.substr(0, 40);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt);
      EXPECT_THAT(error.what(), HasSubstr("it said this"));
    }
  }
  // Of the other direction it did nothing: no figure is 0.
  EXPECT_THROW(parse_fio(whole, "", Way::kWrite), Error);
}

TEST(Fio, IsAskedForWhatIsMeasured) {
  DiskOptions options;
  options.depth = 7;
  options.length = 1500 * kMillisecond;
  DiskJob job{options, 9, PageCache::kPast, 65536, 10, 1, 0, 1};
  const auto direct = fio_command(job, {"random read", Order::kRandom, Way::kRead});
  EXPECT_THAT(direct,
              AllOf(Contains("--rw=randread"), Contains("--bs=65536"), Contains("--size=655360"),
                    Contains("--iodepth=7"), Contains("--direct=1"), Contains("--runtime=1500ms"),
                    Contains("--time_based"), Not(Contains("--end_fsync=1"))));
  const auto write = fio_command(job, {"sequential write", Order::kSequential, Way::kWrite});
  EXPECT_THAT(write, AllOf(Contains("--rw=write"), Contains("--refill_buffers"),
                           Contains("--end_fsync=1")));
  job.page_cache = PageCache::kThrough;
  const auto cached = fio_command(job, {"sequential read", Order::kSequential, Way::kRead});
  EXPECT_THAT(cached, AllOf(Contains("--rw=read"), Contains("--direct=0"),
                            Not(Contains("--time_based")), Not(Contains("--norandommap"))));
}

}  // namespace
}  // namespace bedplate::bench
