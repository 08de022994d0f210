#include "probe/internal/recorder.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>

#include "base/text.h"
#include "bedplate/trace.h"
#include "probe/internal/fake_processes.h"

namespace bedplate::probe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// What the samplers of a test say in a tick: set by the test, called by Scripted<N>.
using Script = std::function<void(std::span<const JobProcess>, SampleSink&)>;
Script scripts[3];

template <int kNumber>
class Scripted final : public Sampler {
 public:
  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    if (scripts[kNumber]) scripts[kNumber](processes, sink);
  }
};
template <int kNumber>
std::unique_ptr<Sampler> open_scripted(const SampleContext&) {
  return std::make_unique<Scripted<kNumber>>();
}
constexpr SamplerPart kEach{"test.each", "", 1, open_scripted<0>};
constexpr SamplerPart kThird{"test.third", "", 3, open_scripted<1>};
constexpr SamplerPart kOtherThird{"test.other_third", "", 3, open_scripted<2>};
constexpr SamplerPart kUnlucky{"test.unlucky", "", 1,
                               [](const SampleContext&) -> std::unique_ptr<Sampler> {
                                 throw std::runtime_error("no such luck");
                               }};
constexpr const SamplerPart* kAll[] = {&kEach, &kThird, &kOtherThird, &kUnlucky};

const Series* find(const RunData& run, std::string_view subject, std::string_view metric) {
  for (const Series& series : run.series) {
    if (series.subject == subject && series.metric == metric) return &series;
  }
  return nullptr;
}

std::vector<const Process*> of_pid(const RunData& run, int pid) {
  std::vector<const Process*> found;
  for (const Process& process : run.processes) {
    if (process.pid == pid) found.push_back(&process);
  }
  return found;
}

