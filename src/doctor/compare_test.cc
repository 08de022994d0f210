#include "doctor/compare.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "doctor/compare_render.h"
#include "doctor/compare_samples.h"
#include "doctor/fail_if.h"
#include "doctor/layout.h"
#include "doctor/report_samples.h"
#include "os/test_folder.h"
#include "probe/run_file.h"

namespace bedplate::doctor {
namespace {

using ::testing::HasSubstr;

MeasuredRun measured(const RunShape& shape, std::string name = "run") {
  const probe::RunData run = noisy_run(shape);
  return measure(std::move(name), run, judge(run));
}

std::vector<MeasuredRun> repeats(RunShape shape, int count, double between, std::uint64_t seed) {
  Noise noise(seed);
  std::vector<MeasuredRun> runs;
  const double level = shape.step_ms;
  for (int i = 0; i < count; ++i) {
    shape.seed = seed * 1000 + static_cast<std::uint64_t>(i);
    shape.step_ms = level * (1 + between * noise.normal());
    runs.push_back(measured(shape, fmt::format("run-{}", i)));
  }
  return runs;
}

std::vector<std::string> changed(const Comparison& result) {
  std::vector<std::string> names;
  for (const auto& change : result.metrics) {
    if (change.state == ChangeState::kChanged) names.emplace_back(change.metric->name);
  }
  return names;
}

TEST(Compare, TheSameJobTwiceIsNoChange) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const auto result = compare({measured({.seed = seed})}, {measured({.seed = seed + 1000})});
    EXPECT_EQ(changed(result), std::vector<std::string>{}) << "seed " << seed;
    EXPECT_EQ(result.verdict, "no change") << result.verdict_text;
    EXPECT_THAT(result.verdict_text, HasSubstr("no change beyond noise (±"));
  }
}

TEST(Compare, ARealChangeIsFoundWithItsSize) {
  const auto result = compare({measured({.step_ms = 50})}, {measured({.step_ms = 56, .seed = 2})});
  EXPECT_EQ(result.verdict, "slower");
  const MetricChange* step = result.find("step_ms");
  ASSERT_NE(step, nullptr);
  EXPECT_NEAR(*step->relative(), 0.12, 0.02);
  EXPECT_LT(*step->relative_noise(), 0.05);
  EXPECT_EQ(result.find("steps_per_s")->state, ChangeState::kChanged);
  EXPECT_EQ(result.find("io_pressure")->state, ChangeState::kSame);
  EXPECT_EQ(result.find("gc_ms")->state, ChangeState::kSame);
}

TEST(Compare, NamesThePhaseThatChanged) {
  const auto result = compare({measured({.step_ms = 50, .wait_share = 0.4})},
                              {measured({.step_ms = 32, .wait_share = 0.05, .seed = 2})});
  EXPECT_EQ(result.verdict, "faster");
  EXPECT_EQ(result.find("input_wait_ms")->state, ChangeState::kChanged);
  EXPECT_EQ(result.find("compute_ms")->state, ChangeState::kSame);
}

TEST(Compare, LongSingleStepsShowInTheRateNotInTheMedian) {
  const auto result =
      compare({measured({})}, {measured({.seed = 2, .stall_every = 10, .stall_ms = 200})});
  EXPECT_EQ(result.find("step_ms")->state, ChangeState::kSame);
  EXPECT_EQ(result.verdict, "slower");
  EXPECT_THAT(result.verdict_text, HasSubstr("more or longer single long steps"));
}

TEST(Compare, AFasterMedianWithFarFewerStepsASecondIsNotFaster) {
  const auto result = compare(
      {measured({})}, {measured({.step_ms = 25, .seed = 2, .stall_every = 40, .stall_ms = 9000})});
  EXPECT_EQ(result.find("step_ms")->state, ChangeState::kChanged);
  EXPECT_EQ(result.verdict, "unclear");
  EXPECT_THAT(result.verdict_text, HasSubstr("% steps a second"));
}

