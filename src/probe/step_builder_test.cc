#include "probe/step_builder.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "probe/trace_format.h"

namespace bedplate::probe {
namespace {

using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr std::uint32_t kLoop = 7;  // the stepping thread

Event event(EventKind kind, Nanos start_ms, Nanos length_ms, std::uint64_t arg = 0,
            std::uint32_t tid = kLoop) {
  return {start_ms * kMillisecond, length_ms * kMillisecond, static_cast<std::uint16_t>(kind), tid,
          arg};
}

// One ordinary step of 100 ms that begins at `t`: 2 own work, 38 input, 20 forward, 30 backward, 10
// optimizer.
void ordinary_step(std::vector<Event>& events, Nanos t, std::uint64_t optimizer = 0) {
  events.push_back(event(EventKind::kInputWait, t + 2, 38));
  events.push_back(event(EventKind::kBackward, t + 60, 30));
  events.push_back(event(EventKind::kOptimizer, t + 90, 10, optimizer));
  events.push_back(event(EventKind::kStep, t + 100, 0, optimizer));
}

Nanos phase_ms(const Step& step, Phase phase) { return step.phases[index(phase)] / kMillisecond; }

std::vector<Step> build(const std::vector<Event>& events) {
  StepBuilder builder(1);
  builder.add(events);
  return builder.take();
}

TEST(StepBuilder, DividesAnOrdinaryStep) {
  std::vector<Event> events{event(EventKind::kStep, 0, 0)};
  ordinary_step(events, 0);
  const auto steps = build(events);
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_EQ(steps[0].duration, 100 * kMillisecond);
  EXPECT_EQ(phase_ms(steps[0], Phase::kOther), 2);
  EXPECT_EQ(phase_ms(steps[0], Phase::kInputWait), 38);
  EXPECT_EQ(phase_ms(steps[0], Phase::kCompute), 50);
  EXPECT_EQ(phase_ms(steps[0], Phase::kOptimizer), 10);
}

TEST(StepBuilder, WhatLiesBeforeTheFirstBoundaryIsNoStep) {
  std::vector<Event> events;
  ordinary_step(events, 0);
  EXPECT_THAT(build(events), IsEmpty());
  ordinary_step(events, 100);
  EXPECT_THAT(build(events), SizeIs(1));
}

TEST(StepBuilder, ANestedPauseIsCountedOnce) {
  std::vector<Event> events{event(EventKind::kStep, 0, 0)};
  events.push_back(event(EventKind::kGc, 70, 5));  // inside backward
  events.push_back(
      event(EventKind::kGc, 10, 4, 0, kLoop + 1));  // another thread's stops this one too
  events.push_back(
      event(EventKind::kCheckpoint, 40, 10, 0, kLoop + 1));  // a side thread's save does not
  events.push_back(event(EventKind::kDdpComm, 80, 10, 20 * kMillisecond));  // the end of backward
  ordinary_step(events, 0);
  const auto steps = build(events);
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_EQ(phase_ms(steps[0], Phase::kGc), 9);
  EXPECT_EQ(phase_ms(steps[0], Phase::kInputWait), 34);
  EXPECT_EQ(phase_ms(steps[0], Phase::kCommunication), 10);
  EXPECT_EQ(phase_ms(steps[0], Phase::kCheckpoint), 0);
  EXPECT_EQ(phase_ms(steps[0], Phase::kCompute), 35);
}

TEST(StepBuilder, ACheckpointBetweenOptimizerAndBatchBelongsToTheNextStep) {
  std::vector<Event> events{event(EventKind::kStep, 0, 0)};
  events.push_back(event(EventKind::kCheckpoint, 0, 2));
  ordinary_step(events, 0);
  const auto steps = build(events);
  EXPECT_EQ(phase_ms(steps.at(0), Phase::kCheckpoint), 2);
  EXPECT_EQ(phase_ms(steps.at(0), Phase::kOther), 0);
}

TEST(StepBuilder, LoadingInsideTheDataSetIsInput) {
  std::vector<Event> events{event(EventKind::kStep, 0, 0), event(EventKind::kLoad, 5, 10)};
  ordinary_step(events, 0);
  EXPECT_EQ(phase_ms(build(events).at(0), Phase::kInputWait), 38);
}

TEST(StepBuilder, OneOfTwoOptimizersCounts) {
  std::vector<Event> events;
  for (int i = 0; i < 4; ++i) ordinary_step(events, 100 * i, static_cast<std::uint64_t>(i % 2));
  const auto steps = build(events);
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_EQ(steps[0].duration, 200 * kMillisecond);
}

TEST(StepBuilder, TheScriptsOwnBoundaryWins) {
  std::vector<Event> events;
  for (int i = 0; i < 6; ++i) {
    ordinary_step(events, 100 * i);
    if (i % 2 == 1) events.push_back(event(EventKind::kUserStep, 100 * i + 100, 0));
  }
  const auto steps = build(events);
  ASSERT_THAT(steps,
              SizeIs(3));  // one of the optimizer before the first call, then two of the script's
  EXPECT_EQ(steps[1].duration, 200 * kMillisecond);
  EXPECT_EQ(steps[2].duration, 200 * kMillisecond);
}

TEST(StepBuilder, ALoopWithoutAnOptimizerIsCutAtItsBatches) {
  std::vector<Event> events;
  for (int i = 0; i < 40; ++i) events.push_back(event(EventKind::kInputWait, 10 * i, 4, 1));
  const auto steps = build(events);
  ASSERT_THAT(steps, SizeIs(40 - 16 - 1));
  EXPECT_EQ(phase_ms(steps[0], Phase::kInputWait), 4);
  EXPECT_EQ(phase_ms(steps[0], Phase::kCompute), 6);
  EXPECT_FALSE(steps[0].evaluation);
}

TEST(StepBuilder, GradientAccumulationIsOneStep) {
  std::vector<Event> events{event(EventKind::kStep, 0, 0)};
  for (int i = 0; i < 100; ++i) {
    events.push_back(event(EventKind::kInputWait, 10 * i, 4));
    events.push_back(event(EventKind::kBackward, 10 * i + 6, 3));
  }
  events.push_back(event(EventKind::kStep, 1000, 0));
  const auto steps = build(events);
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_EQ(phase_ms(steps[0], Phase::kInputWait), 400);
}

TEST(StepBuilder, AStepThatHoldsAnEvaluationSaysSo) {
  std::vector<Event> events{event(EventKind::kStep, 0, 0)};
  events.push_back(event(EventKind::kInputWait, 1, 0, 1));
  ordinary_step(events, 0);
  ordinary_step(events, 100);
  const auto steps = build(events);
  ASSERT_THAT(steps, SizeIs(2));
  EXPECT_TRUE(steps[0].evaluation);
  EXPECT_FALSE(steps[1].evaluation);
}

TEST(StepBuilder, AValidationPhaseMakesAnEvaluation) {
  std::vector<Event> events{event(EventKind::kStep, 0, 0), event(EventKind::kValidation, 0, 2)};
  ordinary_step(events, 0);
  EXPECT_TRUE(build(events).at(0).evaluation);
}

TEST(StepBuilder, TheSecondNetworksForwardIsComputing) {
  std::vector<Event> events{event(EventKind::kStep, 0, 0)};
  events.push_back(event(EventKind::kInputWait, 5, 5));
  events.push_back(event(EventKind::kBackward, 20, 10));
  events.push_back(event(EventKind::kOptimizer, 30, 10, 1));
  events.push_back(event(EventKind::kStep, 40, 0, 1));
  events.push_back(event(EventKind::kBackward, 60, 20));  // 40 … 60 is its forward
  events.push_back(event(EventKind::kOptimizer, 80, 10, 0));
  events.push_back(event(EventKind::kStep, 90, 0, 0));
  const auto steps = build(events);
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_EQ(phase_ms(steps[0], Phase::kOther), 5);
  EXPECT_EQ(phase_ms(steps[0], Phase::kOptimizer), 20);
  EXPECT_EQ(phase_ms(steps[0], Phase::kCompute), 60);
}

TEST(StepBuilder, StartingWorkersAndAnEpochsEndAreNoBatches) {
  std::vector<Event> events;
  for (int i = 0; i < 40; ++i)
    events.push_back(event(EventKind::kInputWait, 10 * i, 4,
                           i % 10 == 9   ? 2
                           : i % 10 == 0 ? 4
                                         : 0));
  EXPECT_THAT(build(events), SizeIs(32 - 16 - 1));
}

TEST(StepBuilder, OnAGpuTheDeviceSaysHowLongTheOptimizerTook) {
  const auto device = [](EventKind kind, Nanos ms) {
    return event(EventKind::kGpuPhase, 0, 0,
                 static_cast<std::uint64_t>(kind) | static_cast<std::uint64_t>(ms * kMillisecond)
                                                        << 8);
  };
  std::vector<Event> events{event(EventKind::kStep, 0, 0)};
  ordinary_step(events, 0);
  const auto first = build(events);
  EXPECT_EQ(phase_ms(first.at(0), Phase::kOptimizer), 10);
  events.insert(events.begin(),
                {device(EventKind::kOptimizer, 20), device(EventKind::kOptimizer, 5),
                 device(EventKind::kBackward, 30), device(EventKind::kStep, 90)});
  const auto second = build(events);
  EXPECT_EQ(phase_ms(second.at(0), Phase::kOptimizer), 25);
  EXPECT_EQ(phase_ms(second.at(0), Phase::kCompute), 35);
  EXPECT_EQ(phase_ms(second.at(0), Phase::kInputWait), 38);
}

TEST(StepBuilder, TotalsAreSums) {
  StepBuilder builder(1);
  builder.add(
      std::vector<Event>{event(EventKind::kFetch, 0, 10, (std::uint64_t{3000} << 32) | 5000),
                         event(EventKind::kFiles, 10, 0, 16), event(EventKind::kFiles, 20, 0, 4)});
  EXPECT_THAT(builder.totals(),
              UnorderedElementsAre(
                  Pair("trace.fetches", 1), Pair("trace.fetch_wall_ns", 10 * kMillisecond),
                  Pair("trace.fetch_user_ns", 5 * kMillisecond),
                  Pair("trace.fetch_system_ns", 3 * kMillisecond), Pair("trace.files_opened", 20)));
}

TEST(StepBuilder, CountersOfTheDataPlaneGrowByWhatTheyAreTold) {
  const auto grown = [](std::uint64_t which, std::uint64_t by) {
    return event(EventKind::kData, 0, 0, which << 56 | by);
  };
  StepBuilder builder(1);
  builder.add(std::vector<Event>{grown(0, 1000), grown(0, 24), grown(7, 3), grown(15, 0),
                                 grown(std::size(kDataCounters), 9), grown(255, 9)});
  EXPECT_THAT(builder.totals(),
              UnorderedElementsAre(Pair("trace.data_bytes", 1024), Pair("trace.cache_hits", 3)));
  for (int i = 0; i < 300; ++i) builder.add(std::vector<Event>{grown(1, ~std::uint64_t{0} >> 8)});
  for (const auto& [metric, total] : builder.totals()) EXPECT_GT(total, 0) << metric;
}

TEST(StepBuilder, PhasesSumToTheDurationWhateverTheEvents) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto number = [&](std::uint64_t most) { return static_cast<Nanos>(random() % (most + 1)); };
  for (int round = 0; round < 300; ++round) {
    StepBuilder builder(1);
    Nanos last_end = std::numeric_limits<Nanos>::min();
    for (int drain = 0; drain < 5; ++drain) {
      std::vector<Event> events;
      for (int i = 0; i < 60; ++i) {
        Event e{number(2000), number(300), static_cast<std::uint16_t>(number(22)),
                static_cast<std::uint32_t>(number(1)), random()};
        if (number(20) == 0) e.start = static_cast<Nanos>(random());
        if (number(20) == 0) e.duration = static_cast<Nanos>(random());
        if (e.kind == static_cast<std::uint16_t>(EventKind::kStep))
          e.arg = static_cast<std::uint64_t>(number(1));
        events.push_back(e);
      }
      builder.add(events);
      for (const Step& step : builder.take()) {
        ASSERT_GT(step.duration, 0);
        ASSERT_EQ(std::accumulate(step.phases.begin(), step.phases.end(), Nanos{0}), step.duration);
        for (const Nanos time : step.phases) ASSERT_GE(time, 0);
        ASSERT_GE(step.start, last_end);
        last_end = step.start + step.duration;
      }
      for (const auto& [metric, total] : builder.totals()) ASSERT_GT(total, 0) << metric;
    }
  }
}

TEST(StepBuilder, MemoryIsBoundedWhenNoBoundaryEverComes) {
  StepBuilder builder(1);
  const std::vector<Event> events(50'000, event(EventKind::kBackward, 1, 1));
  builder.add(events);
  builder.add(events);
  EXPECT_THAT(builder.take(), IsEmpty());
}

}  // namespace
}  // namespace bedplate::probe
