// Rules about who had the processors, each on runs that are one another's look-alikes.
#include "doctor/rules/rule_test.h"

namespace bedplate::doctor {
namespace {

// Two ranks of two busy threads each on two processors; everything runs half of the time that it
// wants to.
RunBuilder oversubscribed() {
  auto run = RunBuilder::healthy(2, 0);
  run.gauge("host", "cpu.online", 2)
      .counter("host", "cpu.idle_ns", 0)
      .counter("cgroup/job", "cpu.usage_ns", 2e9);
  for (int rank = 0; rank < 2; ++rank) {
    const int pid = RunBuilder::rank_pid(rank);
    run.cpu(pid, 1.0, 1.0).thread(pid, pid, 0.5, 0.5).thread(pid, pid + 50, 0.5, 0.5);
  }
  return run;
}

TEST(ThreadOversubscription, FiresWithTheUnionOfItsThreadsDelays) {
  const Report report = judge(oversubscribed().build());
  ASSERT_EQ(found(report), std::vector<std::string>{"thread_oversubscription"});
  const Finding& f = report.findings[0];
  EXPECT_NEAR(f.gain_ceiling, 0.75, 0.02);
  EXPECT_EQ(f.status, Status::kEstablished);
  EXPECT_THAT(f.fix, testing::HasSubstr("OMP_NUM_THREADS=1"));
  EXPECT_THAT(evidence(f), testing::HasSubstr("4 busy threads in 2 ranks"));
  EXPECT_THAT(evidence(f), testing::HasSubstr("OMP_NUM_THREADS not set"));
  EXPECT_THAT(ruled_out(f, "cpu_quota"), testing::HasSubstr("no CPU quota"));
  EXPECT_THAT(ruled_out(f, "noisy_neighbour"), testing::HasSubstr("others used 0.01 processors"));
}

TEST(ThreadOversubscription, RanksOfOneThreadEachHaveNothingToCut) {
  auto run = RunBuilder::healthy(4, 0);
  run.gauge("host", "cpu.online", 2)
      .counter("host", "cpu.idle_ns", 0)
      .counter("cgroup/job", "cpu.usage_ns", 2e9);
  for (int rank = 0; rank < 4; ++rank)
    run.cpu(100 + rank, 0.5, 0.5).thread(100 + rank, 100 + rank, 0.5, 0.5);
  EXPECT_TRUE(quiet(judge(run.build()), "thread_oversubscription"));
}

TEST(ThreadOversubscription, ABatchInTheMakingIsNotLostToOtherThreads) {
  auto run = RunBuilder::healthy(2, 0);
  run.all_phases({{Phase::kInputWait, 0.3}});
  run.gauge("host", "cpu.online", 2)
      .counter("host", "cpu.idle_ns", 0)
      .counter("cgroup/job", "cpu.usage_ns", 2e9);
  for (int rank = 0; rank < 2; ++rank) {
    const int pid = RunBuilder::rank_pid(rank);
    run.fetching(pid, 10, 30, 0.8, 0.1).cpu(pid, 1.0, 20);
    for (int i = 0; i < 32; ++i) run.thread(pid, pid + 200 * i, 0.03, 0.97);
  }
  const Report report = judge(run.build());
  ASSERT_NE(finding(report, "thread_oversubscription"), nullptr);
  EXPECT_NEAR(finding(report, "thread_oversubscription")->gain_ceiling, 1 - 0.3 * 0.9, 0.03);
}

// Four ranks on two processors, measured: Gloo's threads want a quarter of a processor and more,
// and are no pool that could be made smaller.
TEST(ThreadOversubscription, ThreadsOfCommunicationAreNoPool) {
  for (const bool named : {true, false}) {
    auto run = RunBuilder::healthy(4, 0);
    run.gauge("host", "cpu.online", 2)
        .counter("host", "cpu.idle_ns", 0)
        .counter("cgroup/job", "cpu.usage_ns", 2e9);
    for (int pid = 100; pid < 104; ++pid) {
      run.cpu(pid, 0.5, 0.6).thread(pid, pid, 0.36, 0.37).thread(pid, pid + 100, 0.1, 0.2);
      if (named) run.note(pid, "thread_name", fmt::format("{} pt_gloo_runloop", pid + 100));
    }
    EXPECT_EQ(quiet(judge(run.build()), "thread_oversubscription"), named);
  }
}

TEST(ThreadOversubscription, AsManyThreadsAsProcessorsAreFine) {
  auto run = RunBuilder::healthy(1, 0);
  for (int i = 0; i < 4; ++i) run.thread(100, 100 + i, 0.9, 0.05);
  run.cpu(100, 3.6, 0.2);
  EXPECT_TRUE(quiet(judge(run.build()), "thread_oversubscription"));
}

TEST(ThreadOversubscription, WorkersWithPoolsOfTheirOwnCount) {
  auto run = RunBuilder::healthy(1, 2);
  run.gauge("host", "cpu.online", 2)
      .counter("host", "cpu.idle_ns", 0)
      .counter("cgroup/job", "cpu.usage_ns", 2e9);
  run.cpu(1000, 0.8, 1.6).cpu(1001, 0.8, 1.6).cpu(100, 0.4, 0.4).thread(100, 100, 0.4, 0.4);
  const Report report = judge(run.build());
  ASSERT_NE(finding(report, "thread_oversubscription"), nullptr);
  EXPECT_THAT(finding(report, "thread_oversubscription")->fix,
              testing::HasSubstr("torch.set_num_threads(1) in a worker_init_fn"));
}

TEST(ThreadOversubscription, WithoutSchedulerStatisticsItCouldNotSee) {
  auto run = oversubscribed();
  run.unseen("proc.sched", "this kernel keeps no schedstat");
  EXPECT_TRUE(unseen(judge(run.build()), "thread_oversubscription"));
}

TEST(ThreadOversubscription, ThrottledTimeIsNotItsOwn) {
  auto run = oversubscribed();
  run.gauge("cgroup/cpu", "cpu.quota_us", 200'000).gauge("cgroup/cpu", "cpu.period_us", 100'000);
  run.counter("cgroup/cpu", "cpu.periods", 10).counter("cgroup/cpu", "cpu.throttled_periods", 10);
  run.counter("cgroup/cpu", "cpu.throttled_ns", 2e9).counter("cgroup/job", "cpu.usage_ns", 0.6e9);
  const Report report = judge(run.build());
  EXPECT_EQ(found(report).front(), "cpu_quota");
  EXPECT_EQ(finding(report, "thread_oversubscription"), nullptr);
}

// A rank and its worker bound to processor 0 of four; two processors' worth of work.
RunBuilder collapsed() {
  auto run = RunBuilder::healthy(1, 1);
  run.data().notes.clear();
  run.loader(0, 1).note(100, "affinity", "0").note(1000, "affinity", "0");
  run.cpu(100, 0.6, 0.35).thread(100, 100, 0.6, 0.35).cpu(1000, 0.4, 0.5);
  run.counter("cgroup/job", "cpu.usage_ns", 1e9).counter("host", "cpu.idle_ns", 3e9);
  run.counter("cpu/0", "cpu.idle_ns", 0);
  for (int cpu = 1; cpu < 4; ++cpu) run.counter(fmt::format("cpu/{}", cpu), "cpu.idle_ns", 0.98e9);
  return run;
}

TEST(AffinityCollapse, FiresWhenTasksShareAMaskBesideIdleProcessors) {
  const Report report = judge(collapsed().build());
  ASSERT_EQ(found(report).front(), "affinity_collapse");
  const Finding& f = report.findings[0];
  EXPECT_NEAR(f.gain_ceiling, 0.36, 0.03);
  EXPECT_THAT(f.title, testing::HasSubstr("2 processes may only run on processor 0"));
  EXPECT_THAT(evidence(f), testing::HasSubstr("2.9 processors outside that mask were idle"));
  EXPECT_THAT(f.scope.pids, testing::ElementsAre(100, 1000));
}

TEST(AffinityCollapse, OneTaskOnItsOwnProcessorIsGoodPlacement) {
  auto run = collapsed();
  run.cpu(100, 0.95, 0.01).cpu(1000, 0.05, 0.001).thread(100, 100, 0.95, 0.01);
  EXPECT_TRUE(quiet(judge(run.build()), "affinity_collapse"));
}

TEST(AffinityCollapse, RanksOnProcessorsOfTheirOwnAreGoodPlacement) {
  auto run = RunBuilder::healthy(2, 0);
  run.data().notes.clear();
  run.gauge("host", "cpu.online", 2)
      .counter("cpu/0", "cpu.idle_ns", 0)
      .counter("cpu/1", "cpu.idle_ns", 0);
  run.note(100, "affinity", "0").note(101, "affinity", "1");
  for (const int pid : {100, 101}) run.cpu(pid, 0.7, 0.6).thread(pid, pid, 0.7, 0.6);
  EXPECT_TRUE(quiet(judge(run.build()), "affinity_collapse"));
}

TEST(AffinityCollapse, AMaskOnAFullMachineIsNotTheCause) {
  auto run = collapsed();
  for (int cpu = 1; cpu < 4; ++cpu) run.counter(fmt::format("cpu/{}", cpu), "cpu.idle_ns", 0.02e9);
  EXPECT_TRUE(quiet(judge(run.build()), "affinity_collapse"));
}

TEST(AffinityCollapse, WithoutMasksItCouldNotSee) {
  auto run = collapsed();
  run.unseen("proc.env");
  EXPECT_TRUE(unseen(judge(run.build()), "affinity_collapse"));
}

// A rank of one thread on two processors; two spinning processes of somebody else.
RunBuilder disturbed() {
  auto run = RunBuilder::healthy(1, 0);
  run.gauge("host", "cpu.online", 2).counter("host", "cpu.idle_ns", 0.05e9);
  run.counter("cgroup/others", "cpu.usage_ns", 1.3e9).counter("cgroup/job", "cpu.usage_ns", 0.65e9);
  run.cpu(100, 0.65, 0.3).thread(100, 100, 0.65, 0.3).note(0, "top_outside", "4711 stress 98 %");
  return run;
}

TEST(NoisyNeighbour, FiresWithTheTimeItsThreadsWaited) {
  const Report report = judge(disturbed().build());
  ASSERT_EQ(found(report), std::vector<std::string>{"noisy_neighbour"});
  EXPECT_NEAR(report.findings[0].gain_ceiling, 0.3, 0.02);
  EXPECT_THAT(evidence(report.findings[0]), testing::HasSubstr("4711 stress"));
}

TEST(NoisyNeighbour, ANeighbourThatTakesNothingFromTheJobIsNone) {
  auto run = disturbed();
  run.cpu(100, 0.95, 0.01).thread(100, 100, 0.95, 0.01);
  EXPECT_TRUE(quiet(judge(run.build()), "noisy_neighbour"));
}

TEST(NoisyNeighbour, TheJobsOwnThreadsAreNotNeighbours) {
  EXPECT_TRUE(quiet(judge(oversubscribed().build()), "noisy_neighbour"));
}

TEST(NoisyNeighbour, StealIsANeighbourBehindTheHypervisor) {
  auto run = RunBuilder::healthy(1, 0);
  run.counter("host", "cpu.steal_ns", 0.8e9).counter("host", "cpu.idle_ns", 1.2e9);
  const Report report = judge(run.build());
  ASSERT_EQ(found(report), std::vector<std::string>{"noisy_neighbour"});
  EXPECT_THAT(report.findings[0].title, testing::HasSubstr("the hypervisor gives 20 %"));
  EXPECT_NEAR(report.findings[0].gain_ceiling, 0.2 / 0.7, 0.02);
}

TEST(NoisyNeighbour, WithoutSchedulerStatisticsItCouldNotSee) {
  auto run = disturbed();
  run.unseen("proc.sched");
  EXPECT_TRUE(unseen(judge(run.build()), "noisy_neighbour"));
}

TEST(DebugSwitches, FiresOnAKnownSwitchButIsNeverEstablished) {
  auto run = RunBuilder::healthy(2);
  run.all_phases({{Phase::kCommunication, 0.5}});
  for (const int pid : {100, 101})
    run.note(pid, "env", R"({"TORCH_DISTRIBUTED_DEBUG":"DETAIL","OMP_NUM_THREADS":"1"})");
  const Report report = judge(run.build());
  ASSERT_EQ(found(report), std::vector<std::string>{"debug_switches"});
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.status, Status::kSupported);
  EXPECT_GT(f.gain_ceiling, 0.47);
  EXPECT_THAT(f.fix, testing::HasSubstr("unset TORCH_DISTRIBUTED_DEBUG"));
  EXPECT_EQ(f.undo, "export TORCH_DISTRIBUTED_DEBUG=DETAIL");
  EXPECT_THAT(f.scope.pids, testing::ElementsAre(100, 101));
}

TEST(DebugSwitches, HarmlessValuesAndAllocatorsAreNone) {
  auto run = RunBuilder::healthy(1);
  run.note(
      100, "env",
      R"({"TORCH_DISTRIBUTED_DEBUG":"INFO","CUDA_LAUNCH_BLOCKING":"0","NCCL_DEBUG":"WARN","PYTHONMALLOC":"malloc",)"
      R"("LD_PRELOAD":"/usr/lib/libjemalloc.so.2","PYTHONTRACEMALLOC":"","MALLOC_ARENA_MAX":"2"})");
  EXPECT_TRUE(quiet(judge(run.build()), "debug_switches"));
}

TEST(DebugSwitches, ATracerThatIsStillThereIsOne) {
  auto run = RunBuilder::healthy(1);
  run.note(100, "tracer", "4711");
  EXPECT_THAT(judge(run.build()).findings.at(0).fix, testing::HasSubstr("end the tracer"));
  run.note(100, "tracer", "0");
  EXPECT_TRUE(quiet(judge(run.build()), "debug_switches"));
}

TEST(DebugSwitches, ASwitchThatMayCostNextToNothingIsOnlyWorthALook) {
  auto run = RunBuilder::healthy(1);
  run.note(100, "env", R"({"GLOO_LOG_LEVEL":"DEBUG"})");
  EXPECT_EQ(judge(run.build()).findings.at(0).status, Status::kHypothesis);
}

TEST(DebugSwitches, AHypothesisNeverStandsAboveEvidence) {
  auto run = RunBuilder::healthy(1);
  run.all_phases({{Phase::kInputWait, 0.2}}).note(100, "env", R"({"TORCHDYNAMO_DISABLE":"1"})");
  EXPECT_EQ(found(judge(run.build())),
            (std::vector<std::string>{"input_workers", "debug_switches"}));
}

TEST(DebugSwitches, WithoutTheEnvironmentItCouldNotSee) {
  auto run = RunBuilder::healthy(1);
  run.unseen("proc.env");
  EXPECT_TRUE(unseen(judge(run.build()), "debug_switches"));
}

// Full collections of 80 ms, two a second.
RunBuilder collecting() {
  auto run = RunBuilder::healthy(1);
  for (auto& step : run.data().steps) {
    if (step.index % 5 == 3)
      run.event(100, probe::EventKind::kGc, step.start, 80 * kMillisecond, 2 | 12 << 8);
  }
  run.phases(0, {{Phase::kGc, 0.8}}, 5).counter("proc/100", "trace.gc_ns", 0.16e9);
  return run;
}

TEST(PythonGc, FiresOnLongPausesThatCost) {
  const Report report = judge(collecting().build());
  ASSERT_EQ(found(report), std::vector<std::string>{"python_gc"});
  EXPECT_NEAR(report.findings[0].gain_ceiling, 0.16, 0.02);
  EXPECT_THAT(report.findings[0].title, testing::HasSubstr("for up to 80 ms"));
  EXPECT_THAT(evidence(report.findings[0]), testing::HasSubstr("freed 12 objects each"));
  EXPECT_THAT(ruled_out(report.findings[0], "checkpoint_stall"),
              testing::HasSubstr("no checkpoint"));
}

TEST(PythonGc, ShortPausesAreThePriceOfAllocating) {
  auto run = RunBuilder::healthy(1);
  run.phases(0, {{Phase::kGc, 0.08}})
      .event(100, probe::EventKind::kGc, kSecond, 2 * kMillisecond, 1);
  EXPECT_TRUE(quiet(judge(run.build()), "python_gc"));
}

TEST(PythonGc, OneLongPauseThatCostsLittleIsFine) {
  auto run = RunBuilder::healthy(1);
  run.event(100, probe::EventKind::kGc, kSecond, 90 * kMillisecond, 2);
  EXPECT_TRUE(quiet(judge(run.build()), "python_gc"));
}

TEST(PythonGc, InWorkersItCostsTheirShareOfTheInputWait) {
  auto run = RunBuilder::healthy(1, 1);
  run.all_phases({{Phase::kInputWait, 0.5}})
      .fetching(1000, 10, 90, 0.9, 0.05)
      .counter("proc/1000", "trace.gc_ns", 0.45e9);
  run.event(1000, probe::EventKind::kGc, kSecond, 45 * kMillisecond, 2);
  EXPECT_NEAR(finding(judge(run.build()), "python_gc")->gain_ceiling, 0.25, 0.02);
}

TEST(PythonGc, WithoutTheHookItCouldNotSee) {
  auto run = collecting();
  run.unseen("hook");
  EXPECT_TRUE(unseen(judge(run.build()), "python_gc"));
}

}  // namespace
}  // namespace bedplate::doctor
