// Rules about ranks: one that is slow, one that died.
#include <signal.h>

#include "base/text.h"
#include "doctor/rules/rule_test.h"

namespace bedplate::doctor {
namespace {

// Rank `late` computes 100 ms a step, the others 60 ms, and wait for it.
RunBuilder skewed(int ranks, const std::function<int(std::int64_t)>& late) {
  auto run = RunBuilder::healthy(ranks, 0);
  for (auto& step : run.data().steps) {
    step.phases = {};
    const Nanos work = step.rank == late(step.index) ? 98 * kMillisecond : 60 * kMillisecond;
    step.phases[probe::index(Phase::kCompute)] = work;
    step.phases[probe::index(Phase::kCommunication)] = step.duration - work;
  }
  return run;
}

TEST(Straggler, NamesTheRankThatTheOthersWaitFor) {
  const Report report = judge(skewed(4, [](std::int64_t) { return 2; }).build());
  ASSERT_EQ(found(report), std::vector<std::string>{"straggler"});
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.scope.ranks, std::vector<int>{2});
  EXPECT_NEAR(f.gain_ceiling, 0.38, 0.01);
  EXPECT_EQ(f.status, Status::kEstablished);
  EXPECT_THAT(evidence(f),
              testing::HasSubstr("it waits in collectives 2 % of the step, the others 40 %"));
}

TEST(Straggler, SaysThatTheLateRankMostlyDoesNotRun) {
  for (const bool sleeps : {true, false}) {
    auto run = skewed(2, [](std::int64_t) { return 1; });
    run.cpu(100, 0.6, 0.01).cpu(101, sleeps ? 0.2 : 0.9, 0.01);
    const Finding f = judge(run.build()).findings.at(0);
    EXPECT_EQ(evidence(f).find("slept or was blocked") != std::string::npos, sleeps);
    EXPECT_EQ(f.fix.find("py-spy dump --pid 101") != std::string::npos, sleeps);
  }
}

TEST(Straggler, AnotherLateRankInEachStepIsUnevenWork) {
  const Finding f =
      judge(skewed(4, [](std::int64_t step) { return static_cast<int>(step % 4); }).build())
          .findings.at(0);
  EXPECT_EQ(f.rule, "straggler");
  EXPECT_THAT(f.title, testing::HasSubstr("the ranks' work is uneven"));
  EXPECT_TRUE(f.scope.ranks.empty());
  EXPECT_THAT(f.fix, testing::HasSubstr("same amount of work"));
}

// DDP is asked for its communication only in every third short step.
TEST(Straggler, StepsInWhichNobodyAskedAreLikeTheOthers) {
  auto run = skewed(2, [](std::int64_t) { return 1; });
  run.ddp_asked_now_and_then();
  for (auto& step : run.data().steps) {
    if (step.index % 3 == 0) continue;
    step.phases = {};
    step.phases[probe::index(Phase::kCompute)] = step.duration;
  }
  const Finding f = judge(run.build()).findings.at(0);
  EXPECT_EQ(f.scope.ranks, std::vector<int>{1});
  EXPECT_NEAR(f.gain_ceiling, 0.38, 0.02);
}

TEST(Straggler, RanksThatWereAskedInDifferentStepsAreComparedByTheirAverages) {
  for (const bool slow : {true, false}) {
    auto run = skewed(2, [&](std::int64_t) { return slow ? 1 : -1; });
    run.ddp_asked_now_and_then();
    for (auto& step : run.data().steps) {
      if (step.index % 3 == step.rank) continue;
      step.phases = {};
      step.phases[probe::index(Phase::kCompute)] = step.duration;
    }
    const Report report = judge(run.build());
    EXPECT_EQ(finding(report, "straggler") != nullptr, slow);
    if (slow) {
      EXPECT_NEAR(report.findings.at(0).gain_ceiling, 0.38, 0.02);
    }
  }
}

TEST(Straggler, RanksThatTakeTurnsOnFullProcessorsAreNotUneven) {
  auto run = skewed(4, [](std::int64_t step) { return static_cast<int>(step % 4); });
  run.gauge("host", "cpu.online", 2)
      .counter("host", "cpu.idle_ns", 0)
      .counter("cgroup/job", "cpu.usage_ns", 1.98e9);
  for (int rank = 0; rank < 4; ++rank)
    run.cpu(100 + rank, 0.5, 0.45).thread(100 + rank, 100 + rank, 0.5, 0.45);
  const Report report = judge(run.build());
  EXPECT_TRUE(quiet(report, "straggler"));
  EXPECT_EQ(report.verdict, Verdict::kHealthy) << report.verdict_text;
}

TEST(Straggler, ARankThatWaitsForItsInputIsAnInputProblem) {
  auto run = RunBuilder::healthy(2);
  run.phases(1, {{Phase::kInputWait, 0.5}}).phases(0, {{Phase::kCommunication, 0.5}});
  const Report report = judge(run.build());
  EXPECT_EQ(found(report), std::vector<std::string>{"input_workers"});
  EXPECT_TRUE(quiet(report, "straggler"));
}

TEST(Straggler, SlowCommunicationForAllIsNotARank) {
  auto run = RunBuilder::healthy(4);
  run.all_phases({{Phase::kCommunication, 0.6}});
  EXPECT_TRUE(quiet(judge(run.build()), "straggler"));
}

TEST(Straggler, OneRankHasNoOthers) {
  EXPECT_TRUE(quiet(judge(RunBuilder::healthy(1).build()), "straggler"));
}

TEST(Straggler, WithoutTheHookItCouldNotSee) {
  auto run = skewed(2, [](std::int64_t) { return 1; });
  run.unseen("hook");
  EXPECT_TRUE(unseen(judge(run.build()), "straggler"));
}

RunBuilder died(int rank, int wait_status) {
  auto run = RunBuilder::healthy(2, 1);
  run.meta("exit_code", "1").meta("root_pid", "50");
  run.process(50).role = "launcher";
  run.process(50).comm = "torchrun";
  run.process(50).wait_status = 1 << 8;
  run.process(50).end = 19 * kSecond;
  run.process(100 + rank).wait_status = wait_status;
  run.process(100 + rank).end = 10 * kSecond;
  const int other = 100 + 1 - rank;
  run.process(other).wait_status = SIGTERM;
  run.process(other).end = 12 * kSecond;
  run.data().notes.push_back(
      {other, 11 * kSecond, "exception",
       R"({"type":"RuntimeError","message":"[gloo/transport/tcp/pair.cc:534] Connection closed by peer","traceback":""})"});
  return run;
}

TEST(Crash, ASignalIsTheRootAndTheOthersFollow) {
  const Report report = judge(died(1, SIGSEGV).build());
  ASSERT_EQ(found(report).front(), "crash");
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.title, "rank 1 (pid 101) was killed by SIGSEGV");
  EXPECT_EQ(report.verdict_text, f.title);
  EXPECT_EQ(f.gain_ceiling, 1);
  EXPECT_EQ(f.status, Status::kEstablished);
  EXPECT_EQ(f.scope.ranks, std::vector<int>{1});
  EXPECT_THAT(evidence(f), testing::HasSubstr("2 other processes failed after it"));
}