TEST(Compare, ADriftInsideARunIsNoChange) {
  probe::RunData drifting = noisy_run({});
  for (std::size_t i = 0; i < drifting.steps.size(); ++i)
    drifting.steps[i].duration += static_cast<Nanos>(i) * 20'000;  // to +24 %
  const auto result = compare({measured({})}, {measure("drifting", drifting, judge(drifting))});
  EXPECT_NE(result.find("step_ms")->state, ChangeState::kChanged);
}

TEST(Compare, TooFewStepsAreUnclearNotAChange) {
  const auto result =
      compare({measured({.steps = 12})}, {measured({.step_ms = 60, .steps = 12, .seed = 2})});
  EXPECT_EQ(result.verdict, "unclear") << result.verdict_text;
  EXPECT_EQ(result.find("step_ms")->state, ChangeState::kUnclear);
  EXPECT_THAT(result.verdict_text, HasSubstr("; 36 a run would be enough"));
}

TEST(Compare, ShortRunsThatDriftTellOnlyWhatNoDriftExplains) {
  const auto drifting = [](double step_ms, std::uint64_t seed) {
    probe::RunData run = noisy_run({.step_ms = step_ms, .steps = 48, .seed = seed});
    for (std::size_t i = 0; i < run.steps.size(); ++i) {
      const double slow = 1 + 0.25 * std::sin(static_cast<double>(i) / 8);
      run.steps[i].duration = static_cast<Nanos>(slow * static_cast<double>(run.steps[i].duration));
    }
    return measure("drifting", run, judge(run));
  };
  const auto mended = compare({drifting(380, 1)}, {drifting(130, 2)});
  EXPECT_EQ(mended.verdict, "faster") << mended.verdict_text;
  EXPECT_EQ(mended.find("step_ms")->state, ChangeState::kChanged);
  for (const double other : {90.0, 110.0, 125.0}) {
    const auto result = compare({drifting(100, 1)}, {drifting(other, 2)});
    EXPECT_NE(result.find("step_ms")->state, ChangeState::kChanged) << other;
  }
}

TEST(Compare, TheSpreadBetweenRunsCounts) {
  // Runs of one job that differ by 5 %: two groups of them are the same, though each pair of runs
  // may look changed.
  int called = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto result = compare(repeats({}, 5, 0.05, seed), repeats({}, 5, 0.05, seed + 100));
    called += result.find("step_ms")->state == ChangeState::kChanged ? 1 : 0;
  }
  EXPECT_LE(called, 2);  // a level of 5 %
  const auto result = compare(repeats({}, 5, 0.02, 3), repeats({.step_ms = 56}, 5, 0.02, 4));
  EXPECT_EQ(result.verdict, "slower");
  EXPECT_NEAR(*result.find("step_ms")->relative(), 0.12, 0.04);
}

TEST(Compare, TwoRunsASideMustLieApartByMoreThanTheirSpread) {
  EXPECT_EQ(compare(repeats({}, 2, 0.05, 11), repeats({}, 2, 0.05, 12)).find("step_ms")->state,
            ChangeState::kSame);
  EXPECT_EQ(compare(repeats({}, 2, 0.01, 11), repeats({.step_ms = 70}, 2, 0.01, 12))
                .find("step_ms")
                ->state,
            ChangeState::kChanged);
}

TEST(Compare, FindingsComeAndGoOnlyWhereTheyCouldBeSeen) {
  MeasuredRun a{"a", {}, sample_report("full")};
  MeasuredRun b{"b", {}, sample_report("healthy")};
  b.report.not_seen.push_back({"checkpoint_stall", {"hook: no process has one"}});
  b.report.findings.resize(1);
  b.report.findings[0].rule = "crash";
  const auto result = compare({a}, {b});
  std::map<std::string, FindingState> states;
  for (const auto& one : result.findings) states[one.rule] = one.state;
  EXPECT_EQ(states,
            (std::map<std::string, FindingState>{{"cpu_quota", FindingState::kGone},
                                                 {"input_workers", FindingState::kGone},
                                                 {"checkpoint_stall", FindingState::kNotVisible},
                                                 {"crash", FindingState::kAppeared}}));
  EXPECT_EQ(result.findings.front().rule, "cpu_quota");
  const auto some = compare({a, b}, {b});
  for (const auto& one : some.findings) {
    if (one.rule != "cpu_quota") continue;
    EXPECT_EQ(one.state, FindingState::kSometimes);
  }
}

