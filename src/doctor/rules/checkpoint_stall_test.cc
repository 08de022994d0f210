#include "doctor/rules/rule_test.h"

namespace bedplate::doctor {
namespace {

// Every tenth step of rank 0 takes ten times as long, in torch.save; the others wait for it.
RunBuilder saving(int ranks) {
  auto run = RunBuilder::healthy(ranks);
  for (auto& step : run.data().steps) {
    if (step.index % 10 != 5) continue;
    step.duration = kSecond;
    step.phases = {};
    step.phases[probe::index(step.rank == 0 ? Phase::kCheckpoint : Phase::kCommunication)] =
        900 * kMillisecond;
    step.phases[probe::index(Phase::kCompute)] = 100 * kMillisecond;
    if (step.rank == 0)
      run.event(100, probe::EventKind::kCheckpoint, step.start, 900 * kMillisecond, 50'000'000);
  }
  run.counter("proc/100", "trace.checkpoints", 1)
      .counter("proc/100", "trace.checkpoint_ns", 0.45e9);
  run.counter("proc/100", "trace.fsync_ns", 0.72e9).counter("proc/100", "io.write_bytes", 50e6);
  return run;
}

TEST(CheckpointStall, FiresWithTheTimeInCheckpoints) {
  const Report report = judge(saving(1).build());
  ASSERT_EQ(found(report), std::vector<std::string>{"checkpoint_stall"});
  const Finding& f = report.findings[0];
  EXPECT_NEAR(f.gain_ceiling, 20 * 0.9 / (179 * 0.1 + 20 * 1.0), 0.01);
  EXPECT_THAT(evidence(f),
              testing::HasSubstr("a step with a checkpoint takes 1 s, one without 100 ms"));
  EXPECT_THAT(evidence(f), testing::HasSubstr("80 % of their time in fsync"));
  EXPECT_THAT(f.fix, testing::HasSubstr("flush once a checkpoint"));
}

TEST(CheckpointStall, TheOtherRanksWaitForTheOneThatWrites) {
  const Finding f = judge(saving(2).build()).findings.at(0);
  EXPECT_EQ(f.rule, "checkpoint_stall");
  EXPECT_EQ(f.scope.ranks, std::vector<int>{0});
  EXPECT_NEAR(f.gain_ceiling, 20 * 0.9 / (179 * 0.1 + 20 * 1.0), 0.01);
  EXPECT_THAT(evidence(f), testing::HasSubstr(
                               "ranks that do not write wait in collectives 90 % of such a step"));
}

TEST(CheckpointStall, WhatTheScriptDoesAroundItBelongsToIt) {
  auto run = saving(1);
  for (auto& step : run.data().steps) {
    if (step.index % 10 != 5) continue;
    step.phases[probe::index(Phase::kCheckpoint)] = 700 * kMillisecond;  // then the old file goes
    step.phases[probe::index(Phase::kOther)] = 201 * kMillisecond;
    step.phases[probe::index(Phase::kCompute)] = 99 * kMillisecond;
  }
  EXPECT_NEAR(judge(run.build()).findings.at(0).gain_ceiling, 20 * 0.9 / (179 * 0.1 + 20 * 1.0),
              0.01);
}

TEST(CheckpointStall, SlowStepsThatWriteNothingAreSomethingElse) {
  auto run = saving(1);
  for (auto& step : run.data().steps) {
    std::swap(step.phases[probe::index(Phase::kCheckpoint)],
              step.phases[probe::index(Phase::kOther)]);
  }
  EXPECT_TRUE(quiet(judge(run.build()), "checkpoint_stall"));
}

TEST(CheckpointStall, RareCheckpointsAreFine) {
  auto run = RunBuilder::healthy(1);
  run.phases(0, {{Phase::kCheckpoint, 0.5}}, 50);
  EXPECT_TRUE(quiet(judge(run.build()), "checkpoint_stall"));
}

TEST(CheckpointStall, WithoutTheHookItCouldNotSee) {
  auto run = saving(1);
  run.unseen("hook");
  EXPECT_TRUE(unseen(judge(run.build()), "checkpoint_stall"));
}

}  // namespace
}  // namespace bedplate::doctor