TEST(Crash, AnExceptionIsQuotedWithItsLine) {
  auto run = died(0, 1 << 8);
  run.data().notes.push_back(
      {100, 9 * kSecond, "exception",
       R"({"type":"ValueError","message":"a label is out of range","traceback":"Traceback\n  File \"train.py\", line 17, in step\n    x()\nValueError"})"});
  const Finding f = judge(run.build()).findings.at(0);
  EXPECT_EQ(f.title, "rank 0 (pid 100) died of ValueError: a label is out of range");
  EXPECT_THAT(f.fix, testing::HasSubstr("File \"train.py\", line 17"));
}

TEST(Crash, AnExceptionOfAWorkerIsToldByItsFirstAndLastLine) {
  auto run = died(0, 1 << 8);
  run.data().notes.push_back(
      {100, 9 * kSecond, "exception",
       R"({"type":"KeyError","message":"Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File \"x.py\", line 3, in f\nKeyError: 'label'\n","traceback":""})"});
  EXPECT_EQ(judge(run.build()).findings.at(0).title,
            "rank 0 (pid 100) died of KeyError: Caught KeyError in DataLoader worker process 0. … "
            "KeyError: 'label'");
}

TEST(Crash, ALongMessageIsCutBetweenCharacters) {
  for (const char* filler : {"", "x", "xx"}) {
    std::string message = filler;
    for (int i = 0; i < 200; ++i) message += "号";
    auto run = died(0, 1 << 8);
    run.data().notes.push_back({100, 9 * kSecond, "exception",
                                fmt::format(R"({{"type":"ValueError","message":"{}"}})", message)});
    const std::string title = judge(run.build()).findings.at(0).title;
    EXPECT_THAT(title, testing::EndsWith("号…"));
    EXPECT_EQ(to_utf8(title), title);
  }
}

