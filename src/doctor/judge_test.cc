#include "doctor/judge.h"

#include "base/error.h"
#include "doctor/rules/rule_test.h"

namespace bedplate::doctor {
namespace {

std::string as_text(const Report& report) {
  std::string out = report.verdict_text + "\n";
  for (const Finding& f : report.findings) {
    out += fmt::format("{} {} {:.17g} {} {} {} {} {}\n{}", f.rule, name(f.status), f.gain_ceiling,
                       f.title, f.verify, f.fix, f.undo, f.because_of.value_or("-"), evidence(f));
    for (const RuledOut& r : f.ruled_out) out += r.rule + ": " + r.text + "\n";
    for (const Interval& i : f.when) out += fmt::format("{}-{} ", i.begin, i.end);
  }
  for (const auto& rule : report.not_fired) out += "not fired " + rule + "\n";
  for (const auto& n : report.not_seen)
    out += fmt::format("not seen {} {}\n", n.rule, fmt::join(n.missing, ","));
  for (const auto& r : report.resource_remarks) out += r + "\n";
  for (const auto& r : report.remarks) out += r + "\n";
  for (const auto& [phase, share] : report.steps.phases)
    out += fmt::format("{} {:.17g}\n", phase, share);
  return out;
}

TEST(Judge, AHealthyRunHasNoFindings) {
  for (const int ranks : {1, 2, 4}) {
    const Report report = judge(RunBuilder::healthy(ranks).build());
    EXPECT_THAT(found(report), testing::IsEmpty()) << ranks;
    EXPECT_EQ(report.verdict, Verdict::kHealthy) << report.verdict_text;
    EXPECT_THAT(report.not_seen, testing::IsEmpty());
    EXPECT_EQ(report.not_fired.size(), all_rules().size());
  }
}

TEST(Judge, EveryRuleIsEitherFiredOrNotFiredOrNotSeen) {
  for (const auto& data :
       {RunBuilder::healthy(2).build(), RunBuilder::empty().build(), probe::RunData{}}) {
    const Report report = judge(data);
    EXPECT_EQ(report.findings.size() + report.not_fired.size() + report.not_seen.size(),
              all_rules().size());
  }
}

TEST(Judge, AnEmptyRunIsUnknownAndNothingWasSeen) {
  const Report report = judge(probe::RunData{});
  EXPECT_THAT(found(report), testing::IsEmpty());
  EXPECT_EQ(report.verdict, Verdict::kUnknown);
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.steps.count, 0);
}

TEST(Judge, LostTimeThatNoRuleExplainsIsUnknown) {
  auto run = RunBuilder::healthy(1);
  run.counter("cgroup/job", "psi.memory.full_us", 0.3e6);
  run.unseen("cgroup.memory").unseen("cgroup.io");
  const Report report = judge(run.build());
  EXPECT_THAT(found(report), testing::IsEmpty());
  EXPECT_EQ(report.verdict, Verdict::kUnknown) << report.verdict_text;
  EXPECT_EQ(report.verdict_text, "30 % of the step time is lost and no rule explains it");
}

TEST(Judge, AJobThatHangsBeforeItsFirstStepIsNotHealthy) {
  const auto judged = [](double cpus, double gpu_pct, double idle_s) {
    auto run = RunBuilder::healthy(1, 0);
    run.no_steps().counter("cgroup/job", "cpu.usage_ns", cpus * 1e9).cpu(100, cpus, 0);
    run.gauge("gpu/0", "utilization_pct", gpu_pct);
    return judge(run.build(), {{"verdict.idle_s", idle_s}});
  };
  const Report hung = judged(0.01, 0, 10);
  EXPECT_EQ(hung.verdict, Verdict::kUnknown);
  EXPECT_THAT(hung.verdict_text, testing::HasSubstr("did next to nothing for 20"));
  EXPECT_EQ(judged(0.01, 0, 30).verdict, Verdict::kHealthy);
  EXPECT_EQ(judged(0.01, 60, 10).verdict, Verdict::kHealthy);
  EXPECT_EQ(judged(0.5, 0, 10).verdict, Verdict::kHealthy);
}

TEST(Judge, AJobThatKeepsAllProcessorsBusyLosesNothingByWaitingForThem) {
  auto run = RunBuilder::healthy(4, 0);
  run.gauge("host", "cpu.online", 2)
      .counter("host", "cpu.idle_ns", 0)
      .counter("cgroup/job", "cpu.usage_ns", 2e9);
  for (int rank = 0; rank < 4; ++rank)
    run.cpu(100 + rank, 0.5, 0.5).thread(100 + rank, 100 + rank, 0.5, 0.5);
  const Report report = judge(run.build());
  EXPECT_EQ(report.verdict, Verdict::kHealthy) << report.verdict_text;
}

TEST(Judge, TheSameRunGivesTheSameReportByteForByte) {
  auto run = RunBuilder::healthy(2);
  run.all_phases({{Phase::kInputWait, 0.3}, {Phase::kCheckpoint, 0.2}});
  const auto data = run.build();
  const std::string first = as_text(judge(data));
  EXPECT_EQ(as_text(judge(data)), first);
  auto shuffled = data;  // the order in which series and processes were stored does not matter
  std::reverse(shuffled.series.begin(), shuffled.series.end());
  std::reverse(shuffled.processes.begin(), shuffled.processes.end());
  EXPECT_EQ(as_text(judge(shuffled)), first);
}

TEST(Judge, RootsComeInTheOrderOfTheirCeilings) {
  auto run = RunBuilder::healthy(1);
  run.all_phases({{Phase::kInputWait, 0.2}, {Phase::kCheckpoint, 0.3}});
  EXPECT_EQ(found(judge(run.build())),
            (std::vector<std::string>{"checkpoint_stall", "input_workers"}));
  run.all_phases({{Phase::kInputWait, 0.3}, {Phase::kCheckpoint, 0.2}});
  EXPECT_EQ(found(judge(run.build())),
            (std::vector<std::string>{"input_workers", "checkpoint_stall"}));
}

TEST(Judge, AConsequenceIsToBeMendedAtItsRoot) {
  auto run = RunBuilder::healthy(1, 1);
  run.gauge("cgroup/cpu", "cpu.quota_us", 50'000).gauge("cgroup/cpu", "cpu.period_us", 100'000);
  run.counter("cgroup/cpu", "cpu.periods", 10).counter("cgroup/cpu", "cpu.throttled_periods", 10);
  run.counter("cgroup/cpu", "cpu.throttled_ns", 0.6e9).counter("cgroup/job", "cpu.usage_ns", 0.5e9);
  run.all_phases({{Phase::kInputWait, 0.6}});
  EXPECT_THAT(judge(run.build()).findings.at(1).fix,
              testing::StartsWith("mend cpu_quota first; if this stays: "));
}

TEST(Judge, ALookAlikeThatCouldNotBeSeenKeepsAFindingFromBeingEstablished) {
  auto run = RunBuilder::healthy(1);
  run.all_phases({{Phase::kInputWait, 0.3}}).unseen("cgroup.quota");
  EXPECT_EQ(judge(run.build()).findings.at(0).status, Status::kSupported);
}

TEST(Judge, ThresholdsAreTheUsers) {
  auto run = RunBuilder::healthy(1);
  run.all_phases({{Phase::kInputWait, 0.3}});
  EXPECT_THAT(found(judge(run.build(), {{"input_workers.wait_share", 0.5}})), testing::IsEmpty());
}

TEST(Judge, AnUnknownThresholdIsRefusedWithItsNearestName) {
  EXPECT_NO_THROW(check_thresholds({{"cpu_quota.throttled_share", 0.5}}));
  try {
    check_thresholds({{"cpu_quota.throtled_share", 0.5}});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInvalid);
    EXPECT_THAT(e.what(), testing::HasSubstr("did you mean cpu_quota.throttled_share?"));
  }
  EXPECT_THROW(check_thresholds({{"cpu_quota.throttled_share", -1}}), Error);
}

