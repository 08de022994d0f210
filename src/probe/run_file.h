// run.db: one run on disk, an SQLite database in WAL mode, readable up to the last second whatever
// happens to its writer.
//
//   RunWriter writer(folder / "run.db");
//   const auto id = writer.series("proc/42", "cpu.user_ns", SeriesKind::kCounter, "/proc/42/stat");
//   writer.sample(id, t, value);       // an unchanged value costs nothing
//   writer.flush();                    // one transaction; a crash loses what came after it
//   const RunData run = read_run(folder);
//
// Samples, steps and events lie in blocks of up to 128 (internal/codec.h), what came since the last
// fold into blocks in rows of one flush. A run that was closed is one file in rollback mode,
// readable on read-only media; one whose writer was killed has its last seconds in run.db-wal,
// which belongs to it. Nothing is synced to the device before close(): an observer's fsync would
// disturb the very stalls that are observed, and a killed process loses no written page.
//
// The file stays below RunLimits whatever the run's length: old samples are thinned (counters lose
// resolution, never sums), old steps are merged in pairs (weights keep the counts), the middle of
// the event list is dropped.
//
// Threads: a RunWriter belongs to one thread. Throws Error{kNoSpace | kIo | kPermission}: after
// that the writer is closed, what was flushed stays readable. read_run throws Error{kNotFound |
// kCorrupt | kUnsupported}, the last for a newer schema.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "probe/run_data.h"

namespace bedplate::probe {

// Keys of RunData::meta. Numbers are decimal text.
namespace run_meta {
inline constexpr std::string_view kSchema = "schema";
inline constexpr std::string_view kVersion = "version";  // of Bedplate
inline constexpr std::string_view kId = "id";            // the run folder's name
inline constexpr std::string_view kCommand = "command";  // JSON array of arguments
inline constexpr std::string_view kFolder = "working_folder";
inline constexpr std::string_view kStartedUnixNs = "started_unix_ns";
inline constexpr std::string_view kStartedMonotonicNs = "started_monotonic_ns";
// Absent while the run goes on and after a kill -9.
inline constexpr std::string_view kDurationNs = "duration_ns";
inline constexpr std::string_view kExitCode = "exit_code";  // of the job: 128 + signal when killed
inline constexpr std::string_view kSignal = "signal";       // number, when killed
inline constexpr std::string_view kRootPid = "root_pid";
inline constexpr std::string_view kSampleHz = "sample_hz";
inline constexpr std::string_view kUserId = "uid";
inline constexpr std::string_view kOwnCpuNs = "own_cpu_ns";  // Bedplate's own cost
inline constexpr std::string_view kOwnMaxRssBytes = "own_max_rss_bytes";
inline constexpr std::string_view kEvents = "events";
inline constexpr std::string_view kEventsLost = "events_lost";
inline constexpr std::string_view kClockSteps = "wall_clock_steps_ns";  // JSON array of {t, by}
}  // namespace run_meta

// Together they keep run.db, with its write-ahead log, below 64 MiB, and the writer's memory below
// 8 MiB. Where a total would be passed, the longest series (and step and event lists) are thinned
// first; of ended processes, the series with the fewest samples go when there is no room for new
// ones (meta "series_dropped").
struct RunLimits {
  // Of pages in use; beyond it the three totals below shrink, whatever the values' size.
  std::int64_t bytes = 54 * kMiB;
  std::int64_t samples = 1'500'000;  // over all series, at about 7 bytes
  std::int64_t samples_per_series = 20'000;
  std::int64_t series = 30'000;  // with the step and event lists of each process
  std::int64_t steps = 120'000;  // over all processes, at 30 to 55 bytes
  std::int64_t steps_per_process = 50'000;
  std::int64_t events = 800'000;  // over all processes, at 12 to 16 bytes
  std::int64_t events_per_process = 200'000;
  // The last tenth is kept for "exception" and "exit"; the rest is counted: meta "notes_dropped".
  std::int64_t notes = 20'000;
  std::int64_t note_bytes = 3 * kMiB;
  // Short-lived ones beyond it are only counted: meta "processes_dropped".
  std::int64_t processes = 20'000;
  std::int64_t process_bytes = 4 * kMiB;  // of command lines; beyond it they are cut to 80 bytes
  std::int64_t machine_bytes = 2 * kMiB;
};

class RunWriter {
 public:
  explicit RunWriter(const std::filesystem::path& database, RunLimits limits = {});
  RunWriter(RunWriter&&) noexcept;
  RunWriter& operator=(RunWriter&&) noexcept;
  ~RunWriter();  // closes without throwing; call close() to learn of errors

  void meta(std::string_view key, std::string_view value);
  void machine(std::string_view path, std::string_view text);
  void signal(const SignalState& state);  // by name; the last word wins
  void process(const Process& process);   // by (pid, start)
  void resource(const ResourceUse& use);  // by pid
  void step(const Step& step);
  void events(int pid, std::span<const Event> events);
  void note(const Note& note);

  using SeriesId = std::int64_t;
  SeriesId series(std::string_view subject, std::string_view metric, SeriesKind kind,
                  std::string_view source);
  // Of a counter whose value did not change for a while, the last unchanged sample is kept too, so
  // that a change lies between the two samples around it. Samples that are not later than their
  // series' last one are ignored.
  void sample(SeriesId id, Nanos t, std::int64_t value);
  void forget(
      std::string_view subject);  // its process ended: frees the writer's memory for its series

  void flush();
  bool is_open() const;  // false after a failure and after close()
  void close();          // flushes, folds the WAL into the file

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// `run` is a run folder or a run.db.
RunData read_run(const std::filesystem::path& run);

}  // namespace bedplate::probe
