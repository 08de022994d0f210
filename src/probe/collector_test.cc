#include "probe/collector.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "bedplate/trace.h"
#include "os/test_folder.h"
#include "probe/internal/recorder.h"

namespace bedplate::probe {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Process* find(const RunData& run, int pid) {
  for (const Process& process : run.processes) {
    if (process.pid == pid) return &process;
  }
  return nullptr;
}

const Series* find(const RunData& run, std::string_view subject, std::string_view metric) {
  for (const Series& series : run.series) {
    if (series.subject == subject && series.metric == metric) return &series;
  }
  return nullptr;
}

const SignalState* signal_of(const RunData& run, std::string_view name) {
  for (const SignalState& state : run.signals) {
    if (state.name == name) return &state;
  }
  return nullptr;
}

template <typename Done>
bool wait_until(Done done, Nanos within = 10 * kSecond) {
  const Nanos until = real_clock().now() + within;
  while (!done()) {
    if (real_clock().now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class CollectorTest : public ::testing::Test {
 protected:
  CollectorOptions options(double hz = 20) const {
    CollectorOptions options;
    options.run_folder = folder_.path();
    options.hz = hz;
    return options;
  }
  // The job: `work` in a process of its own.
  template <typename Work>
  static pid_t job(Work work) {
    const pid_t child = ::fork();
    if (child == 0) {
      work();
      ::_exit(0);
    }
    return child;
  }
  static pid_t shell(const char* script) {
    return job([script] { ::execl("/bin/sh", "sh", "-c", script, nullptr); });
  }
  static int wait_for(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return status;
  }
  os::TestFolder folder_;
};

// Samplers for the tests: one that counts its calls, one that breaks at its second, one that cannot
// see.
class Counting final : public Sampler {
 public:
  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    sink.counter("host", "test.calls", ++calls_, "test");
    for (const JobProcess& process : processes) {
      sink.gauge("proc/" + std::to_string(process.pid), "test.appeared", process.appeared ? 1 : 0,
                 "test");
    }
  }

 private:
  int calls_ = 0;
};
// Hangs from its second call on, as in a read that the kernel does not answer, until it is let go.
class Hanging final : public Sampler {
 public:
  ~Hanging() override { gone = true; }
  void sample(std::span<const JobProcess>, SampleSink&) override {
    if (++calls_ == 2) hung = true;
    if (calls_ >= 2) let_go.wait(false);
  }
  static inline std::atomic<bool> hung = false, let_go = false, gone = false;

 private:
  int calls_ = 0;
};
class Breaking final : public Sampler {
 public:
  void sample(std::span<const JobProcess>, SampleSink&) override {
    if (++calls_ == 2) throw Error(Code::kIo, "the device is gone");
  }

 private:
  int calls_ = 0;
};
constexpr SamplerPart kCounting{
    "test.counting", "", 1,
    [](const SampleContext&) -> std::unique_ptr<Sampler> { return std::make_unique<Counting>(); }};
constexpr SamplerPart kHanging{
    "test.hanging", "", 1,
    [](const SampleContext&) -> std::unique_ptr<Sampler> { return std::make_unique<Hanging>(); }};
constexpr SamplerPart kBreaking{
    "test.breaking", "", 1,
    [](const SampleContext&) -> std::unique_ptr<Sampler> { return std::make_unique<Breaking>(); }};
constexpr SamplerPart kBlind{"test.blind", "", 1,
                             [](const SampleContext&) -> std::unique_ptr<Sampler> {
                               throw Error(Code::kPermission, "only root may");
                             }};
constexpr const SamplerPart* kTestSamplers[] = {&kCounting, &kBreaking, &kBlind};

TEST_F(CollectorTest, RecordsAJobOfSeveralProcesses) {
  auto wanted = options();
  wanted.samplers = kTestSamplers;
  wanted.meta = {{"version", "9.9"}};
  wanted.machine = {{"host.json", "{}"}};
  Collector collector(std::move(wanted));
  const pid_t root = shell("sleep 0.4 & sleep 0.6; exit 3");
  collector.start(root);
  ASSERT_TRUE(wait_until([&] { return collector.status().processes == 3; }));
  const int status = wait_for(root);
  collector.process_ended(root, status);
  collector.meta(run_meta::kExitCode, "3");
  collector.stop(5 * kSecond);
  EXPECT_THAT(collector.remarks(), IsEmpty());

  const RunData run = read_run(folder_.path());
  EXPECT_EQ(run.meta.at("version"), "9.9");
  EXPECT_EQ(run.meta.at("exit_code"), "3");
  EXPECT_EQ(run.meta.at("root_pid"), std::to_string(root));
  EXPECT_GE(std::stoll(run.meta.at("duration_ns")), kSecond / 2);
  EXPECT_GT(std::stoll(run.meta.at("own_cpu_ns")), 0);
  EXPECT_EQ(run.machine.at("host.json"), "{}");
  EXPECT_TRUE(run.machine.contains("/proc/meminfo"));
  ASSERT_NE(find(run, root), nullptr);
  EXPECT_EQ(find(run, root)->wait_status, status);
  EXPECT_EQ(find(run, root)->comm, "sh");
  EXPECT_THAT(find(run, root)->command, HasSubstr("exit 3"));
  EXPECT_EQ(std::count_if(run.processes.begin(), run.processes.end(),
                          [](const Process& p) { return p.comm == "sleep" && p.end; }),
            2);
  EXPECT_GT(find(run, "host", "test.calls")->samples.size(), 5u);
  EXPECT_NE(find(run, fmt::format("proc/{}", root), "test.appeared"), nullptr);
  EXPECT_TRUE(signal_of(run, "test.counting")->seen);
  EXPECT_FALSE(signal_of(run, "test.breaking")->seen);
  EXPECT_THAT(signal_of(run, "test.breaking")->why, HasSubstr("the device is gone"));
  EXPECT_THAT(signal_of(run, "test.blind")->why, HasSubstr("not permitted: only root may"));
  EXPECT_FALSE(signal_of(run, "hook")->seen);
}

TEST_F(CollectorTest, RecordsTheStepsOfATrainer) {
  Collector collector(options());
  const pid_t root = job([&] {
    ::setenv("BEDPLATE_TRACE", collector.ring_path().c_str(), 1);
    trace::rank(0, 1);
    for (int i = 0; i < 40; ++i) {
      trace::Phase phase("forward");
      ::usleep(10'000);
      trace::step();
    }
  });
  collector.start(root);
  ASSERT_TRUE(wait_until([&] { return collector.status().steps >= 20; }));
  const CollectorStatus live = collector.status();
  EXPECT_EQ(live.ranks, 1);
  ASSERT_TRUE(live.step_time.has_value());
  EXPECT_GE(*live.step_time, 10 * kMillisecond);
  EXPECT_LT(*live.step_time, 100 * kMillisecond);
  EXPECT_EQ(live.input_share, 0.0);
  collector.process_ended(root, wait_for(root));
  collector.stop(5 * kSecond);
  EXPECT_EQ(collector.status().steps, 39);

  const RunData run = read_run(folder_.path());
  ASSERT_THAT(run.steps, SizeIs(39));
  EXPECT_EQ(run.steps[0].pid, root);
  EXPECT_EQ(run.steps[0].rank, 0);
  EXPECT_EQ(run.steps[38].index, 38);
  EXPECT_GT(run.steps[0].start, 0);
  EXPECT_THAT(run.events.at(root), SizeIs(80));
  const Process* const process = find(run, root);
  EXPECT_EQ(process->role, "rank");
  EXPECT_EQ(process->rank, 0);
  EXPECT_EQ(process->hook, "active");
  EXPECT_TRUE(process->end.has_value());
  EXPECT_TRUE(signal_of(run, "hook")->seen);
  EXPECT_EQ(find(run, fmt::format("proc/{}", root), "trace.steps")->samples.back().value, 39);
  EXPECT_EQ(run.meta.at("events"), "80");
  EXPECT_EQ(run.meta.at("events_lost"), "0");
  EXPECT_EQ(std::count_if(run.notes.begin(), run.notes.end(),
                          [](const Note& n) { return n.key == "phase_name"; }),
            1);
}

TEST_F(CollectorTest, AKilledRecorderLeavesARunThatCanBeRead) {
  const pid_t recorder = job([&] {
    auto wanted = options();
    wanted.samplers = kTestSamplers;
    Collector collector(std::move(wanted));
    const pid_t root = job([&] {
      ::setenv("BEDPLATE_TRACE", collector.ring_path().c_str(), 1);
      for (int i = 0; i < 3000; ++i) {
        ::usleep(2'000);
        trace::step();
      }
    });
    collector.start(root);
    wait_until([&] { return collector.status().steps > 50; });
    std::ofstream(folder_.path() / "root") << root;
    ::raise(SIGKILL);
  });
  ASSERT_TRUE(WIFSIGNALED(wait_for(recorder)));
  pid_t root = 0;
  std::ifstream(folder_.path() / "root") >> root;
  ::kill(root, SIGKILL);
  const RunData run = read_run(folder_.path());
  EXPECT_FALSE(run.meta.contains("duration_ns"));
  EXPECT_TRUE(signal_of(run, "hook")->seen);
  EXPECT_GT(run.steps.size(), 30u);
  EXPECT_TRUE(run.meta.contains("own_cpu_ns"));
}

TEST_F(CollectorTest, AFullDiskEndsTheRecordingNotTheJob) {
  const pid_t runner = job([&] {
    const rlimit limit{300 * 1024,
                       300 * 1024};  // stands for the full disk; SIGXFSZ is at its default
    ::setrlimit(RLIMIT_FSIZE, &limit);
    auto wanted = options();
    wanted.samplers = kTestSamplers;
    Collector collector(std::move(wanted));
    const pid_t root = job([&] {
      ::setenv("BEDPLATE_TRACE", collector.ring_path().c_str(), 1);
      for (std::uint64_t i = 0; i < 100'000; ++i) {
        trace::Phase phase("p");
        if (i % 50 == 0) ::usleep(1'000);
      }
      ::_exit(7);
    });
    collector.start(root);
    const bool ended = wait_until([&] { return !collector.status().recording; });
    collector.meta("late", "word");
    collector.process_ended(root, 0);
    const int status = wait_for(root);
    collector.stop(5 * kSecond);
    std::ofstream remarks(folder_.path() / "remarks");
    for (const auto& remark : collector.remarks()) remarks << remark << "\n";
    remarks.close();
    ::_exit(ended && WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 0 : 1);
  });
  EXPECT_EQ(wait_for(runner), 0);
  std::ifstream in(folder_.path() / "remarks");
  std::string remark;
  std::getline(in, remark);
  EXPECT_THAT(remark, AllOf(HasSubstr("the recording stopped after"), HasSubstr("no space left"),
                            HasSubstr("the job went on")));
  const RunData run = read_run(folder_.path());
  EXPECT_TRUE(run.meta.contains("root_pid"));
}

TEST_F(CollectorTest, ASamplerThatHangsHoldsUpNobody) {
  static constexpr const SamplerPart* kOnly[] = {&kHanging};
  auto wanted = options();
  wanted.samplers = kOnly;
  Collector collector(std::move(wanted));
  const pid_t root = shell("sleep 0.2");
  collector.start(root);
  ASSERT_TRUE(wait_until([] { return Hanging::hung.load(); }));
  const Nanos begin = real_clock().now();
  collector.process_ended(root, wait_for(root));
  collector.meta("late", "word");
  EXPECT_THAT(collector.inside(), IsEmpty());
  EXPECT_TRUE(collector.status().recording);
  collector.stop(100 * kMillisecond);
  EXPECT_LT(real_clock().now() - begin, 5 * kSecond);  // each call gave up after a second
  EXPECT_THAT(collector.remarks(), Contains(HasSubstr("did not finish in time")));
  EXPECT_TRUE(read_run(folder_.path()).meta.contains("root_pid"));
  Hanging::let_go = true;  // the thread ends, and with it what it shares with the collector
  Hanging::let_go.notify_all();
  ASSERT_TRUE(wait_until([] { return Hanging::gone.load(); }));
}

TEST_F(CollectorTest, AnUnwritableFolderIsRefusedAtOnce) {
  auto wanted = options();
  wanted.run_folder = folder_.path() / "none";
  try {
    Collector collector(std::move(wanted));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound);
  }
}

TEST_F(CollectorTest, StoppingWithoutAStartLeavesAReadableRun) {
  { Collector collector(options()); }
  EXPECT_EQ(read_run(folder_.path()).steps.size(), 0u);
}

TEST_F(CollectorTest, ManyShortLivedProcessesAreSurvived) {
  auto wanted = options(20);
  wanted.samplers = kTestSamplers;
  Collector collector(std::move(wanted));
  const pid_t root = shell("i=0; while [ $i -lt 500 ]; do /bin/true & i=$((i+1)); done; wait");
  collector.start(root);
  collector.process_ended(root, wait_for(root));
  collector.stop(5 * kSecond);
  EXPECT_THAT(collector.remarks(), IsEmpty());
  const RunData run = read_run(folder_.path());
  EXPECT_NE(find(run, root), nullptr);
  for (const Process& process : run.processes) EXPECT_TRUE(process.end.has_value()) << process.pid;
}

// Without a thread, by calls and a clock that is told the time.
class RecorderTest : public CollectorTest {
 protected:
  void SetUp() override {
    options_ = options(2);
    options_.host = &host_;
    options_.cgroups = &cgroups_;
    options_.clock = &clock_;
    root_ = shell("exec sleep 60");
  }
  void TearDown() override {
    ::kill(root_, SIGKILL);
    ::waitpid(root_, nullptr, 0);
  }
  os::HostRoot host_;
  os::CgroupTree cgroups_{host_};
  VirtualClock clock_{real_clock().now(), 1'700'000'000 * kSecond};
  CollectorOptions options_;
  pid_t root_ = 0;
};

TEST_F(RecorderTest, AStepOfTheWallClockIsNotedAndChangesNoTime) {
  Recorder recorder(options_);
  recorder.begin(root_);
  clock_.advance(kSecond);
  recorder.sample();
  clock_.advance(kSecond);
  clock_.step_wall(-3600 * kSecond);
  recorder.sample();
  clock_.advance(kSecond);
  recorder.sample();
  recorder.end();
  const RunData run = read_run(folder_.path());
  EXPECT_EQ(run.meta.at("wall_clock_steps_ns"), R"([{"t":2000000000,"by":-3600000000000}])");
  EXPECT_EQ(run.meta.at("duration_ns"), "3000000000");
}

TEST_F(RecorderTest, AWaitStatusThatComesLateIsStillWritten) {
  Recorder recorder(options_);
  recorder.begin(root_);
  ::kill(root_, SIGKILL);
  ASSERT_TRUE(wait_until([&] {
    const auto stat = host_.read(fmt::format("/proc/{}/stat", root_));
    return stat && stat->find(") Z") != std::string::npos;
  }));
  clock_.advance(kSecond / 2);
  recorder.sample();  // sees it gone, while nobody has waited for it
  recorder.process_ended(root_, wait_for(root_));
  recorder.end();
  const RunData run = read_run(folder_.path());
  ASSERT_NE(find(run, root_), nullptr);
  EXPECT_EQ(find(run, root_)->wait_status, SIGKILL);
  EXPECT_EQ(find(run, root_)->end, kSecond / 2);
}

TEST_F(RecorderTest, WhatADeadProcessSaidIsHeardAndItsBooksAreClosedOnce) {
  Recorder recorder(options_);
  recorder.begin(root_);
  std::vector<pid_t> children;
  for (int i = 0; i < 20; ++i) {
    children.push_back(job([&] {
      ::setenv("BEDPLATE_TRACE", recorder.ring().path().c_str(), 1);
      for (int s = 0; s < 5; ++s) trace::step();
    }));
    wait_for(children.back());
    clock_.advance(real_clock().now() - clock_.now());
    recorder.sample();
  }
  for (int i = 0; i < 6; ++i) {
    clock_.advance(kSecond);
    recorder.sample();
  }
  recorder.end();
  const RunData run = read_run(folder_.path());
  EXPECT_EQ(run.steps.size(), 20u * 4u);
  for (const pid_t child : children) {
    const Series* const steps = find(run, fmt::format("proc/{}", child), "trace.steps");
    ASSERT_NE(steps, nullptr);
    EXPECT_THAT(steps->samples, SizeIs(1));
  }
  EXPECT_EQ(recorder.status().steps, 4);
}

}  // namespace
}  // namespace bedplate::probe
