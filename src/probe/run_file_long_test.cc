// A day of training by a virtual clock: whatever the run's length, the file and the writer's memory
// stay bounded.
#include <gmock/gmock.h>
#include <malloc.h>

#include <algorithm>
#include <map>

#include "base/clock.h"
#include "os/test_folder.h"
#include "probe/run_file.h"

namespace bedplate::probe {
namespace {

namespace fs = std::filesystem;
using ::testing::SizeIs;

constexpr std::int64_t kMostFileBytes = 64 * kMiB;  // run.db with its log
constexpr std::int64_t kMostWriterBytes = 8 * kMiB;

std::int64_t heap_in_use() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

std::int64_t size_with_log(const fs::path& database) {
  std::error_code error;
  const auto log = fs::file_size(database.string() + "-wal", error);
  return static_cast<std::int64_t>(fs::file_size(database) + (error ? 0 : log));
}

const Series* find(const RunData& run, std::string_view subject, std::string_view metric) {
  for (const Series& series : run.series) {
    if (series.subject == subject && series.metric == metric) return &series;
  }
  return nullptr;
}

// A small multiplicative generator: the numbers must look busy, not be random.
class Noise {
 public:
  std::int64_t operator()(std::int64_t below) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>((state_ >> 33) % static_cast<std::uint64_t>(below));
  }

