// Rules about memory limits and storage, each on runs that are one another's look-alikes.
#include "doctor/rules/rule_test.h"

namespace bedplate::doctor {
namespace {

// One worker reads 50 MB a second and is blocked most of the time; the loop waits for it half of
// the time.
RunBuilder reading(double blocked = 0.8) {
  auto run = RunBuilder::healthy(1, 1);
  run.all_phases({{Phase::kInputWait, 0.5}});
  run.cpu(1000, 1 - blocked, 0.001).fetching(1000, 10, 98, (1 - blocked) / 2, (1 - blocked) / 2);
  run.counter("proc/1000", "io.read_bytes", 50e6).counter("proc/1000", "io.rchar", 50e6);
  return run;
}

RunBuilder thrashing() {
  auto run = reading();
  run.gauge("cgroup/memory", "memory.limit_bytes", 40 << 20)
      .gauge("cgroup/memory", "memory.usage_bytes", (40 << 20) - 4096);
  run.counter("cgroup/memory", "memory.refault_file_pages", 50e6 / 4096 * 0.9)
      .counter("cgroup/memory", "memory.limit_hits", 500);
  return run;
}

TEST(MemcgThrash, FiresWhenReadsAreRefaultsUnderALimit) {
  const Report report = judge(thrashing().build());
  ASSERT_EQ(found(report), (std::vector<std::string>{"memcg_thrash", "input_workers"}));
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.status, Status::kEstablished);
  EXPECT_NEAR(f.gain_ceiling, 0.5 * 0.9 * 0.9, 0.02);
  EXPECT_EQ(report.findings[1].because_of, "memcg_thrash");
  EXPECT_THAT(evidence(f), testing::HasSubstr("the limit was hit 9.95 k times"));
  EXPECT_THAT(ruled_out(f, "io_throttle"), testing::HasSubstr("no IO limit"));
}

TEST(MemcgThrash, AColdCacheReadsWithoutRefaults) {
  auto run = thrashing();
  run.counter("cgroup/memory", "memory.refault_file_pages", 0);
  EXPECT_TRUE(quiet(judge(run.build()), "memcg_thrash"));
}

TEST(MemcgThrash, RefaultsWithoutALimitAreTheMachines) {
  auto run = thrashing();
  run.gauge("cgroup/memory", "memory.limit_bytes", -1);
  EXPECT_TRUE(quiet(judge(run.build()), "memcg_thrash"));
}

TEST(MemcgThrash, ALimitThatHidesNothingFromTheLoopCostsNothing) {
  auto run = thrashing();
  run.all_phases({});
  EXPECT_TRUE(quiet(judge(run.build()), "memcg_thrash"));
}

TEST(MemcgThrash, WithoutItsSignalItCouldNotSee) {
  auto run = thrashing();
  run.unseen("cgroup.memory");
  EXPECT_TRUE(unseen(judge(run.build()), "memcg_thrash"));
}

RunBuilder throttled_reads() {
  auto run = reading(0.95);
  run.gauge("iolimit/vda", "io.read_bps", 50e6).gauge("iolimit/vda", "io.write_bps", -1);
  run.counter("cgroup/job", "psi.io.some_us", 0.9e6).counter("cgroup/job", "psi.io.full_us", 0.4e6);
  run.counter("disk/vda", "busy_ns", 0.02e9);
  return run;
}

TEST(IoThrottle, FiresWhenTasksWaitAndTheDeviceIsIdle) {
  const Report report = judge(throttled_reads().build());
  ASSERT_EQ(found(report), (std::vector<std::string>{"io_throttle", "input_workers"}));
  const Finding& f = report.findings[0];
  EXPECT_NEAR(f.gain_ceiling, 0.49, 0.02);
  EXPECT_EQ(f.scope.device, "vda");
  EXPECT_EQ(report.findings[1].because_of, "io_throttle");
  EXPECT_THAT(evidence(f), testing::HasSubstr("vda was busy 2 % of that time"));
  EXPECT_THAT(f.title, testing::HasSubstr("may read only 47.7 MiB/s on vda"));
}

TEST(IoThrottle, ABusyDeviceIsSlowRatherThanThrottled) {
  auto run = throttled_reads();
  run.counter("disk/vda", "busy_ns", 0.97e9);
  EXPECT_TRUE(quiet(judge(run.build()), "io_throttle"));
}

TEST(IoThrottle, ALimitFarAboveTheTrafficIsNotTheCause) {
  auto run = throttled_reads();
  run.gauge("iolimit/vda", "io.read_bps", 5000e6);
  EXPECT_TRUE(quiet(judge(run.build()), "io_throttle"));
}

TEST(IoThrottle, NoLimitNoFinding) {
  auto run = throttled_reads();
  run.without("iolimit/vda", "io.read_bps");
  EXPECT_TRUE(quiet(judge(run.build()), "io_throttle"));
}

TEST(IoThrottle, WritesUnderALimitMakeCheckpointsItsConsequence) {
  auto run = RunBuilder::healthy(1);
  run.all_phases({{Phase::kCheckpoint, 0.4}});
  run.gauge("iolimit/vda", "io.write_bps", 20e6).counter("cgroup/job", "io.write_bytes", 20e6);
  run.counter("cgroup/job", "psi.io.some_us", 0.4e6).counter("cgroup/job", "psi.io.full_us", 0.4e6);
  run.counter("disk/vda", "busy_ns", 0.02e9);
  const Report report = judge(run.build());
  ASSERT_EQ(found(report), (std::vector<std::string>{"io_throttle", "checkpoint_stall"}));
  EXPECT_EQ(report.findings[1].because_of, "io_throttle");
}

TEST(IoThrottle, TheMachinesPressureWillDoWhenTheJobHasNoneOfItsOwn) {
  auto run = throttled_reads();
  run.without("cgroup/job", "psi.io.some_us")
      .without("cgroup/job", "psi.io.full_us")
      .unseen("cgroup.psi");
  run.counter("host", "psi.io.some_us", 0.9e6).counter("host", "psi.io.full_us", 0.4e6);
  EXPECT_EQ(found(judge(run.build())).front(), "io_throttle");
  run.unseen("host.psi", "this kernel has no PSI");
  const Report report = judge(run.build());
  EXPECT_TRUE(unseen(report, "io_throttle"));
}

// 64 files of 4 KiB a batch, mostly kernel time.
RunBuilder storm() {
  auto run = RunBuilder::healthy(1, 1);
  run.all_phases({{Phase::kInputWait, 0.5}});
  run.cpu(1000, 0.95, 0.001).fetching(1000, 10, 98, 0.2, 0.7);
  run.counter("proc/1000", "trace.files_opened", 640)
      .counter("proc/1000", "io.rchar", 640 * 4096)
      .counter("proc/1000", "io.syscr", 1280);
  run.note(1000, "open_path", "/data/img/000017.jpg");
  return run;
}

TEST(SmallFiles, FiresWhenOpeningIsMostOfTheWork) {
  const Report report = judge(storm().build());
  ASSERT_EQ(found(report), (std::vector<std::string>{"small_files", "input_workers"}));
  const Finding& f = report.findings[0];
  EXPECT_NEAR(f.gain_ceiling, 0.5 * (0.8 + 640 * 15e-6 / 0.98), 0.01);
  EXPECT_EQ(report.findings[1].because_of, "small_files");
  EXPECT_THAT(f.title, testing::HasSubstr("each batch opens 64 small files of 4 KiB"));
  EXPECT_EQ(f.scope.path, "/data/img/000017.jpg");
}

TEST(SmallFiles, ASlowDecoderIsUserTime) {
  auto run = storm();
  run.fetching(1000, 10, 98, 0.93, 0.05);
  const Report report = judge(run.build());
  EXPECT_TRUE(quiet(report, "small_files"));
  EXPECT_EQ(found(report), std::vector<std::string>{"input_workers"});
  EXPECT_THAT(ruled_out(report.findings[0], "small_files"),
              testing::HasSubstr("opening and reading is 8 % of making a batch"));
}

TEST(SmallFiles, LargeFilesAreBandwidth) {
  auto run = storm();
  run.counter("proc/1000", "io.rchar", 640.0 * (1 << 20));
  EXPECT_TRUE(quiet(judge(run.build()), "small_files"));
}

TEST(SmallFiles, AFewFilesABatchAreNoStorm) {
  auto run = storm();
  run.counter("proc/1000", "trace.files_opened", 20);
  EXPECT_TRUE(quiet(judge(run.build()), "small_files"));
}

TEST(SmallFiles, WithoutTheHookItCouldNotSee) {
  auto run = storm();
  run.unseen("hook");
  EXPECT_TRUE(unseen(judge(run.build()), "small_files"));
}

TEST(Pairs, TheOrderIsThatOfTheCeilings) {
  auto run = storm();  // small files cost nearly all of the input wait
  for (const auto& [input, checkpoint] : {std::pair(0.5, 0.2), std::pair(0.2, 0.5)}) {
    run.all_phases({{Phase::kInputWait, input}, {Phase::kCheckpoint, checkpoint}});
    const auto names = found(judge(run.build()));
    EXPECT_EQ(names,
              input > checkpoint
                  ? (std::vector<std::string>{"small_files", "input_workers", "checkpoint_stall"})
                  : (std::vector<std::string>{"checkpoint_stall", "small_files", "input_workers"}));
  }
}

}  // namespace
}  // namespace bedplate::doctor
