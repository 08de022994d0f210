// run.db: one run on disk, an SQLite database in WAL mode, readable up to the last second whatever happens to its writer.
//
//   RunWriter writer(folder / "run.db");
//   const auto id = writer.series("proc/42", "cpu.user_ns", SeriesKind::kCounter, "/proc/42/stat");
//   writer.sample(id, t, value);       // an unchanged value costs nothing
//   writer.flush();                    // one transaction; a crash loses what came after it
//   const RunData run = read_run(folder);
//
// The file stays below RunLimits whatever the run's length: old samples are thinned (counters lose resolution, never sums),
// old steps are merged in pairs (weights keep the counts), the middle of the event list is dropped.
//
// Threads: a RunWriter belongs to one thread. Throws Error{kNoSpace | kIo | kPermission}: after that the writer is closed,
// what was flushed stays readable. read_run throws Error{kNotFound | kCorrupt | kUnsupported}, the last for a newer schema.
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
inline constexpr std::string_view kVersion = "version";           // of Bedplate
inline constexpr std::string_view kId = "id";                     // the run folder's name
inline constexpr std::string_view kCommand = "command";           // JSON array of arguments
inline constexpr std::string_view kFolder = "working_folder";
inline constexpr std::string_view kStartedUnixNs = "started_unix_ns";
inline constexpr std::string_view kStartedMonotonicNs = "started_monotonic_ns";
inline constexpr std::string_view kDurationNs = "duration_ns";    // absent while the run goes on and after a kill -9
inline constexpr std::string_view kExitCode = "exit_code";        // of the job: 128 + signal when killed
inline constexpr std::string_view kSignal = "signal";             // number, when killed
inline constexpr std::string_view kRootPid = "root_pid";
inline constexpr std::string_view kSampleHz = "sample_hz";
inline constexpr std::string_view kUserId = "uid";
inline constexpr std::string_view kOwnCpuNs = "own_cpu_ns";       // Bedplate's own cost
inline constexpr std::string_view kOwnMaxRssBytes = "own_max_rss_bytes";
inline constexpr std::string_view kEvents = "events";
inline constexpr std::string_view kEventsLost = "events_lost";
inline constexpr std::string_view kClockSteps = "wall_clock_steps_ns";  // JSON array of {t, by}
}  // namespace run_meta

struct RunLimits {
  std::int64_t samples = 2'000'000;         // rows over all series
  std::int64_t samples_per_series = 20'000;
  std::int64_t steps_per_process = 50'000;
  std::int64_t events_per_process = 200'000;
  std::int64_t notes = 20'000;
  std::int64_t processes = 20'000;          // short-lived ones beyond it are only counted (meta "processes_dropped")
};

class RunWriter {
 public:
  explicit RunWriter(const std::filesystem::path& database, RunLimits limits = {});
  RunWriter(RunWriter&&) noexcept;
  RunWriter& operator=(RunWriter&&) noexcept;
  ~RunWriter();  // closes without throwing; call close() to learn of errors

  void meta(std::string_view key, std::string_view value);
  void machine(std::string_view path, std::string_view text);
  void signal(const SignalState& state);    // by name; the last word wins
  void process(const Process& process);     // by (pid, start)
  void resource(const ResourceUse& use);    // by pid
  void step(const Step& step);
  void events(int pid, std::span<const Event> events);
  void note(const Note& note);

  using SeriesId = std::int64_t;
  SeriesId series(std::string_view subject, std::string_view metric, SeriesKind kind, std::string_view source);
  void sample(SeriesId id, Nanos t, std::int64_t value);
  void forget(std::string_view subject);    // its process ended: frees the writer's memory for its series

  void flush();
  void close();  // flushes, folds the WAL into the file

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// `run` is a run folder or a run.db.
RunData read_run(const std::filesystem::path& run);

}  // namespace bedplate::probe