// By calls, a clock that is told the time, and a machine of a few files. Root of the job: 100.
class RecorderOfFakesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (auto& script : scripts) script = nullptr;
    options_.run_folder = folder_.path();
    options_.host = &machine_.host();
    options_.cgroups = &cgroups_;
    options_.clock = &clock_;
    options_.samplers = kAll;
    machine_.put(100, {.start = 1'000});
  }
  void TearDown() override {
    for (auto& script : scripts) script = nullptr;
  }
  void tick(Recorder& recorder, Nanos by = kSecond / 2) {
    clock_.advance(by);
    recorder.sample();
  }
  RunData ended(Recorder& recorder) {
    recorder.end();
    return read_run(folder_.path());
  }

  FakeProcesses machine_;
  os::TestFolder folder_;
  os::CgroupTree cgroups_{machine_.host()};
  VirtualClock clock_{10 * kSecond, 1'700'000'000 * kSecond};
  CollectorOptions options_;
};

TEST_F(RecorderOfFakesTest, SamplersThatAreNotDueEachTickTakeTurns) {
  std::vector<Nanos> times[3];
  for (int i = 0; i < 3; ++i) {
    scripts[i] = [&times, i](std::span<const JobProcess>, SampleSink& sink) {
      times[i].push_back(sink.now() * 2 / kSecond);
    };
  }
  Recorder recorder(options_);
  recorder.begin(100);
  for (int i = 1; i < 9; ++i) tick(recorder);
  EXPECT_THAT(times[0], ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(times[1], ElementsAre(2, 5, 8));
  EXPECT_THAT(times[2], ElementsAre(1, 4, 7));
  const RunData run = ended(recorder);
  for (const SignalState& signal : run.signals) {
    if (signal.name != "test.unlucky") continue;
    EXPECT_FALSE(signal.seen);
    EXPECT_EQ(signal.why, "it failed: no such luck");
  }
}

TEST_F(RecorderOfFakesTest, ADayStaysWithinItsLimitsAndKeepsItsEnds) {
  options_.limits.samples_per_series = 1'000;
  constexpr int kTicks = 17'280;  // one in five seconds
  std::int64_t total = 0;
  scripts[0] = [&](std::span<const JobProcess> processes, SampleSink& sink) {
    sink.counter("host", "test.work", total += 7, "test");
    sink.gauge(fmt::format("proc/{}", processes.front().pid), "test.level", total % 1'000, "test");
  };
  Recorder recorder(options_);
  recorder.begin(100);
  for (int i = 0; i < kTicks; ++i) tick(recorder, 5 * kSecond);
  const RunData run = ended(recorder);
  EXPECT_EQ(run.meta.at("duration_ns"), std::to_string(kTicks * 5 * kSecond));
  for (const char* metric : {"test.work", "test.level"}) {
    const Series* const series =
        find(run, metric == std::string_view("test.work") ? "host" : "proc/100", metric);
    ASSERT_NE(series, nullptr);
    EXPECT_LE(series->samples.size(), 1'000u) << metric;
    EXPECT_GE(series->samples.size(), 250u) << metric;
    EXPECT_EQ(series->samples.back().t, kTicks * 5 * kSecond) << metric;
    EXPECT_LE(series->samples.front().t, 20 * 60 * kSecond) << metric;
  }
  const Series& work = *find(run, "host", "test.work");
  EXPECT_EQ(work.samples.back().value, total - 7);  // end() sampled again at the same time
  for (const Sample& sample : work.samples)
    ASSERT_EQ(sample.value, sample.t / (5 * kSecond) * 7 + 7);
}

TEST_F(RecorderOfFakesTest, PressureIsTheJobsBeforeTheHostsAndNeverNegative) {
  std::int64_t host = 5'000'000, job = -1;
  scripts[0] = [&](std::span<const JobProcess>, SampleSink& sink) {
    sink.counter("host", "psi.cpu.some_us", host, "test");
    if (job >= 0) sink.counter("cgroup/job", "psi.cpu.some_us", job, "test");
  };
  Recorder recorder(options_);
  recorder.begin(100);
  EXPECT_EQ(recorder.status().cpu_pressure, std::nullopt);  // one value is no rate
  host += 125'000;
  tick(recorder);
  EXPECT_EQ(recorder.status().cpu_pressure, 0.25);
  EXPECT_EQ(recorder.status().io_pressure, std::nullopt);
  job = 10;  // now the job's own is seen, far below the host's
  tick(recorder);
  EXPECT_EQ(recorder.status().cpu_pressure, 0.0);
  host += 500'000;
  job += 50'000;
  tick(recorder);
  EXPECT_EQ(recorder.status().cpu_pressure, 0.1);
  job += 9'000'000;
  tick(recorder);
  EXPECT_EQ(recorder.status().cpu_pressure, 1.0);
}

TEST_F(RecorderOfFakesTest, PeakMemoryIsTheKernelsWhenItIsHigher) {
  machine_.put(100, {.start = 1'000, .peak_kib = 2'048});
  scripts[0] = [](std::span<const JobProcess>, SampleSink& sink) {
    sink.gauge("proc/100", "rss_bytes", kMiB, "test");
  };
  Recorder recorder(options_);
  recorder.begin(100);
  const RunData run = ended(recorder);
  ASSERT_THAT(run.resources, SizeIs(1));
  EXPECT_EQ(run.resources[0].peak_rss_bytes, 2 * kMiB);
}

TEST_F(RecorderOfFakesTest, AnEndThatAnotherHasSeenIsTheProcesssWhicheverComesFirst) {
  machine_.put(101, {.ppid = 100, .start = 1'010});
  machine_.put(102, {.ppid = 100, .start = 1'010});
  const auto says = [](int pid, int signal) {
    scripts[0] = [=](std::span<const JobProcess>, SampleSink& sink) {
      sink.note(pid, "exit", fmt::format(R"({{"pid":{},"signal":{}}})", pid, signal));
    };
  };
  Recorder recorder(options_);
  recorder.begin(100);
  says(101, SIGSEGV);  // in the tick before it is seen gone
  tick(recorder);
  scripts[0] = nullptr;
  machine_.remove(101);
  tick(recorder);
  machine_.remove(102);
  tick(recorder);
  says(102, SIGBUS);  // and in the tick after
  tick(recorder);
  scripts[0] = nullptr;
  const RunData run = ended(recorder);
  ASSERT_THAT(of_pid(run, 101), SizeIs(1));
  ASSERT_THAT(of_pid(run, 102), SizeIs(1));
  EXPECT_EQ(of_pid(run, 101)[0]->wait_status, SIGSEGV);
  EXPECT_EQ(of_pid(run, 101)[0]->end, kSecond);
  EXPECT_EQ(of_pid(run, 102)[0]->wait_status, SIGBUS);
  EXPECT_EQ(of_pid(run, 102)[0]->end, 3 * kSecond / 2);
}

TEST_F(RecorderOfFakesTest, TheEndOfOneThatWasNeverSeenIsNotThatOfALaterOneOfItsNumber) {
  Recorder recorder(options_);
  recorder.begin(100);
  recorder.process_ended(101, SIGKILL);  // came and went between two ticks
  tick(recorder);
  machine_.put(101, {.ppid = 100, .start = 1'100});
  tick(recorder);
  machine_.remove(101);  // its own parent has waited for it: how it ended is not known
  tick(recorder);
  const RunData run = ended(recorder);
  ASSERT_THAT(of_pid(run, 101), SizeIs(1));
  EXPECT_EQ(of_pid(run, 101)[0]->wait_status, std::nullopt);
}

TEST_F(RecorderOfFakesTest, AnEndLongAfterAProcessWasGoneIsAnothers) {
  machine_.put(101, {.ppid = 100, .start = 1'010});
  Recorder recorder(options_);
  recorder.begin(100);
  machine_.remove(101);
  tick(recorder);
  for (int i = 0; i < 60; ++i) tick(recorder, kSecond);
  recorder.process_ended(101, SIGKILL);
  const RunData run = ended(recorder);
  ASSERT_THAT(of_pid(run, 101), SizeIs(1));
  EXPECT_EQ(of_pid(run, 101)[0]->wait_status, std::nullopt);
}

TEST_F(RecorderOfFakesTest, ANumberThatIsUsedAgainIsTwoProcessesWithTheirOwnEnds) {
  machine_.put(101, {.ppid = 100, .comm = "first", .start = 1'010});
  scripts[0] = [](std::span<const JobProcess> processes, SampleSink& sink) {
    for (const JobProcess& process : processes)
      sink.gauge(fmt::format("proc/{}", process.pid), "rss_bytes", process.appeared ? 4'096 : 8'192,
                 "test");
  };
  Recorder recorder(options_);
  recorder.begin(100);
  tick(recorder);
  recorder.process_ended(101, 0);
  machine_.put(101, {.ppid = 100, .comm = "second", .start = 1'090});
  tick(recorder);
  machine_.remove(101);
  recorder.process_ended(101, SIGKILL);
  tick(recorder);
  const RunData run = ended(recorder);
  const auto both = of_pid(run, 101);
  ASSERT_THAT(both, SizeIs(2));
  EXPECT_EQ(both[0]->comm, "first");
  EXPECT_EQ(both[0]->wait_status, 0);
  EXPECT_EQ(both[0]->end, kSecond);
  EXPECT_EQ(both[1]->comm, "second");
  EXPECT_EQ(both[1]->wait_status, SIGKILL);
  EXPECT_EQ(both[1]->end, 3 * kSecond / 2);
  const auto use = std::find_if(run.resources.begin(), run.resources.end(),
                                [](const ResourceUse& one) { return one.pid == 101; });
  ASSERT_NE(use, run.resources.end());
  EXPECT_EQ(use->peak_rss_bytes, 4'096);  // the second one's own
}

TEST_F(RecorderOfFakesTest, NamesAndNotesThatAreNoUtf8AreRecorded) {
  machine_.put(101, {.ppid = 100, .comm = "\xff\xfe", .exe = "/opt/\xff", .start = 1'010});
  Recorder recorder(options_);
  recorder.begin(100);
  recorder.note(101, "why", "\xc3");
  const RunData run = ended(recorder);
  ASSERT_THAT(of_pid(run, 101), SizeIs(1));
  EXPECT_EQ(of_pid(run, 101)[0]->comm, to_utf8("\xff\xfe"));
  EXPECT_EQ(of_pid(run, 101)[0]->executable, to_utf8("/opt/\xff"));
  ASSERT_THAT(run.notes, SizeIs(1));
  EXPECT_EQ(run.notes[0].value, to_utf8("\xc3"));
}

TEST_F(RecorderOfFakesTest, AJobWhoseProcessIsGoneAtOnceIsARunAllTheSame) {
  machine_.remove(100);
  Recorder recorder(options_);
  recorder.begin(100);
  recorder.process_ended(100, 127 << 8);
  tick(recorder);
  const RunData run = ended(recorder);
  EXPECT_THAT(run.processes, IsEmpty());
  EXPECT_EQ(run.meta.at("root_pid"), "100");
  EXPECT_EQ(run.meta.at("duration_ns"), std::to_string(kSecond / 2));
  EXPECT_EQ(recorder.status().processes, 0);
}

// With the trace: real processes that speak, on this machine, by a clock that is set to its time.
class RecorderOfSpeakersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.run_folder = folder_.path();
    options_.host = &host_;
    options_.cgroups = &cgroups_;
    options_.clock = &clock_;
  }
  // A child that does `work` each time it is told to, until the test ends.
  template <typename Work>
  void start(Work work) {
    int to_child[2], from_child[2];
    ASSERT_EQ(::pipe(to_child), 0);
    ASSERT_EQ(::pipe(from_child), 0);
    child_ = ::fork();
    if (child_ == 0) {
      ::close(to_child[1]);
      for (char order = 0; ::read(to_child[0], &order, 1) == 1;) {
        work(order);
        (void)!::write(from_child[1], "", 1);
      }
      ::_exit(0);
    }
    ::close(to_child[0]);
    ::close(from_child[1]);
    order_ = to_child[1];
    answer_ = from_child[0];
  }
  void tell(char order) {
    char done = 0;
    ASSERT_EQ(::write(order_, &order, 1), 1);
    ASSERT_EQ(::read(answer_, &done, 1), 1);  // its end closes the pipe: no wait for ever
  }
  void now(Recorder& recorder) {
    clock_.advance(real_clock().now() - clock_.now());
    recorder.sample();
  }
  void TearDown() override {
    if (order_ >= 0) ::close(order_);
    if (answer_ >= 0) ::close(answer_);
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
  }

  os::TestFolder folder_;
  os::HostRoot host_;
  os::CgroupTree cgroups_{host_};
  VirtualClock clock_{real_clock().now(), 1'700'000'000 * kSecond};
  CollectorOptions options_;
  pid_t child_ = 0;
  int order_ = -1, answer_ = -1;
};

TEST_F(RecorderOfSpeakersTest, OneThatSpeaksLateIsARankFromThenOn) {
  Recorder recorder(options_);
  start([path = recorder.ring().path()](char order) {
    ::setenv("BEDPLATE_TRACE", path.c_str(), 1);
    if (order == 'r') trace::rank(3, 8);
    if (order == 's') trace::step();
  });
  recorder.begin(child_);
  now(recorder);
  EXPECT_EQ(recorder.status().ranks, 0);
  tell('r');
  tell('s');
  tell('s');
  now(recorder);
  EXPECT_EQ(recorder.status().ranks, 1);
  EXPECT_EQ(recorder.status().steps, 1);
  recorder.end();
  const RunData run = read_run(folder_.path());
  const auto found = of_pid(run, child_);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0]->role, "rank");
  EXPECT_EQ(found[0]->rank, 3);
  EXPECT_EQ(found[0]->world_size, 8);
  EXPECT_EQ(found[0]->hook, "active");
  ASSERT_THAT(run.steps, SizeIs(1));
  EXPECT_EQ(run.steps[0].rank, 3);
}

TEST_F(RecorderOfSpeakersTest, EventsThatCameTooFastAreCountedAsLost) {
  constexpr int kWritten = static_cast<int>(kTraceRecords) + 1'000;
  Recorder recorder(options_);
  start([path = recorder.ring().path()](char order) {
    ::setenv("BEDPLATE_TRACE", path.c_str(), 1);
    trace::rank(0, 1);
    for (int i = 0; i < (order == 'm' ? kWritten : 2); ++i) trace::step();
  });
  recorder.begin(child_);
  tell('m');
  now(recorder);
  tell('f');
  now(recorder);
  const CollectorStatus status = recorder.status();
  EXPECT_EQ(status.events + status.events_lost, kWritten + 2);
  EXPECT_GE(status.events_lost, 1'000);
  EXPECT_LT(status.events_lost, 1'100);
  recorder.end();
  const RunData run = read_run(folder_.path());
  EXPECT_EQ(run.meta.at("events"), std::to_string(status.events));
  EXPECT_EQ(run.meta.at("events_lost"), std::to_string(status.events_lost));
  EXPECT_EQ(run.events.at(child_).size(), static_cast<std::size_t>(status.events));
  EXPECT_EQ(recorder.status().steps, status.events - 1);
}

TEST_F(RecorderOfSpeakersTest, TheLiveLineSpeaksOfTheLastSecondsOnly) {
  Recorder recorder(options_);
  start([path = recorder.ring().path()](char) {
    ::setenv("BEDPLATE_TRACE", path.c_str(), 1);
    for (int i = 0; i < 5; ++i) trace::step();
  });
  recorder.begin(child_);
  tell('s');
  now(recorder);
  EXPECT_TRUE(recorder.status().step_time.has_value());
  clock_.advance(6 * kSecond);
  recorder.sample();
  EXPECT_FALSE(recorder.status().step_time.has_value());
  EXPECT_FALSE(recorder.status().input_share.has_value());
  EXPECT_EQ(recorder.status().steps, 4);
}

}  // namespace
}  // namespace bedplate::probe
