// The GPU sampler against a library that answers, blocks and dies (fake_nvml.c), and against none.
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "probe/internal/helper_process.h"
#include "probe/internal/nvml.h"
#include "probe/samplers/sampler_fixture.h"

namespace bedplate::probe {

extern const SamplerPart kGpuNvml;

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class GpuNvmlTest : public SamplerTest {
 protected:
  ~GpuNvmlTest() override { ::unsetenv("FAKE_NVML"); }

  static std::unique_ptr<Sampler> open_fake(const char* mode, Nanos answer_within = 30 * kSecond) {
    if (mode) ::setenv("FAKE_NVML", mode, 1);
    return open_nvml({.library = BEDPLATE_FAKE_NVML,
                      .answer_within = answer_within,
                      .first_answer_within = answer_within,
                      .wait_at_open = std::min(answer_within, 10 * kSecond)});
  }

  // Samples until `done`, which must come true before a minute is over.
  template <typename Done>
  void tick_until(Sampler& sampler, Done done) {
    const Nanos deadline = real_clock().now() + 60 * kSecond;
    while (!done()) {
      ASSERT_LT(real_clock().now(), deadline);
      tick(sampler);
      ::usleep(1000);
    }
  }
};

TEST_F(GpuNvmlTest, TwoGpus) {
  auto sampler = open_fake(nullptr);
  tick(*sampler);  // the answer to the first question came while it was opened
  EXPECT_EQ(value("gpu/0", "utilization_pct"), 31);
  EXPECT_EQ(value("gpu/1", "utilization_pct"), 32);
  EXPECT_EQ(value("gpu/0", "memory_used_bytes"), 60 * kGiB);
  EXPECT_EQ(value("gpu/0", "memory_total_bytes"), 80 * kGiB);
  EXPECT_EQ(value("gpu/0", "power_mw"), 350123);
  EXPECT_EQ(value("gpu/0", "power_limit_mw"), 700000);
  EXPECT_EQ(value("gpu/0", "sm_clock_mhz"), 1980);
  EXPECT_EQ(value("gpu/0", "temperature_c"), 71);
  EXPECT_EQ(value("gpu/1", "temperature_c"), std::nullopt);  // not supported is not 0
  EXPECT_EQ(value("gpu/0", "throttle_reasons"), 0x24);
  EXPECT_EQ(value("gpu/0", "pcie_replays"), 7);
  EXPECT_EQ(value("gpu/1", "pcie_replays"), 9);
  EXPECT_EQ(kind("gpu/0", "pcie_replays"), SeriesKind::kCounter);
  EXPECT_EQ(kind("gpu/0", "power_mw"), SeriesKind::kGauge);
  EXPECT_EQ(sampler->remark(), "");
}

TEST_F(GpuNvmlTest, ADyingGpuBlocksNobodyButTheHelper) {
  auto sampler = open_fake("block_later", 2 * kSecond);
  ASSERT_THAT(helper_processes(), SizeIs(1));
  const pid_t helper = helper_processes()[0];
  Nanos longest = 0;
  tick_until(*sampler, [&] {
    const Nanos before = real_clock().now();
    tick(*sampler);
    longest = std::max(longest, real_clock().now() - before);
    return !sampler->remark().empty();
  });
  EXPECT_THAT(sampler->remark(), StartsWith("blocked: the NVIDIA driver did not answer in "));
  EXPECT_LT(longest,
            250 * kMillisecond);  // a tick never waits for a GPU; the kill may take a moment
  EXPECT_EQ(value("gpu/0", "utilization_pct"), 31);
  EXPECT_THAT(helper_processes(), IsEmpty());
  EXPECT_EQ(::kill(helper, 0), -1);
  tick(*sampler);
}

TEST_F(GpuNvmlTest, ALibraryThatDiesTakesOnlyTheHelper) {
  auto sampler = open_fake("die_later");
  tick_until(*sampler, [&] { return !sampler->remark().empty(); });
  EXPECT_THAT(sampler->remark(), HasSubstr("ended the process that asked it"));
  EXPECT_EQ(value("gpu/1", "utilization_pct"), 32);
}

TEST_F(GpuNvmlTest, AGpuThatIsLostIsNoted) {
  auto sampler = open_fake("lose_later");
  tick_until(*sampler, [&] { return !notes("gpu_lost").empty(); });
  for (int i = 0; i < 5; ++i) tick(*sampler);
  EXPECT_THAT(notes("gpu_lost"), ElementsAre("0 1"));
}

TEST_F(GpuNvmlTest, ADriverThatNeverWakesUpIsSaidToBlock) {
  auto sampler = open_fake("block_init", 200 * kMillisecond);
  tick_until(*sampler, [&] { return !sampler->remark().empty(); });
  EXPECT_THAT(sampler->remark(), StartsWith("blocked: "));
  EXPECT_THAT(sink_.values, IsEmpty());
}

TEST_F(GpuNvmlTest, NoDriver) {
  try {
    open_nvml({.library = "libnvidia-ml-that-is-nowhere.so.1"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_THAT(error.what(), StartsWith("no NVIDIA driver: "));
  }
  try {
    open_fake("no_driver");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_STREQ(error.what(), "no NVIDIA driver: its kernel module is not loaded");
  }
  EXPECT_EQ(refusal(kGpuNvml), "not supported: a recorded machine has no GPU to ask");
  EXPECT_THAT(helper_processes(), IsEmpty());
}

TEST(HelperProcess, HoldsNoDescriptorOfItsParent) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  HelperProcess helper("bedplate-test", [](int socket) {
    char byte;
    (void)!::read(socket, &byte, 1);
  });
  ::close(ends[1]);
  char byte;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);  // would wait for ever if the child held the other end
  ::close(ends[0]);
}

}  // namespace
}  // namespace bedplate::probe
