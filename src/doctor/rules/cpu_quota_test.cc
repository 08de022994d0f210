#include "doctor/rules/rule_test.h"

namespace bedplate::doctor {
namespace {

// One busy thread under half a processor: it runs 50 ms of each 100.
RunBuilder throttled() {
  auto run = RunBuilder::healthy(1, 0);
  run.gauge("cgroup/cpu", "cpu.quota_us", 50'000).gauge("cgroup/cpu", "cpu.period_us", 100'000);
  run.counter("cgroup/cpu", "cpu.periods", 10).counter("cgroup/cpu", "cpu.throttled_periods", 9.5);
  run.counter("cgroup/cpu", "cpu.throttled_ns", 0.5e9).counter("cgroup/job", "cpu.usage_ns", 0.5e9);
  run.cpu(100, 0.5, 0.5).thread(100, 100, 0.5, 0.5);
  return run;
}

TEST(CpuQuota, FiresWithTheShareThatTheJobStoodStill) {
  const Report report = judge(throttled().build());
  ASSERT_EQ(found(report), std::vector<std::string>{"cpu_quota"});
  const Finding& f = report.findings[0];
  EXPECT_NEAR(f.gain_ceiling, 0.5, 0.02);
  EXPECT_EQ(f.status, Status::kEstablished);
  EXPECT_THAT(evidence(f), testing::HasSubstr("189 of 199 periods throttled"));
  EXPECT_THAT(f.verify, testing::HasSubstr("cpu.throttled_periods"));
  EXPECT_EQ(report.verdict, Verdict::kFinding);
  EXPECT_EQ(report.verdict_text,
            "the cgroup's quota of 0.5 CPUs stops the job: up to 50 % of the step time");
}

TEST(CpuQuota, ThrottledTimeOfSeveralProcessorsIsNotAddedUp) {
  auto run =
      throttled();  // two threads under one processor of four: both stop for half of each period
  run.gauge("cgroup/cpu", "cpu.quota_us", 100'000).counter("cgroup/cpu", "cpu.throttled_ns", 1e9);
  run.counter("cgroup/job", "cpu.usage_ns", 1e9).gauge("host", "cpu.online", 2);
  EXPECT_NEAR(judge(run.build()).findings.at(0).gain_ceiling, 0.5, 0.02);
}

TEST(CpuQuota, AQuotaThatIsSeldomHitIsRuledOutWithItsFigures) {
  auto run = throttled();
  run.counter("cgroup/cpu", "cpu.throttled_periods", 0.4)
      .counter("cgroup/cpu", "cpu.throttled_ns", 0.01e9);
  const auto data = run.build();
  EXPECT_TRUE(quiet(judge(data), "cpu_quota"));
  const Rule* rule = nullptr;
  for (const Rule* r : all_rules()) rule = r->id == "cpu_quota" ? r : rule;
  EXPECT_EQ(rule->rule_out(RunView(data)), "8 of 199 periods were throttled");
}

TEST(CpuQuota, NoQuotaIsNoFinding) {
  const auto data = RunBuilder::healthy(1).build();
  EXPECT_TRUE(quiet(judge(data), "cpu_quota"));
}

TEST(CpuQuota, WithoutItsSignalItCouldNotSee) {
  auto run = throttled();
  run.unseen("cgroup.quota", "no cpu controller is mounted");
  const Report report = judge(run.build());
  EXPECT_TRUE(unseen(report, "cpu_quota"));
  EXPECT_EQ(finding(report, "cpu_quota"), nullptr);
  EXPECT_FALSE(quiet(report, "cpu_quota"));
}

TEST(CpuQuota, ThrottledWorkersAreItsConsequence) {
  auto run = RunBuilder::healthy(1, 1);
  run.gauge("cgroup/cpu", "cpu.quota_us", 50'000).gauge("cgroup/cpu", "cpu.period_us", 100'000);
  run.counter("cgroup/cpu", "cpu.periods", 10).counter("cgroup/cpu", "cpu.throttled_periods", 10);
  run.counter("cgroup/cpu", "cpu.throttled_ns", 0.6e9).counter("cgroup/job", "cpu.usage_ns", 0.5e9);
  run.all_phases({{Phase::kInputWait, 0.6}});
  const Report report = judge(run.build());
  ASSERT_EQ(found(report), (std::vector<std::string>{"cpu_quota", "input_workers"}));
  EXPECT_EQ(report.findings[1].because_of, "cpu_quota");
}

TEST(CpuQuota, MissingWorkersAreNot) {
  auto run = throttled();
  run.all_phases({{Phase::kInputWait, 0.6}}).fetching(100, 6, 100, 0.9, 0.05);
  const Report report = judge(run.build());
  ASSERT_EQ(found(report), (std::vector<std::string>{"input_workers", "cpu_quota"}));
  EXPECT_EQ(report.findings[0].because_of, std::nullopt);
  EXPECT_EQ(report.findings[1].because_of, std::nullopt);
}

}  // namespace
}  // namespace bedplate::doctor
