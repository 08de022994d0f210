#include "doctor/rules/rule_test.h"

namespace bedplate::doctor {
namespace {

RunBuilder starved(int workers) {
  auto run = RunBuilder::healthy(1, workers);
  run.all_phases({{Phase::kInputWait, 0.4}});
  return run;
}

TEST(InputWorkers, AbsentWorkersAreToBeStartedOnFreeProcessors) {
  auto run = starved(0);
  run.fetching(100, 10, 40, 0.9, 0.05)
      .counter("cgroup/job", "cpu.usage_ns", 1e9)
      .counter("host", "cpu.idle_ns", 3e9);
  const Report report = judge(run.build());
  ASSERT_EQ(found(report), std::vector<std::string>{"input_workers"});
  const Finding& f = report.findings[0];
  EXPECT_NEAR(f.gain_ceiling, 0.4, 1e-9);
  EXPECT_EQ(f.status, Status::kEstablished);
  EXPECT_THAT(f.title, testing::HasSubstr("without loader workers"));
  EXPECT_THAT(f.fix, testing::HasSubstr("num_workers=3"));
  EXPECT_EQ(f.undo, "num_workers=0");
  EXPECT_THAT(evidence(f), testing::HasSubstr("a batch takes 40 ms to make: 90 % in user code"));
}

TEST(InputWorkers, AbsentWorkersOnAFullMachineWouldNotHelpMuch) {
  auto run = starved(0);
  run.fetching(100, 10, 40, 0.9, 0.05)
      .counter("cgroup/job", "cpu.usage_ns", 4e9)
      .counter("host", "cpu.idle_ns", 0);
  const Finding f = judge(run.build()).findings.at(0);
  EXPECT_THAT(f.fix, testing::HasSubstr("no processor is free for workers"));
  EXPECT_EQ(f.undo, "make the batches as before");
}

TEST(InputWorkers, BusyWorkersBesideIdleProcessorsAreTooFew) {
  auto run = starved(1);
  run.cpu(1000, 0.98).fetching(1000, 10, 98, 0.95, 0.04);
  const Finding f = judge(run.build()).findings.at(0);
  EXPECT_THAT(f.title, testing::HasSubstr("1 loader worker cannot make batches"));
  EXPECT_THAT(f.fix, testing::HasSubstr("raise num_workers (2.0 processors are free)"));
}

TEST(InputWorkers, BedplatesOwnLoaderIsToldByItsOwnKnobs) {
  auto run = starved(1);
  run.data().notes.erase(
      std::remove_if(run.data().notes.begin(), run.data().notes.end(),
                     [](const probe::Note& note) { return note.key == "loader"; }),
      run.data().notes.end());
  run.data().notes.push_back(
      {100, 0, "loader",
       R"({"id":1,"num_workers":1,"batch_size":8,"dataset":"bedplate.data.dataset.Dataset"})"});
  run.counter("proc/100", "trace.data_make_ns", 2.1e9 / 20)
      .counter("proc/100", "trace.data_read_ns", 2e9 / 20)
      .counter("proc/100", "trace.data_decode_ns", 0.1e9 / 20);
  run.fetching(100, 10, 98, 0.05, 0.01);
  const Finding waits = judge(run.build()).findings.at(0);
  EXPECT_THAT(waits.fix,
              testing::HasSubstr("for the store or inside decode=: raise Loader(threads=)"));
  EXPECT_THAT(evidence(waits), testing::HasSubstr("bedplate.data.Loader, threads=1"));
  EXPECT_THAT(evidence(waits),
              testing::HasSubstr("made batches for 2.09 s, of that 1.99 s reading and 99.5 ms on"));
  run.fetching(100, 10, 98, 0.95, 0.01);
  EXPECT_THAT(judge(run.build()).findings.at(0).fix, testing::HasSubstr("Loader(threads=)"));
}

TEST(InputWorkers, WorkersThatUseAllProcessorsDoNotNeedMoreOfThem) {
  auto run = starved(2);
  run.cpu(1000, 0.98)
      .cpu(1001, 0.98)
      .fetching(1000, 10, 98, 0.95, 0.04)
      .fetching(1001, 10, 98, 0.95, 0.04);
  run.gauge("host", "cpu.online", 2).counter("host", "cpu.idle_ns", 0);
  const Finding f = judge(run.build()).findings.at(0);
  EXPECT_THAT(f.title, testing::HasSubstr("more workers will not help"));
  EXPECT_THAT(f.fix, testing::HasSubstr(
                         "more workers will not help: their transform is bound by the processor"));
}

TEST(InputWorkers, AQuotaMakesWorkersPeggedOnAnIdleMachine) {
  auto run = starved(2);
  run.gauge("cgroup/cpu", "cpu.quota_us", 200'000).gauge("cgroup/cpu", "cpu.period_us", 100'000);
  run.cpu(1000, 0.95)
      .cpu(1001, 0.95)
      .fetching(1000, 10, 98, 0.95, 0.04)
      .fetching(1001, 10, 98, 0.95, 0.04);
  EXPECT_THAT(judge(run.build()).findings.at(0).title,
              testing::HasSubstr("more workers will not help"));
}

TEST(InputWorkers, IdleWorkersAndTheSameWaitInEachStepIsTheHandOver) {
  const Finding f = judge(starved(2).build()).findings.at(0);
  EXPECT_THAT(f.title, testing::HasSubstr("taking over a batch"));
  EXPECT_THAT(f.fix, testing::HasSubstr("more workers or a longer queue bring nothing"));
}

TEST(InputWorkers, IdleWorkersAndWaitsInSomeStepsAreUnevenBatches) {
  auto run = RunBuilder::healthy(1, 2);
  run.all_phases({{Phase::kInputWait, 0.6}}, 3);
  const Finding f = judge(run.build()).findings.at(0);
  EXPECT_THAT(f.title, testing::HasSubstr("workers are not busy"));
  EXPECT_THAT(f.fix, testing::HasSubstr("prefetch_factor"));
}

TEST(InputWorkers, AnEpochsStartIsToldFromASlowLoader) {
  auto run = RunBuilder::healthy(1);
  run.phases(0, {{Phase::kInputWait, 0.0}}).loader(0, 2, false);
  for (auto& step : run.data().steps) {
    if (step.index % 25 != 1) continue;
    step.duration = 700 * kMillisecond;
    step.phases = {};
    step.phases[0] = 650 * kMillisecond;
    step.phases[2] = 50 * kMillisecond;
  }
  const Finding f = judge(run.build()).findings.at(0);
  EXPECT_EQ(f.rule, "input_workers");
  EXPECT_THAT(f.fix, testing::HasSubstr("persistent_workers=True"));
}

TEST(InputWorkers, NamesTheRankThatStarves) {
  auto run = RunBuilder::healthy(2);
  run.phases(1, {{Phase::kInputWait, 0.5}}).phases(0, {{Phase::kCommunication, 0.5}});
  const Finding f = judge(run.build()).findings.at(0);
  EXPECT_EQ(f.rule, "input_workers");
  EXPECT_NEAR(f.gain_ceiling, 0.5, 1e-9);
  EXPECT_EQ(f.scope.ranks, std::vector<int>{1});
}

TEST(InputWorkers, AFedLoopIsQuietAndRuledOut) {
  const auto data = RunBuilder::healthy(2).build();
  EXPECT_TRUE(quiet(judge(data), "input_workers"));
}

TEST(InputWorkers, EvaluationDoesNotCount) {
  auto run = RunBuilder::healthy(1);
  run.phases(0, {{Phase::kInputWait, 0.9}}, 10);
  for (auto& step : run.data().steps) step.evaluation = step.index % 10 == 0;
  EXPECT_TRUE(quiet(judge(run.build()), "input_workers"));
}

TEST(InputWorkers, WithoutTheHookItCouldNotSee) {
  auto run = starved(1);
  run.unseen("hook", "no Python process");
  EXPECT_TRUE(unseen(judge(run.build()), "input_workers"));
}

TEST(InputWorkers, ALoaderNoteThatIsNotJsonIsIgnored) {
  auto run = starved(0);
  run.data().notes.clear();
  run.note(100, "loader", "{\"id\":")
      .note(100, "loader", "[1]")
      .note(100, "loader", R"({"id":"x","num_workers":-3})");
  EXPECT_EQ(found(judge(run.build())), std::vector<std::string>{"input_workers"});
}

// The process makes its batches itself; others keep it from running for `waits` of the time.
RunBuilder delayed(double input, double user, double waits) {
  auto run = RunBuilder::healthy(1, 0);
  run.all_phases({{Phase::kInputWait, input}});
  run.fetching(100, 10, input * 100, user, 0);
  run.cpu(100, 1 - waits, waits).thread(100, 100, 1 - waits, waits);
  run.counter("cgroup/others", "cpu.usage_ns", 3.5e9).counter("host", "cpu.idle_ns", 0);
  return run;
}

TEST(InputWorkers, ANeighbourThatIsFeltMostlyInsideFetchesIsItsConsequence) {
  const Report report = judge(delayed(0.7, 0.6, 0.28).build());
  ASSERT_EQ(found(report), (std::vector<std::string>{"input_workers", "noisy_neighbour"}));
  EXPECT_EQ(report.findings[1].because_of, "input_workers");
}

TEST(InputWorkers, BatchesThatAreSlowForANeighbourAloneAreItsConsequence) {
  const Report report = judge(delayed(0.14, 0.4, 0.8).build());
  ASSERT_EQ(found(report), (std::vector<std::string>{"noisy_neighbour", "input_workers"}));
  EXPECT_EQ(report.findings[1].because_of, "noisy_neighbour");
}

TEST(InputWorkers, ANeighbourThatSlowsTheComputingTooIsACauseOfItsOwn) {
  const Report report = judge(delayed(0.3, 0.6, 0.4).build());
  ASSERT_EQ(report.findings.size(), 2u);
  for (const Finding& f : report.findings) EXPECT_FALSE(f.because_of) << f.rule;
}

}  // namespace
}  // namespace bedplate::doctor