TEST(Judge, SaysWhatTheRunWas) {
  auto run = RunBuilder::healthy(1);
  run.meta("signal", "9")
      .meta("exit_code", "137")
      .meta("own_cpu_ns", "100000000")
      .meta("events_lost", "3");
  const Report report = judge(run.build());
  EXPECT_EQ(report.command, (std::vector<std::string>{"python", "train.py"}));
  EXPECT_EQ(report.exit_code, 137);
  EXPECT_EQ(report.signal, 9);
  EXPECT_NEAR(report.own_cpu_share, 0.005, 1e-9);
  EXPECT_EQ(report.hooks.at(100), "active");
  EXPECT_THAT(report.remarks,
              testing::Contains(testing::HasSubstr("3 of 3 trace events were lost")));
}

TEST(Judge, SaysWhatRootWouldHaveAdded) {
  auto run = RunBuilder::healthy(1);
  run.unseen("bpf.block")
      .unseen("bpf.sched")
      .unseen("gpu.nvml", "no NVIDIA driver on this machine");
  EXPECT_THAT(judge(run.build()).remarks,
              testing::ElementsAre("as root the report would also have: bpf.block, bpf.sched"));
}

TEST(Judge, StepsAreSummedUpWithoutWarmUp) {
  auto run = RunBuilder::healthy(2);
  for (auto& step : run.data().steps) {
    if (step.index == 0) step.duration = 10 * kSecond;
  }
  const StepSummary steps = judge(run.build()).steps;
  EXPECT_EQ(steps.count, 199);
  EXPECT_DOUBLE_EQ(steps.median_ms, 100);
  double sum = 0;
  for (const auto& [phase, share] : steps.phases) sum += share;
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_EQ(steps.phases.size(), probe::kPhaseCount);
  EXPECT_EQ(steps.ranks.size(), 2);
}

