#include "doctor/run_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/run_builder.h"

namespace bedplate::doctor {
namespace {

using probe::Phase;

TEST(RunView, AnEmptyRunHasNoRanksAndLosesNothing) {
  const probe::RunData nothing;
  const RunView run(nothing);
  EXPECT_TRUE(run.ranks().empty());
  EXPECT_TRUE(run.grid().empty());
  EXPECT_FALSE(run.has_steps());
  EXPECT_EQ(run.share(run.phase_time(Phase::kInputWait)), 0);
  EXPECT_FALSE(run.seen("hook"));
  EXPECT_EQ(run.why_not_seen("hook"), "hook: not recorded in this run");
}

TEST(RunView, TheWindowLeavesOutTheWarmUpStep) {
  const auto data = RunBuilder::healthy(1).build();
  const RunView run(data);
  EXPECT_EQ(run.window().begin, 100 * kMillisecond);
  EXPECT_EQ(run.window().end, 20 * kSecond);
  EXPECT_EQ(run.ranks().front().steps.size(), 199);
  EXPECT_DOUBLE_EQ(run.mean_step_ns(), 1e8);
}

TEST(RunView, ARunOfThreeStepsKeepsThemAll) {
  auto builder = RunBuilder::healthy(1);
  builder.data().steps.resize(3);
  const auto data = builder.build();
  EXPECT_EQ(RunView(data).ranks().front().steps.size(), 3);
}

TEST(RunView, EvaluationStepsAreNotCounted) {
  auto builder = RunBuilder::healthy(1);
  for (auto& step : builder.data().steps) step.evaluation = step.index % 2 == 1;
  const auto data = builder.build();
  EXPECT_EQ(RunView(data).ranks().front().steps.size(), 99);
}

TEST(RunView, WorkersAreThoseBelowTheRankWhateverLiesBetween) {
  auto builder = RunBuilder::healthy(2);
  builder.process(500).ppid = 100;  // a fork server
  builder.process(1000).ppid = 500;
  const auto data = builder.build();
  const RunView run(data);
  EXPECT_THAT(run.ranks()[0].workers, testing::ElementsAre(1000, 1001));
  EXPECT_THAT(run.ranks()[1].workers, testing::ElementsAre(1100, 1101));
  EXPECT_EQ(run.rank_of(1101), &run.ranks()[1]);
}

TEST(RunView, AProcessThatIsItsOwnParentEndsTheSearch) {
  auto builder = RunBuilder::healthy(1);
  builder.process(1000).ppid = 1000;
  builder.process(1001).ppid = 7;
  builder.process(7).ppid = 8;
  builder.process(8).ppid = 7;
  const auto data = builder.build();
  EXPECT_TRUE(RunView(data).ranks()[0].workers.empty());
}

TEST(RunView, RanksThatMeetLoseWhatTheSlowestLosesInEachStep) {
  auto builder = RunBuilder::healthy(2);
  // Each rank waits for input in every second step, never both in the same.
  for (auto& step : builder.data().steps) {
    const bool waits = step.index % 2 == step.rank;
    step.phases = {};
    step.phases[probe::index(waits ? Phase::kInputWait : Phase::kCommunication)] =
        step.duration / 2;
    step.phases[probe::index(Phase::kCompute)] = step.duration / 2;
  }
  const auto data = builder.build();
  const RunView run(data);
  EXPECT_TRUE(run.coupled());
  EXPECT_NEAR(run.share(run.phase_time(Phase::kInputWait)), 0.5, 1e-9);
}

TEST(RunView, RanksThatNeverMeetAreAveraged) {
  auto builder = RunBuilder::healthy(2);
  builder.phases(0, {{Phase::kInputWait, 0.5}}).phases(1, {});
  const auto data = builder.build();
  const RunView run(data);
  EXPECT_FALSE(run.coupled());
  EXPECT_NEAR(run.share(run.phase_time(Phase::kInputWait)), 0.25, 1e-9);
}

// DDP is asked for its communication only in every eighth short step.
TEST(RunView, StepsWhoseCommunicationNobodyAskedForHaveTheUsualOne) {
  const auto communication_of = [](bool noted) {
    auto builder = RunBuilder::healthy(2);
    builder.all_phases({{Phase::kInputWait, 0.1}});
    builder.all_phases({{Phase::kInputWait, 0.1}, {Phase::kCommunication, 0.3}}, 8);
    if (noted) builder.ddp_asked_now_and_then();
    const auto data = builder.build();
    const RunView run(data);
    for (const StepView& step : run.ranks()[0].steps) {
      Nanos sum = 0;
      for (const Nanos time : step.phases) sum += time;
      EXPECT_EQ(sum, step.end - step.begin);
      EXPECT_EQ(step.usual_communication, noted && step.index % 8 != 0);
    }
    return run.share(run.phase_time(Phase::kCommunication));
  };
  EXPECT_NEAR(communication_of(true), 0.3, 1e-6);
  EXPECT_LT(communication_of(false), 0.05);
}

TEST(RunView, NoStepGetsMoreUsualCommunicationThanItComputes) {
  auto builder = RunBuilder::healthy(2);
  builder.all_phases({{Phase::kInputWait, 0.9}});
  builder.all_phases({{Phase::kCommunication, 0.3}}, 8);
  builder.ddp_asked_now_and_then();
  const auto data = builder.build();
  const RunView run(data);
  for (const StepView& step : run.ranks()[0].steps) {
    if (step.index % 8 == 0) continue;
    EXPECT_EQ(step.phases[probe::index(Phase::kCompute)], 0);
    EXPECT_NEAR(static_cast<double>(step.phases[probe::index(Phase::kCommunication)]),
                0.1 * static_cast<double>(step.end - step.begin), 2);
  }
}

TEST(RunView, MergedStepsCountAsOftenAsTheyStandFor) {
  auto builder = RunBuilder::healthy(1);
  auto& steps = builder.data().steps;
  steps.clear();
  for (int i = 0; i < 10; ++i)
    steps.push_back({100, 0, 8 * i, i * kSecond, kSecond, 8, 300 * kMillisecond, {}, false});
  const auto data = builder.build();
  const RunView run(data);
  EXPECT_EQ(run.steps_per_rank(), 80);
  EXPECT_DOUBLE_EQ(run.mean_step_ns(), 1.25e8);
  EXPECT_EQ(run.window().begin, 0);  // a merged row cannot lose its first step
}

TEST(RunView, TimelinesReachTheStepsInsideTheirWindows) {
  const auto data = RunBuilder::healthy(1).build();
  const RunView run(data);
  const Timeline half = {{5 * kSecond, 10 * kSecond, 0.5}};
  const LostTime lost = run.during(half);
  EXPECT_NEAR(run.share(lost), 2.5 / 19.9, 1e-6);
  const auto when = run.when(lost);
  ASSERT_EQ(when.size(), 1);
  EXPECT_EQ(when[0].begin, 5 * kSecond);
  EXPECT_EQ(when[0].end, 10 * kSecond);
}

TEST(RunView, TwoCausesNeverAddUpToMoreThanTheStep) {
  auto builder = RunBuilder::healthy(1);
  builder.phases(0, {{Phase::kInputWait, 0.7}});
  const auto data = builder.build();
  const RunView run(data);
  const LostTime input = run.phase_time(Phase::kInputWait);
  EXPECT_NEAR(run.share(run.either(input, input)), 1.0, 1e-9);
  EXPECT_NEAR(run.share(both(input, input)), 0.7, 1e-9);
  EXPECT_NEAR(run.share(less(input, input)), 0.0, 1e-9);
  EXPECT_NEAR(run.share(scaled(input, 0.5)), 0.35, 1e-9);
}

TEST(RunView, AJobWithoutStepsIsCutIntoWindowsOfItsMainProcesses) {
  auto builder = RunBuilder::healthy(1);
  builder.no_steps().counter("proc/100", "trace.input_wait_ns", 0.5e9);
  const auto data = builder.build();
  const RunView run(data);
  EXPECT_FALSE(run.has_steps());
  ASSERT_EQ(run.ranks().size(), 1);
  EXPECT_EQ(run.ranks()[0].steps.size(), 40);
  EXPECT_NEAR(run.share(run.phase_time(Phase::kInputWait)), 0.5, 0.01);
}

TEST(RunView, WithoutRanksTheProcessesThatUseTheProcessorsStandForTheJob) {
  auto builder = RunBuilder::empty();
  builder.process(100).comm = "sh";
  builder.process(101).comm = "busy";
  builder.cpu(100, 0.01).cpu(101, 1.0);
  const auto data = builder.build();
  const RunView run(data);
  ASSERT_EQ(run.ranks().size(), 1);
  EXPECT_EQ(run.ranks()[0].pid, 101);
  EXPECT_EQ(run.label(101), "pid 101 (busy)");
}

TEST(RunView, AThresholdCanBeOverridden) {
  const auto data = RunBuilder::healthy(1).build();
  EXPECT_DOUBLE_EQ(RunView(data).threshold("cpu_quota.throttled_share"), 0.25);
  EXPECT_DOUBLE_EQ(
      RunView(data, {{"cpu_quota.throttled_share", 0.5}}).threshold("cpu_quota.throttled_share"),
      0.5);
}

TEST(RunView, EitherOfTwoSignalsSatisfiesANeed) {
  auto builder = RunBuilder::healthy(1);
  builder.unseen("cgroup.psi", "not permitted: x");
  const auto data = builder.build();
  const RunView run(data);
  EXPECT_FALSE(run.seen("cgroup.psi"));
  EXPECT_TRUE(run.seen("cgroup.psi|host.psi"));
  EXPECT_EQ(run.why_not_seen("cgroup.psi"), "cgroup.psi: not permitted: x");
}

}  // namespace
}  // namespace bedplate::doctor
