// readahead_amplification on runs that are its look-alikes: sequential cold reading, small files, a
// memory limit, slow decoding.
#include "doctor/rules/rule_test.h"

namespace bedplate::doctor {
namespace {

using ::testing::HasSubstr;

// One worker maps a file and takes 16 KiB at 100 random places a second: each brings 4 MiB.
RunBuilder jumping(double window_bytes = 4 << 20, double minor_each = 1) {
  auto run = RunBuilder::healthy(1, 1);
  run.all_phases({{Phase::kInputWait, 0.5}});
  run.cpu(1000, 0.2, 0.001).fetching(1000, 10, 98, 0.1, 0.1);
  run.counter("proc/1000", "io.read_bytes", 100 * window_bytes)
      .counter("proc/1000", "io.rchar", 1000)
      .counter("proc/1000", "major_faults", 100)
      .counter("proc/1000", "minor_faults", 100 * minor_each);
  run.gauge("disk/vdb", "read_ahead_bytes", window_bytes)
      .counter("disk/vdb", "reads", 800)
      .counter("disk/vdb", "read_bytes", 100 * window_bytes)
      .counter("disk/vda", "read_bytes", 10)
      .gauge("host", "mem.cached_bytes", 2e9);
  return run;
}

TEST(ReadaheadAmplification, FiresWhenMoreIsReadThanCanHaveBeenAskedFor) {
  const Report report = judge(jumping().build());
  ASSERT_EQ(found(report), (std::vector<std::string>{"readahead_amplification", "input_workers"}));
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.status, Status::kEstablished);
  EXPECT_NEAR(f.gain_ceiling, 0.45, 0.01);
  EXPECT_EQ(f.scope.device, "vdb");
  EXPECT_THAT(f.title, HasSubstr("at least 60 times what the job asks for"));
  EXPECT_THAT(evidence(f), HasSubstr("4 MiB from storage for each"));
  EXPECT_THAT(evidence(f), HasSubstr("vdb reads 4 MiB ahead"));
  EXPECT_THAT(f.fix, HasSubstr("madvise(mmap.MADV_RANDOM)"));
  EXPECT_THAT(f.fix, HasSubstr("bedplate data pack SRC SHARDS/"));
  EXPECT_EQ(f.undo, "blockdev --setra 8192 /dev/vdb");
  EXPECT_EQ(report.findings[1].because_of, "readahead_amplification");
  EXPECT_NE(ruled_out(f, "small_files"), "");
  EXPECT_THAT(ruled_out(f, "memcg_thrash"), HasSubstr("not limited"));
}

TEST(ReadaheadAmplification, TheUsualWindowIsSupportedWhereEachWasBroughtByAFault) {
  const Report report = judge(jumping(128 << 10).build());
  const Finding* f = finding(report, "readahead_amplification");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->status, Status::kSupported);
  EXPECT_THAT(f->title, HasSubstr("about 16 times"));
}

TEST(ReadaheadAmplification, SmallReadCallsOfLargeFiles) {
  auto run = jumping();
  run.counter("proc/1000", "io.rchar", 100.0 * (1 << 20))
      .counter("proc/1000", "major_faults", 0)
      .counter("proc/1000", "minor_faults", 5);
  const Report report = judge(run.build());
  const Finding* f = finding(report, "readahead_amplification");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->status, Status::kSupported);
  EXPECT_THAT(f->title, HasSubstr("about 4.0 times"));
  EXPECT_THAT(f->fix, HasSubstr("POSIX_FADV_RANDOM"));
}

TEST(ReadaheadAmplification, AFileReadFromEndToEndIsNot) {
  auto calls = jumping();
  calls.counter("proc/1000", "io.rchar", 100.0 * (4 << 20))
      .counter("proc/1000", "major_faults", 0)
      .counter("proc/1000", "minor_faults", 5);
  Report report = judge(calls.build());
  EXPECT_TRUE(quiet(report, "readahead_amplification"));
  // Mapped: few faults wait, and each of the others maps a large folio.
  auto mapped = jumping();
  mapped.counter("proc/1000", "major_faults", 2)
      .counter("proc/1000", "minor_faults", 100.0 * (4 << 20) / 800'000);
  report = judge(mapped.build());
  EXPECT_TRUE(quiet(report, "readahead_amplification"));
}

TEST(ReadaheadAmplification, ReadingAheadIntoTheVoidWhileTheLoopComputesCostsNothing) {
  auto run = jumping();
  run.all_phases({});
  EXPECT_TRUE(quiet(judge(run.build()), "readahead_amplification"));
}

TEST(ReadaheadAmplification, ASlowDecoderIsNotHelpedByLessReading) {
  auto run = jumping();
  run.fetching(1000, 10, 98, 0.97, 0.02);
  EXPECT_TRUE(quiet(judge(run.build()), "readahead_amplification"));
}

TEST(ReadaheadAmplification, WhatStaysInTheCacheIsItsConsequence) {
  auto run = jumping();
  std::vector<probe::Sample> cached;
  for (Nanos t = 0; t <= RunBuilder::kLength; t += kSecond)
    cached.push_back({t, static_cast<std::int64_t>(2e9 + 100.0 * (4 << 20) * seconds(t))});
  run.series("host", "mem.cached_bytes", probe::SeriesKind::kGauge, cached);
  const Report report = judge(run.build());
  ASSERT_EQ(found(report).front(), "readahead_amplification");
  const Finding* f = finding(report, "cold_cache");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->because_of, "readahead_amplification");
}

TEST(ReadaheadAmplification, WithoutItsSignalsItCouldNotSee) {
  for (const char* signal : {"hook", "proc.io", "proc.cpu"}) {
    auto run = jumping();
    run.unseen(signal);
    EXPECT_TRUE(unseen(judge(run.build()), "readahead_amplification")) << signal;
  }
}

TEST(ReadaheadAmplification, OrderedBesideASecondCauseByWhatEachCosts) {
  for (const auto& [input, checkpoint] : {std::pair(0.5, 0.2), std::pair(0.2, 0.5)}) {
    auto run = jumping();
    run.all_phases({{Phase::kInputWait, input}, {Phase::kCheckpoint, checkpoint}});
    EXPECT_EQ(found(judge(run.build())).front(),
              input > checkpoint ? "readahead_amplification" : "checkpoint_stall");
  }
}

}  // namespace
}  // namespace bedplate::doctor
