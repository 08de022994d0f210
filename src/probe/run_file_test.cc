#include "probe/run_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <random>

#include "base/error.h"
#include "os/test_folder.h"
#include "probe/internal/codec.h"

namespace bedplate::probe {

static bool operator==(const Sample& a, const Sample& b) {
  return a.t == b.t && a.value == b.value;
}
[[maybe_unused]] static void PrintTo(const Sample& s, std::ostream* out) {
  *out << "(" << s.t << ", " << s.value << ")";
}
static bool operator==(const Event& a, const Event& b) {
  return a.start == b.start && a.duration == b.duration && a.kind == b.kind && a.tid == b.tid &&
         a.arg == b.arg;
}

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RunFileTest : public ::testing::Test {
 protected:
  std::filesystem::path database() const { return folder_.path() / "run.db"; }
  os::TestFolder folder_;
};

const Series* find(const RunData& run, std::string_view subject, std::string_view metric) {
  for (const Series& series : run.series) {
    if (series.subject == subject && series.metric == metric) return &series;
  }
  return nullptr;
}

Step make_step(int pid, std::int64_t index, Nanos start, Nanos duration, bool evaluation = false) {
  Step step{.pid = pid,
            .rank = 1,
            .index = index,
            .start = start,
            .duration = duration,
            .longest = duration};
  step.phases[0] = duration / 3;
  step.phases[2] = duration - duration / 3;
  step.evaluation = evaluation;
  return step;
}

TEST_F(RunFileTest, WhatIsWrittenIsRead) {
  {
    RunWriter writer(database());
    writer.meta(run_meta::kVersion, "0.1.0");
    writer.machine("host.json", "{}");
    writer.signal({"host.psi", false, "this kernel has no PSI"});
    writer.signal({"host.psi", true, ""});  // the last word wins
    Process process{.pid = 42,
                    .ppid = 1,
                    .start = -5,
                    .comm = "python",
                    .command = "python train.py",
                    .rank = 1};
    process.role = "rank";
    process.hook = "active";
    writer.process(process);
    process.end = 77;
    process.wait_status = 9;
    process.oom_killed = true;
    writer.process(process);
    writer.resource(
        {.pid = 42, .peak_rss_bytes = 1 << 20, .major_faults = 2, .user = 5, .system = 6});
    writer.step(make_step(42, 0, 10, 30));
    writer.step(make_step(42, 1, 40, 33, true));
    const Event events[] = {{50, 5, 4, 42, 0},
                            {20, 90, 9, 43, 0xFFFFFFFFFFFFFFFF},
                            {INT64_MIN, INT64_MAX, 65535, 0, 1}};
    writer.events(42, events);
    writer.note({42, 3, "loader", R"({"id": 1})"});
    writer.close();
  }
  const RunData run = read_run(folder_.path());
  EXPECT_EQ(run.meta.at("version"), "0.1.0");
  EXPECT_EQ(run.machine.at("host.json"), "{}");
  ASSERT_THAT(run.signals, SizeIs(1));
  EXPECT_TRUE(run.signals[0].seen);
  ASSERT_THAT(run.processes, SizeIs(1));
  EXPECT_EQ(run.processes[0].start, -5);
  EXPECT_EQ(run.processes[0].end, 77);
  EXPECT_EQ(run.processes[0].wait_status, 9);
  EXPECT_TRUE(run.processes[0].oom_killed);
  EXPECT_EQ(run.processes[0].role, "rank");
  ASSERT_THAT(run.resources, SizeIs(1));
  EXPECT_EQ(run.resources[0].system, 6);
  ASSERT_THAT(run.steps, SizeIs(2));
  EXPECT_EQ(run.steps[1].start, 40);
  EXPECT_EQ(run.steps[1].rank, 1);
  EXPECT_EQ(run.steps[1].longest, 33);
  EXPECT_EQ(run.steps[1].phases[2], 22);
  EXPECT_TRUE(run.steps[1].evaluation);
  EXPECT_THAT(run.events.at(42),
              ElementsAre(Event{INT64_MIN, INT64_MAX, 65535, 0, 1},
                          Event{20, 90, 9, 43, 0xFFFFFFFFFFFFFFFF}, Event{50, 5, 4, 42, 0}));
  ASSERT_THAT(run.notes, SizeIs(1));
  EXPECT_EQ(run.notes[0].value, R"({"id": 1})");
}

TEST_F(RunFileTest, UnchangedValuesAreNotStoredAgainAndChangesKeepTheirMoment) {
  RunWriter writer(database());
  const auto counter = writer.series("host", "vm.pgmajfault", SeriesKind::kCounter, "/proc/vmstat");
  const auto gauge = writer.series("host", "cpu.online", SeriesKind::kGauge, "/sys");
  for (Nanos t = 0; t < 10; ++t) {
    writer.sample(counter, t, t < 8 ? 5 : 6);
    writer.sample(gauge, t, t < 8 ? 2 : 1);
    if (t == 4) writer.flush();
  }
  writer.sample(counter, 3, 100);  // from the past
  writer.sample(0, 3, 100);        // a series that had no room
  writer.close();
  const RunData run = read_run(folder_.path());
  EXPECT_THAT(find(run, "host", "vm.pgmajfault")->samples,
              ElementsAre(Sample{0, 5}, Sample{7, 5}, Sample{8, 6}));
  EXPECT_THAT(find(run, "host", "cpu.online")->samples, ElementsAre(Sample{0, 2}, Sample{8, 1}));
  EXPECT_EQ(find(run, "host", "cpu.online")->source, "/sys");
}

TEST_F(RunFileTest, IsReadableWhileItIsWritten) {
  RunWriter writer(database());
  const auto id = writer.series("host", "m", SeriesKind::kGauge, "");
  for (Nanos t = 0; t < 1000; ++t) {
    writer.sample(id, t, t * 3);
    if (t % 2 != 0) continue;
    writer.flush();
    if (t % 50 == 0) {
      const RunData run = read_run(database());
      ASSERT_THAT(find(run, "host", "m")->samples, SizeIs(static_cast<std::size_t>(t + 1)));
      EXPECT_FALSE(run.meta.contains("duration_ns"));
    }
  }
}

TEST_F(RunFileTest, AKilledWriterLosesOnlyWhatWasNotFlushed) {
  const pid_t child = ::fork();
  if (child == 0) {
    RunWriter writer(database());
    const auto id = writer.series("host", "m", SeriesKind::kCounter, "");
    for (Nanos t = 0; t < 700; ++t) {
      writer.sample(id, t, t * t);
      writer.step(make_step(7, t, t * 10, 10));
      if (t % 7 == 6) writer.flush();
    }
    writer.sample(id, 9999, 99999);
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const RunData run = read_run(folder_.path());
  ASSERT_THAT(find(run, "host", "m")->samples, SizeIs(700));
  EXPECT_EQ(find(run, "host", "m")->samples.back(), (Sample{699, 699 * 699}));
  EXPECT_THAT(run.steps, SizeIs(700));
}

TEST_F(RunFileTest, APidThatIsUsedAgainContinuesItsCounters) {
  RunWriter writer(database());
  for (int life = 0; life < 3; ++life) {
    const auto id = writer.series("proc/5", "cpu.user_ns", SeriesKind::kCounter, "/proc/5/stat");
    writer.sample(id, life * 10 + 1, 1);
    writer.sample(id, life * 10 + 2, 8);
    writer.step(make_step(5, life, life * 10, 2));
    writer.forget("proc/5");
  }
  writer.close();
  const RunData run = read_run(folder_.path());
  ASSERT_THAT(run.series, SizeIs(1));
  EXPECT_THAT(run.series[0].samples, ElementsAre(Sample{1, 1}, Sample{2, 8}, Sample{11, 9},
                                                 Sample{12, 16}, Sample{21, 17}, Sample{22, 24}));
  EXPECT_THAT(run.steps, SizeIs(3));
}

TEST_F(RunFileTest, TextFromTheJobIsStoredAsUtf8AndCut) {
  {
    RunWriter writer(database());
    writer.process({.pid = 1, .comm = "a\xff\x1b[2J", .command = std::string(10'000, 'x')});
    writer.note({1, 0, "open_path", "caf\xe9"});
    writer.note({1, 0, "exception", std::string(20'000, 'e') + "\xe2\x82"});
    writer.series("proc/\xfe", "m", SeriesKind::kGauge, std::string("a\0b", 3));
    writer.close();
  }
  const RunData run = read_run(folder_.path());
  EXPECT_EQ(run.processes[0].comm, "a\xEF\xBF\xBD\xEF\xBF\xBD[2J");
  EXPECT_THAT(run.processes[0].command, SizeIs(4096));
  EXPECT_EQ(run.notes[0].value, "caf\xEF\xBF\xBD");
  EXPECT_THAT(run.notes[1].value, SizeIs(16 * 1024));
}

TEST_F(RunFileTest, NeverOverwritesAnotherRun) {
  { RunWriter writer(database()); }
  try {
    RunWriter writer(database());
    FAIL() << "the second writer opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kExists);
    EXPECT_THAT(error.what(), HasSubstr("exists already"));
  }
  EXPECT_NO_THROW(read_run(database()));
}

TEST_F(RunFileTest, AFolderThatIsNotThereIsSaidSo) {
  try {
    RunWriter writer(folder_.path() / "none" / "run.db");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_THAT(error.what(), HasSubstr("none/run.db"));
  }
}

TEST_F(RunFileTest, AFullDiskEndsTheRecordingAndLeavesWhatWasFlushed) {
  // A limit on the file size stands for the full disk: the kernel refuses the same write calls.
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{256 * 1024, 256 * 1024};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::mt19937_64 random(1);
    std::int64_t flushed = 0;
    try {
      RunWriter writer(database());
      const auto id = writer.series("host", "m", SeriesKind::kGauge, "");
      for (Nanos t = 1;; ++t) {
        for (int i = 0; i < 50; ++i)
          writer.sample(id, t * 100 + i, static_cast<std::int64_t>(random()));
        writer.meta("flushed", fmt::to_string(t));
        writer.flush();
        flushed = t;
        if (t > 10'000) ::_exit(3);
      }
    } catch (const Error& error) {
      std::ofstream(folder_.path() / "error") << name(error.code()) << "\n"
                                              << error.what() << "\n"
                                              << flushed;
      ::_exit(error.code() == Code::kNoSpace ? 0 : 1);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  std::string code, what;
  std::int64_t flushed = 0;
  std::ifstream error(folder_.path() / "error");
  std::getline(error, code);
  std::getline(error, what);
  error >> flushed;
  EXPECT_EQ(status, 0) << code << ": " << what;
  EXPECT_THAT(what, HasSubstr("no space left"));
  ASSERT_GT(flushed, 10);
  const RunData run = read_run(folder_.path());
  EXPECT_EQ(run.meta.at("flushed"), fmt::to_string(flushed));
  EXPECT_THAT(find(run, "host", "m")->samples, SizeIs(static_cast<std::size_t>(flushed * 50)));
}

TEST_F(RunFileTest, AfterAFailureTheWriterSaysWhyEveryTime) {
  RunWriter writer(database());
  writer.close();
  for (int i = 0; i < 2; ++i) {
    try {
      writer.meta("a", "b");
      FAIL();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("closed"));
    }
  }
}

TEST(Codec, EveryValueSurvivesTheRoundTrip) {
  std::mt19937_64 random(std::random_device{}());
  const auto seed = random();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  random.seed(seed);
  const auto any = [&] {
    return static_cast<std::int64_t>(random() >> (random() % 64)) * ((random() & 1) ? 1 : -1);
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<Sample> samples(random() % 200);
    std::vector<Event> events(random() % 200);
    for (auto& s : samples) s = {any(), any()};
    for (auto& e : events) {
      e = {any(), any(), static_cast<std::uint16_t>(random()), static_cast<std::uint32_t>(random()),
           static_cast<std::uint64_t>(any())};
    }
    std::string bytes;
    encode(std::span<const Sample>(samples), bytes);
    std::vector<Sample> samples_back;
    ASSERT_TRUE(decode(bytes, samples_back));
    ASSERT_EQ(samples, samples_back);
    bytes.clear();
    encode(std::span<const Event>(events), bytes);
    std::vector<Event> events_back;
    ASSERT_TRUE(decode(bytes, events_back));
    ASSERT_EQ(events, events_back);
  }
}

TEST(Codec, AnyBytesAreDecodedOrRefused) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 100, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    std::vector<Sample> samples;
    std::vector<Step> steps;
    std::vector<Event> events;
    std::vector<StreamSample> mixed;
    decode(bytes, samples);
    decode(bytes, steps);
    decode(bytes, events);
    decode(bytes, mixed);
    EXPECT_LE(samples.size() * 2, bytes.size());
    EXPECT_LE(steps.size() * 13, bytes.size());
    EXPECT_LE(events.size() * 6, bytes.size());
    EXPECT_LE(mixed.size() * 3, bytes.size());
  }
}

}  // namespace
}  // namespace bedplate::probe