TEST(Judge, ResourcesAreExplainedInTheWordsOfTime) {
  const Report report = judge(RunBuilder::healthy(1).build());
  ASSERT_EQ(report.resources.size(), 1);
  EXPECT_THAT(
      report.resource_remarks,
      testing::ElementsAre(
          testing::StartsWith(
              "Maximum resident set size: 763 MiB at most (rank 0 (pid 100)), 5 % of 14.9 GiB"),
          testing::StartsWith("Major (requiring I/O) page faults: 3:"),
          testing::StartsWith("Voluntary context switches: 4 k (20 a step)"),
          testing::StartsWith("Involuntary context switches: 200: the processor was seldom"),
          testing::StartsWith("File system inputs: 0 B")));
}

TEST(Judge, HostileValuesGiveAReport) {
  auto run = RunBuilder::healthy(2);
  auto& data = run.data();
  for (auto& series : data.series) {
    for (std::size_t i = 0; i < series.samples.size(); ++i) {
      series.samples[i].value = i % 3 == 0   ? std::numeric_limits<std::int64_t>::max()
                                : i % 3 == 1 ? std::numeric_limits<std::int64_t>::min()
                                             : -1;
    }
  }
  data.steps[3].duration = -5;
  data.steps[4].weight = 0;
  data.steps[5].phases[0] = std::numeric_limits<Nanos>::max();
  data.steps[6].phases[0] = -7;
  data.processes.push_back({});
  data.meta["duration_ns"] = "-9";
  data.meta["sample_hz"] = "nan";
  data.meta["command"] = "{";
  for (const Finding& f : judge(run.build()).findings) {
    EXPECT_GE(f.gain_ceiling, 0) << f.rule;
    EXPECT_LE(f.gain_ceiling, 1) << f.rule;
    EXPECT_THAT(evidence(f), testing::Not(testing::HasSubstr("nan"))) << f.rule;
    EXPECT_THAT(evidence(f), testing::Not(testing::HasSubstr("-9223"))) << f.rule;
  }
}

TEST(Rules, EachIsFullyDescribed) {
  std::set<std::string_view> ids;
  for (const Rule* rule : all_rules()) {
    EXPECT_TRUE(ids.insert(rule->id).second) << rule->id;
    for (const std::string_view text :
         {rule->title, rule->explanation, rule->signals, rule->verify, rule->fix}) {
      EXPECT_FALSE(text.empty()) << rule->id;
    }
    EXPECT_FALSE(rule->symptoms.empty()) << rule->id;
    EXPECT_NE(rule->check, nullptr) << rule->id;
    EXPECT_NE(rule->rule_out, nullptr) << rule->id;
    for (const Threshold& t : rule->thresholds) {
      EXPECT_TRUE(t.key.starts_with(std::string(rule->id) + ".")) << t.key;
      EXPECT_FALSE(t.why.empty() || t.unit.empty()) << t.key;
    }
  }
}

TEST(Rules, AnswerOnAnyRunWhateverIsMissing) {
  for (const auto& data :
       {probe::RunData{}, RunBuilder::empty().build(), RunBuilder::healthy(2).build()}) {
    const RunView run(data);
    for (const Rule* rule : all_rules()) {
      EXPECT_EQ(rule->check(run), std::nullopt) << rule->id;
      rule->rule_out(run);
    }
  }
}

RunBuilder in_threads(std::uint32_t waits_in, std::uint32_t every_other_step_in) {
  auto run = RunBuilder::healthy(1);
  for (int i = 0; i < 40; ++i) {
    const Nanos t = i * 100 * kMillisecond;
    run.event(100, probe::EventKind::kInputWait, t, 30 * kMillisecond);
    run.event(100, probe::EventKind::kStep, t + 90 * kMillisecond, 0);
    run.data().events[100].end()[-2].tid = waits_in;
    if (i % 2 == 1) run.data().events[100].back().tid = every_other_step_in;
  }
  return run;
}

TEST(Judge, ThreadsThatMakeThePhasesWrongAreRemarkedOn) {
  EXPECT_THAT(judge(in_threads(100, 100).build()).remarks,
              testing::Not(testing::Contains(testing::HasSubstr("thread"))));
  EXPECT_THAT(judge(in_threads(7, 100).build()).remarks,
              testing::Contains(testing::HasSubstr(
                  "rank 0 (pid 100): another thread than the one that steps asks the loader")));
  EXPECT_THAT(judge(in_threads(100, 7).build()).remarks,
              testing::Contains(testing::HasSubstr("rank 0 (pid 100): 2 threads take steps")));
  auto evaluation = in_threads(7, 100);  // in a thread of its own: no batch to train with
  for (auto& event : evaluation.data().events[100]) event.arg = 1;
  EXPECT_THAT(judge(evaluation.build()).remarks,
              testing::Not(testing::Contains(testing::HasSubstr("thread"))));
}

}  // namespace
}  // namespace bedplate::doctor
