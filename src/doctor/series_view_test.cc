#include "doctor/series_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bedplate::doctor {
namespace {

using probe::SeriesKind;

probe::RunData with(SeriesKind kind, std::vector<probe::Sample> samples) {
  probe::RunData run;
  run.series.push_back({"host", "x", kind, "/proc/x", std::move(samples)});
  return run;
}

TEST(SeriesView, WhatWasNotRecordedIsNotZero) {
  const auto run = with(SeriesKind::kCounter, {{kSecond, 5}, {2 * kSecond, 9}});
  const SeriesView series(run, 4 * kSecond);
  EXPECT_EQ(series.growth("host", "y", {0, kSecond}), std::nullopt);
  EXPECT_EQ(series.growth("host", "x", {0, kSecond}), std::nullopt);  // before its first sample
  EXPECT_EQ(series.growth("host", "x", {3 * kSecond, 3 * kSecond}), std::nullopt);
  EXPECT_EQ(series.growth("host", "x", {3 * kSecond, kSecond}), std::nullopt);
  EXPECT_EQ(series.growth("host", "x", {3 * kSecond, 4 * kSecond}),
            0);  // still recorded, and stood still
}

TEST(SeriesView, OneSampleStandsStillUntilTheRecordingEnds) {
  const auto run = with(SeriesKind::kCounter, {{kSecond, 5}});
  const SeriesView series(run, 4 * kSecond);
  EXPECT_EQ(series.growth("host", "x", {0, 4 * kSecond}), 0);
  const SeriesView cut(run, kSecond);
  EXPECT_EQ(cut.growth("host", "x", {0, kSecond}), std::nullopt);
}

TEST(SeriesView, GrowthLiesBetweenTheLastSampleBeforeAChangeAndTheChange) {
  const auto run =
      with(SeriesKind::kCounter, {{0, 0}, {kSecond, 10}, {9 * kSecond, 10}, {10 * kSecond, 30}});
  const SeriesView series(run, 10 * kSecond);
  EXPECT_EQ(series.growth("host", "x", {kSecond, 9 * kSecond}), 0);
  EXPECT_EQ(series.growth("host", "x", {0, 10 * kSecond}), 30);
  EXPECT_DOUBLE_EQ(*series.rate("host", "x", {9 * kSecond, 10 * kSecond}), 20);
}

TEST(SeriesView, ACounterThatGoesBackwardsNeverGivesANegativeGrowth) {
  const auto run =
      with(SeriesKind::kCounter, {{0, 100}, {kSecond, 150}, {2 * kSecond, 10}, {3 * kSecond, 40}});
  const SeriesView series(run, 3 * kSecond);
  EXPECT_EQ(series.growth("host", "x", {0, 3 * kSecond}), 80);
  EXPECT_EQ(series.growth("host", "x", {kSecond, 2 * kSecond}), 0);
}

TEST(SeriesView, BesideTheSteadyWindowTheNearestGrowthInsideStandsForTheRest) {
  // Read every 2 s; the steady part runs from 3 s to 8 s and loses half of the time.
  const auto run = with(SeriesKind::kCounter, {{0, 0},
                                               {2 * kSecond, 0},
                                               {4 * kSecond, kSecond / 2},
                                               {6 * kSecond, 3 * kSecond / 2},
                                               {8 * kSecond, 3 * kSecond / 2}});
  const SeriesView series(run, 8 * kSecond);
  const Window steady{3 * kSecond, 7 * kSecond};
  EXPECT_DOUBLE_EQ(*series.share("host", "x", {3 * kSecond, 4 * kSecond}), 0.25);
  EXPECT_DOUBLE_EQ(*series.share_inside("host", "x", {3 * kSecond, 4 * kSecond}, steady), 0.5);
  EXPECT_DOUBLE_EQ(*series.share_inside("host", "x", {6 * kSecond, 7 * kSecond}, steady), 0.5);
  EXPECT_DOUBLE_EQ(*series.share_inside("host", "x", {4 * kSecond, 5 * kSecond}, steady), 0.5);
}

TEST(SeriesView, ExtremeValuesDoNotOverflow) {
  const auto run =
      with(SeriesKind::kCounter, {{0, std::numeric_limits<std::int64_t>::min()},
                                  {kSecond, std::numeric_limits<std::int64_t>::max()}});
  const SeriesView series(run, kSecond);
  EXPECT_NEAR(*series.growth("host", "x", {0, kSecond}), 1.8446744e19, 1e13);
}

TEST(SeriesView, GaugesHoldTheirLevelUntilTheNextSample) {
  const auto run = with(SeriesKind::kGauge, {{0, 10}, {kSecond, 40}});
  const SeriesView series(run, 4 * kSecond);
  EXPECT_DOUBLE_EQ(*series.mean("host", "x", {0, 2 * kSecond}), 25);
  EXPECT_EQ(series.highest("host", "x", {0, kSecond}), 10);
  EXPECT_EQ(series.last("host", "x", {0, 4 * kSecond}), 40);
  EXPECT_EQ(series.mean("host", "x", {kSecond, kSecond}), std::nullopt);
  EXPECT_EQ(series.growth("host", "x", {0, kSecond}), std::nullopt);  // a level is not a count
}

TEST(SeriesView, SubjectsAreListedOnceByPrefix) {
  probe::RunData run;
  for (const char* subject : {"disk/vda", "disk/vdb", "net/eth0"}) {
    for (const char* metric : {"a", "b"})
      run.series.push_back({subject, metric, SeriesKind::kGauge, "", {{0, 1}}});
  }
  const SeriesView series(run, kSecond);
  EXPECT_THAT(series.subjects("disk/"), testing::ElementsAre("disk/vda", "disk/vdb"));
  EXPECT_EQ(series.source("disk/vda", "a"), "disk/vda a");
}

}  // namespace
}  // namespace bedplate::doctor