TEST(Crash, AnAnswerToAnotherDeathIsNotTheCauseEvenWhenItIsToldFirst) {
  auto run = died(1, 7 << 8);
  run.data().notes.back().t = kSecond;
  EXPECT_EQ(judge(run.build()).findings.at(0).title, "rank 1 (pid 101) ended with exit code 7");
}

TEST(Crash, OutOfMemoryIsToldFromAKillFromOutside) {
  auto run = died(1, SIGKILL);
  run.counter("cgroup/memory", "memory.oom_kills", 0);
  EXPECT_THAT(evidence(judge(run.build()).findings.at(0)),
              testing::HasSubstr("the signal came from outside"));
  run.series("cgroup/memory", "memory.oom_kills", probe::SeriesKind::kCounter,
             {{0, 0}, {9 * kSecond, 0}, {10 * kSecond, 1}});
  const Finding f = judge(run.build()).findings.at(0);
  EXPECT_EQ(f.title, "rank 1 (pid 101) was killed because memory ran out");
  EXPECT_THAT(f.fix, testing::HasSubstr("raise the memory limit"));
}

TEST(Crash, AWorkersDeathComesBeforeItsRanks) {
  auto run = died(0, 1 << 8);
  run.process(1000).wait_status = SIGBUS;
  run.process(1000).end = 8 * kSecond;
  run.data().notes.push_back(
      {100, 9 * kSecond, "exception",
       R"({"type":"RuntimeError","message":"DataLoader worker (pid 1000) exited unexpectedly with exit code 1","traceback":""})"});
  const Finding f = judge(run.build()).findings.at(0);
  EXPECT_THAT(f.title, testing::HasSubstr("pid 1000 (python) was killed by SIGBUS"));
  EXPECT_THAT(f.fix, testing::HasSubstr("/dev/shm"));
}

TEST(Crash, APlainExitCodeIsReportedAsSuch) {
  auto run = RunBuilder::empty();
  run.meta("exit_code", "3").meta("root_pid", "100");
  run.process(100).comm = "sh";
  run.cpu(100, 0.1);
  const Finding f = judge(run.build()).findings.at(0);
  EXPECT_EQ(f.title, "pid 100 (sh) ended with exit code 3");
  EXPECT_EQ(f.status, Status::kSupported);
}

TEST(Crash, SuccessAndInterruptionsAreNone) {
  EXPECT_TRUE(quiet(judge(RunBuilder::healthy(2).build()), "crash"));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    auto run = RunBuilder::healthy(1);
    run.meta("exit_code", std::to_string(128 + signal)).meta("signal", std::to_string(signal));
    run.process(100).wait_status = signal;
    EXPECT_TRUE(quiet(judge(run.build()), "crash")) << signal;
  }
  auto shell = RunBuilder::empty();  // a shell passes on that its child was interrupted
  shell.meta("exit_code", "130").process(100).comm = "sh";
  EXPECT_TRUE(quiet(judge(shell.build()), "crash"));
}

TEST(Crash, AChildThatFailedInsideASuccessfulJobIsItsOwnAffair) {
  auto run = RunBuilder::healthy(1);
  run.process(700).wait_status = 1 << 8;
  run.process(700).role = "other";
  EXPECT_TRUE(quiet(judge(run.build()), "crash"));
}

TEST(Crash, ADeathInsideASuccessfulJobIsStillTold) {
  auto run = RunBuilder::healthy(1);
  run.process(1000).wait_status = SIGKILL;
  run.process(1000).end = 5 * kSecond;
  EXPECT_EQ(found(judge(run.build())), std::vector<std::string>{"crash"});
}

TEST(Crash, ARunThatGoesOnHasNotCrashed) {
  auto run = RunBuilder::healthy(1);
  run.data().meta.erase("exit_code");
  EXPECT_TRUE(quiet(judge(run.build()), "crash"));
}

}  // namespace
}  // namespace bedplate::doctor
