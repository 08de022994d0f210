#include "doctor/time_strip.h"

#include <gmock/gmock.h>

#include "doctor/report_samples.h"

namespace bedplate::doctor {
namespace {

const Lane* lane_named(const TimeStrip& strip, std::string_view name) {
  for (const auto& lane : strip.lanes) {
    if (lane.name == name) return &lane;
  }
  return nullptr;
}

TEST(TimeStrip, ShowsWhatTheMiddleThirdDid) {
  const TimeStrip strip = make_time_strip(sample_run(1200, 60 * kSecond), 60);
  ASSERT_EQ(strip.columns(), 60U);
  const Lane* throttles = lane_named(strip, "CPU quota throttles");
  ASSERT_NE(throttles, nullptr);
  EXPECT_EQ(throttles->columns[10]->mean, 0);
  EXPECT_NEAR(throttles->columns[30]->mean, 0.9, 0.01);
  EXPECT_EQ(throttles->columns[50]->mean, 0);
  EXPECT_EQ(throttles->top, 1);
  const Lane* machine = lane_named(strip, "CPU, the machine");
  ASSERT_NE(machine, nullptr);
  EXPECT_EQ(machine->top, 2);
  EXPECT_NEAR(machine->columns[10]->mean, 1.8, 0.02);
  EXPECT_TRUE(lane_named(strip, "memory pressure")->quiet());
  EXPECT_EQ(lane_named(strip, "GPU 0"), nullptr);
}

TEST(TimeStrip, PhasesSumToOneAndEveryStepIsCountedOnce) {
  const TimeStrip strip = make_time_strip(sample_run(1200, 60 * kSecond), 37);
  double steps = 0;
  for (const auto& column : strip.steps) {
    ASSERT_TRUE(column);
    double sum = 0;
    for (const double phase : column->phases) sum += phase;
    EXPECT_NEAR(sum, 1, 1e-9);
    EXPECT_LE(column->ms.low, column->ms.mean);
    EXPECT_LE(column->ms.mean, column->ms.high);
    steps += column->steps;
  }
  EXPECT_EQ(steps, 2400);
  EXPECT_NEAR(strip.steps[18]->phases[probe::index(probe::Phase::kInputWait)], 0.5, 1e-6);
}

TEST(TimeStrip, ASpikeOfOneStepSurvivesAnyWidth) {
  probe::RunData run = sample_run(20'000, 1000 * kSecond);
  run.steps[7'777].duration = 400 * kMillisecond;
  run.steps[7'777].longest = run.steps[7'777].duration;
  EXPECT_EQ(make_time_strip(run, 50).highest_ms, 400);
}

TEST(TimeStrip, WhatWasNotRecordedIsAbsent) {
  probe::RunData run;
  EXPECT_EQ(make_time_strip(run, 10).columns(), 0U);
  run.meta["duration_ns"] = "10000000000";
  run.steps.push_back({.pid = 1,
                       .rank = 0,
                       .start = 2 * kSecond,
                       .duration = kSecond,
                       .longest = kSecond,
                       .phases = {kSecond}});
  const TimeStrip strip = make_time_strip(run, 10);
  EXPECT_FALSE(strip.steps[0]);
  ASSERT_TRUE(strip.steps[2]);
  EXPECT_EQ(strip.steps[2]->ms.mean, 1000);
  EXPECT_FALSE(strip.steps[3]);
  EXPECT_TRUE(strip.lanes.empty());
}

TEST(TimeStrip, AStepLongerThanAColumnCoversAllOfItsColumns) {
  probe::RunData run;
  run.meta["duration_ns"] = "10000000000";
  run.steps.push_back({.pid = 1,
                       .rank = 0,
                       .start = 0,
                       .duration = 10 * kSecond,
                       .longest = 10 * kSecond,
                       .phases = {10 * kSecond}});
  double steps = 0;
  for (const auto& column : make_time_strip(run, 10).steps) {
    ASSERT_TRUE(column);
    EXPECT_EQ(column->ms.mean, 10'000);
    steps += column->steps;
  }
  EXPECT_EQ(steps, 1);
}

}  // namespace
}  // namespace bedplate::doctor