TEST(Compare, WhatOneSideLacksIsMissingNotZero) {
  probe::RunData bare = noisy_run({});
  bare.series.clear();
  const auto result = compare({measured({})}, {measure("bare", bare, judge(bare))});
  const MetricChange* io = result.find("io_pressure");
  ASSERT_NE(io, nullptr);
  EXPECT_EQ(io->state, ChangeState::kMissing);
  EXPECT_EQ(io->b, std::nullopt);
  EXPECT_EQ(result.find("network_bytes_per_s"), nullptr);
}

TEST(Compare, AnEmptyRunIsUnclear) {
  const auto result = compare({measure("empty", {}, {})}, {measured({})});
  EXPECT_EQ(result.verdict, "unclear");
  EXPECT_THAT(result.verdict_text, HasSubstr("no step time on both sides"));
}

TEST(CompareText, FitsAndSaysTheAnswerFirst) {
  const auto result = compare({measured({.wait_share = 0.4}, std::string(300, 'a'))},
                              {measured({.step_ms = 32, .wait_share = 0.05, .seed = 2}, "after")});
  const std::vector<GateResult> gates = {evaluate(parse_gate("step_ms > 5%"), result)};
  for (const std::size_t width : {40U, 60U, 100U}) {
    const std::string text = render_text(result, gates, {.columns = width});
    for (const auto line : split(text, '\n')) EXPECT_LE(columns(line), width) << line;
  }
  const std::string text =
      render_text(compare({measured({.wait_share = 0.4}, "before")},
                          {measured({.step_ms = 32, .wait_share = 0.05, .seed = 2}, "after")}),
                  gates);
  EXPECT_LT(text.find("FASTER"), text.find("FIGURES"));
  EXPECT_THAT(text, HasSubstr("input wait a step"));
  EXPECT_THAT(text, HasSubstr("does not hold"));
}

TEST(CompareJson, HasEveryMetricOfBothSides) {
  const auto result = compare({measured({})}, {measured({.step_ms = 60, .seed = 2})});
  const auto json =
      nlohmann::json::parse(render_json(result, {evaluate(parse_gate("step_ms > 5%"), result)}));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(json["verdict"]["status"], "slower");
  EXPECT_EQ(json["metrics"].size(), result.metrics.size());
  EXPECT_EQ(json["metrics"][0]["metric"], "step_ms");
  EXPECT_EQ(json["metrics"][0]["state"], "changed");
  EXPECT_EQ(json["metrics"][0]["word"], "worse");
  EXPECT_EQ(json["fail_if"][0]["outcome"], "holds");
}

TEST(LoadRuns, TakesARunAListOrAFolderOfRuns) {
  const os::TestFolder folder;
  for (const auto name : {"one", "two"}) {
    std::filesystem::create_directories(folder.path() / "all" / name);
    probe::RunWriter writer(folder.path() / "all" / name / "run.db");
    writer.meta(probe::run_meta::kId, name);
    writer.close();
  }
  const std::string all = folder.path() / "all";
  EXPECT_EQ(load_runs(all + "/one").size(), 1U);
  EXPECT_EQ(load_runs(all + "/one/run.db").size(), 1U);
  EXPECT_EQ(load_runs(all).size(), 2U);
  EXPECT_EQ(load_runs(all + "/one," + all + "/two").size(), 2U);
  for (const auto& bad : {all + "/none", folder.path().string(), all + "/one,", std::string()}) {
    try {
      load_runs(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kNotFound);
    }
  }
}

}  // namespace
}  // namespace bedplate::doctor