 private:
  std::uint64_t state_ = 1;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kHours = 4;  // the sanitizers' own slowness
#else
constexpr std::int64_t kHours = 24;
#endif

// 2 ranks with 4 workers each at 2 Hz for 24 h, 5 steps a second and rank, 12 events a step and 5
// batches a second and worker.
TEST(RunFileLong, ADayStaysBelow64MiBAndTotalsAreExact) {
  const os::TestFolder folder;
  const fs::path database = folder.path() / "run.db";
  constexpr int kProcesses = 10, kCounters = 14, kGauges = 4, kHostCounters = 60;
  struct Tracked {
    RunWriter::SeriesId id;
    std::int64_t value;
  };
  VirtualClock clock;
  Noise noise;
  const std::int64_t heap_before = heap_in_use();
  std::int64_t heap_most = 0, size_most = 0;
  std::vector<Tracked> counters, gauges;
  std::int64_t steps_written = 0;
  Nanos steps_time = 0, longest = 0;
  {
    RunWriter writer(database);
    for (int p = 0; p < kProcesses; ++p) {
      for (int m = 0; m < kCounters; ++m) {
        counters.push_back(
            {writer.series(fmt::format("proc/{}", 1000 + p), fmt::format("counter.{}", m),
                           SeriesKind::kCounter, fmt::format("/proc/{}/stat", 1000 + p)),
             0});
      }
      for (int m = 0; m < kGauges; ++m) {
        gauges.push_back(
            {writer.series(fmt::format("proc/{}", 1000 + p), fmt::format("gauge.{}", m),
                           SeriesKind::kGauge, fmt::format("/proc/{}/status", 1000 + p)),
             0});
      }
    }
    for (int m = 0; m < kHostCounters; ++m) {
      counters.push_back({writer.series("host", fmt::format("counter.{}", m), SeriesKind::kCounter,
                                        "/proc/vmstat"),
                          0});
    }
    std::vector<Event> events;
    for (std::int64_t tick = 0; tick < kHours * 2 * 3600; ++tick) {
      clock.advance(kSecond / 2);
      const Nanos t = clock.now() + noise(kMillisecond);
      for (auto& [id, value] : counters) writer.sample(id, t, value += noise(5'000'000));
      for (auto& [id, value] : gauges) writer.sample(id, t, value = noise(1 << 30));
      for (int rank = 0; rank < 2; ++rank) {
        events.clear();
        for (int s = 0; s < 2 + (tick & 1); ++s) {
          Step step{.pid = 1000 + rank * 5,
                    .rank = rank,
                    .index = steps_written,
                    .start = t + s * 200 * kMillisecond};
          for (Nanos& phase : step.phases) step.duration += phase = noise(40 * kMillisecond);
          step.longest = step.duration;
          if (rank == 0) {
            longest = std::max(longest, step.duration);
            steps_time += step.duration;
            ++steps_written;
          }
          writer.step(step);
          for (int e = 0; e < 12; ++e) {
            events.push_back({step.start + e * 10 * kMillisecond, noise(10 * kMillisecond),
                              static_cast<std::uint16_t>(1 + e), 1000,
                              static_cast<std::uint64_t>(noise(1 << 20))});
          }
        }
        writer.events(1000 + rank * 5, events);
        for (int worker = 1; worker <= 4; ++worker) {
          events.clear();
          for (int f = 0; f < 2; ++f) {
            events.push_back({t + f * 200 * kMillisecond, noise(200 * kMillisecond), 9, 1001,
                              static_cast<std::uint64_t>(noise(200'000)) |
                                  static_cast<std::uint64_t>(noise(9'000)) << 32});
          }
          writer.events(1000 + rank * 5 + worker, events);
        }
      }
      if (tick % 2 == 1) writer.flush();
      if (tick % 4096 == 1) {
        size_most = std::max(size_most, size_with_log(database));
        heap_most = std::max(heap_most, heap_in_use() - heap_before);
      }
    }
    size_most = std::max(size_most, size_with_log(database));
    writer.close();
  }
  std::printf("largest size %.1f MiB, writer's heap at most %.2f MiB\n", size_most / 1048576.0,
              heap_most / 1048576.0);
  EXPECT_LE(size_most, kMostFileBytes);
  EXPECT_LE(static_cast<std::int64_t>(fs::file_size(database)), kMostFileBytes);
  EXPECT_LE(heap_most, kMostWriterBytes);

  const RunData run = read_run(folder.path());
  const RunLimits limits;
  std::int64_t samples = 0, events = 0;
  for (const Series& series : run.series) {
    samples += static_cast<std::int64_t>(series.samples.size());
    EXPECT_GT(series.samples.size(), 1000u) << series.subject << " " << series.metric;
  }
  EXPECT_LE(samples, limits.samples);
  for (int m = 0; m < kHostCounters; ++m) {
    const Series* const series = find(run, "host", fmt::format("counter.{}", m));
    EXPECT_EQ(series->samples.back().value,
              counters[static_cast<std::size_t>(kProcesses * kCounters + m)].value);
    EXPECT_LT(series->samples.front().t, kSecond);
    // No hole anywhere: the older part has an even spacing.
    Nanos gap = 0;
    for (std::size_t i = 1; i < series->samples.size(); ++i) {
      gap = std::max(gap, series->samples[i].t - series->samples[i - 1].t);
    }
    EXPECT_LT(gap, 120 * kSecond);
  }
  std::int64_t weight = 0;
  Nanos time = 0, seen_longest = 0;
  std::size_t rows = 0;
  for (const Step& step : run.steps) {
    Nanos sum = 0;
    for (const Nanos phase : step.phases) sum += phase;
    ASSERT_EQ(sum, step.duration);
    if (step.pid != 1000) continue;
    ++rows;
    weight += step.weight;
    time += step.duration;
    seen_longest = std::max(seen_longest, step.longest);
  }
  EXPECT_EQ(weight, steps_written);
  EXPECT_EQ(time, steps_time);
  EXPECT_EQ(seen_longest, longest);
  EXPECT_LE(rows, static_cast<std::size_t>(limits.steps_per_process));
  EXPECT_GT(rows, 10'000u);
  for (const auto& [pid, list] : run.events) {
    events += static_cast<std::int64_t>(list.size());
    EXPECT_LE(static_cast<std::int64_t>(list.size()), limits.events_per_process);
    EXPECT_LT(list.front().start, kSecond);
    EXPECT_GT(list.back().start, clock.now() - kSecond);
    // The first fifth is from the beginning, the rest from the end.
    EXPECT_LT(list[list.size() / 8].start, clock.now() / 3);
    if (kHours == 24) {
      EXPECT_GT(list[list.size() / 4].start, clock.now() / 2);
    }
  }
  EXPECT_LE(events, limits.events);
}

TEST(RunFileLong, ValuesOfUnusualSizeDoNotPassTheByteLimit) {
  const os::TestFolder folder;
  const fs::path database = folder.path() / "run.db";
  RunLimits limits;
  limits.bytes = 4 * kMiB;
  {
    RunWriter writer(database, limits);
    std::vector<RunWriter::SeriesId> ids;
    for (int m = 0; m < 50; ++m)
      ids.push_back(writer.series("host", fmt::to_string(m), SeriesKind::kGauge, ""));
    Noise noise;
    for (std::int64_t t = 1; t < 40'000; ++t) {
      for (const auto id : ids)
        writer.sample(id, t * kSecond + noise(kSecond), noise(INT64_MAX) * (t % 2 == 0 ? 1 : -1));
      const Event event{noise(INT64_MAX), noise(INT64_MAX), 3, 1,
                        static_cast<std::uint64_t>(noise(INT64_MAX))};
      writer.events(5, std::span(&event, 1));
      if (t % 4 == 0) writer.flush();
    }
    writer.close();
  }
  EXPECT_LE(static_cast<std::int64_t>(fs::file_size(database)), limits.bytes * 3 / 2);
  const RunData run = read_run(folder.path());
  ASSERT_THAT(run.series, SizeIs(50));
  EXPECT_EQ(run.series[0].samples.front().t / kSecond, 1);
  EXPECT_EQ(run.series[0].samples.back().t / kSecond, 39'999);
  EXPECT_GT(run.series[0].samples.size(), 1'000u);
}

TEST(RunFileLong, TenThousandShortLivedProcessesLeaveTheLongLivedWhole) {
  const os::TestFolder folder;
  const fs::path database = folder.path() / "run.db";
  const std::int64_t heap_before = heap_in_use();
  std::int64_t heap_most = 0;
  {
    RunWriter writer(database);
    Process rank{.pid = 7, .start = 1, .comm = "python", .command = "python train.py"};
    rank.role = "rank";
    const auto lasting =
        writer.series("proc/7", "cpu.user_ns", SeriesKind::kCounter, "/proc/7/stat");
    for (int i = 0; i < 30'000; ++i) {
      const int pid = 100 + i % 20'000;
      Process child{.pid = pid,
                    .ppid = 7,
                    .start = i,
                    .comm = "sh",
                    .command = "sh -c " + std::string(300, 'x')};
      writer.process(child);
      const std::string subject = fmt::format("proc/{}", pid);
      for (int m = 0; m < 20; ++m) {
        const auto id = writer.series(subject, fmt::format("metric.{}", m), SeriesKind::kCounter,
                                      "/proc/" + subject);
        writer.sample(id, i * 10, 5);
        writer.sample(id, i * 10 + 1, 6 + m);
      }
      const Event event{i * 10, 1, 8, 1, 0};
      writer.events(pid, std::span(&event, 1));
      writer.note({pid, i, "argv", std::string(500, 'a')});
      writer.sample(lasting, i * 10, i);
      child.end = i * 10 + 5;
      writer.process(child);
      writer.resource({.pid = pid});
      writer.forget(subject);
      if (i % 50 == 0) writer.flush();
      if (i % 1000 == 0) heap_most = std::max(heap_most, heap_in_use() - heap_before);
    }
    writer.process(rank);  // late, but a rank finds room
    writer.note({7, 30'000, "exception", "KeyError"});
    writer.close();
  }
  std::printf("size %.1f MiB, writer's heap at most %.2f MiB\n",
              static_cast<double>(fs::file_size(database)) / 1048576.0, heap_most / 1048576.0);
  EXPECT_LE(static_cast<std::int64_t>(fs::file_size(database)), kMostFileBytes);
  EXPECT_LE(heap_most, kMostWriterBytes);
  const RunData run = read_run(folder.path());
  const RunLimits limits;
  EXPECT_LE(static_cast<std::int64_t>(run.processes.size()), limits.processes);
  EXPECT_EQ(run.processes.size() - 1 + std::stoul(run.meta.at("processes_dropped")), 30'000u);
  EXPECT_EQ(run.processes.front().comm, "sh");
  EXPECT_EQ(std::count_if(run.processes.begin(), run.processes.end(),
                          [](auto& p) { return p.role == "rank"; }),
            1);
  EXPECT_EQ(run.notes.back().value, "KeyError");
  EXPECT_GT(std::stoul(run.meta.at("notes_dropped")), 0u);
  EXPECT_GT(std::stoul(run.meta.at("series_dropped")), 0u);
  const Series* const lasting = find(run, "proc/7", "cpu.user_ns");
  ASSERT_NE(lasting, nullptr);
  EXPECT_EQ(lasting->samples.front().value, 0);
  EXPECT_EQ(lasting->samples.back().value, 29'999);
  EXPECT_GT(lasting->samples.size(), 1'000u);
}

}  // namespace
}  // namespace bedplate::probe
