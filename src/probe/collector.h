// The recorder of one run: it samples the host, drains the job's trace, builds steps, and writes
// run.db.
//
//   Collector collector({.run_folder = folder, .samplers = all_samplers(), .job = &group});
//   environment["BEDPLATE_TRACE"] = collector.ring_path();  // before the job starts
//   collector.start(root_pid);             // as soon as the job's first process exists
//   collector.process_ended(pid, status);  // for each child that was waited for
//   collector.meta("exit_code", "0");
//   collector.stop(5 * kSecond);           // last samples; run.db closed
//   for (const auto& remark : collector.remarks()) …  // "the recording stopped after 12 s: …"
//
// Construction makes run.db and the ring and throws Error{kNoSpace | kIo | kPermission | kNotFound}
// when it cannot. From start() on nothing throws and nothing waits for the job: what fails ends the
// recording with a remark, and the job goes on.
//
// One thread of its own, "bedplate-record", runs from start() to stop(); it blocks every signal.
// All methods may be called from any thread; start() and stop() once each, and the destructor stops
// what was not stopped. A recorder that hangs in the kernel (a sampler's read of a dead device) is
// left behind when stop()'s time is over: `host`, `cgroups` and `job` must then live until the
// process ends.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "os/cgroup.h"
#include "os/host_root.h"
#include "probe/run_file.h"
#include "probe/sampler.h"

namespace bedplate::probe {

struct CollectorOptions {
  // Exists and is writable; run.db appears in it.
  std::filesystem::path run_folder;
  // What the job's PYTHONPATH begins with; empty: no hook was given.
  std::filesystem::path hook_folder;
  std::span<const SamplerPart* const> samplers;  // all_samplers(), or a test's own
  const os::HostRoot* host = nullptr;            // null: this machine
  const os::CgroupTree* cgroups = nullptr;       // null: as found on `host`
  const os::JobCgroup* job = nullptr;            // null: the job is its first process's family
  pid_t reaper = 0;  // the job's orphans become this process's children; 0: no such
  double hz = 2;     // samples a second, 0.1 … 20
  std::map<std::string, std::string> meta;     // keys of run_meta that the caller knows
  std::map<std::string, std::string> machine;  // beside the raw files: "host.json" → text
  RunLimits limits;
  const Clock* clock = nullptr;  // null: the machine's
};

// What a live line shows. Shares are 0…1.
struct CollectorStatus {
  Nanos elapsed = 0;
  int processes = 0;                   // of the job, now
  int ranks = 0;                       // of them, those that make steps
  std::int64_t steps = 0;              // of the rank with most
  std::optional<Nanos> step_time;      // median of the last 5 s; nullopt: no step ended in them
  std::optional<double> input_share;   // of those steps' time
  std::optional<double> cpu_pressure;  // PSI "some" of the last tick: the job's, else the host's
  std::optional<double> memory_pressure;
  std::optional<double> io_pressure;
  std::int64_t events = 0;
  std::int64_t events_lost = 0;
  bool recording = true;  // false: the writer failed, see remarks()
};

class Collector {
 public:
  explicit Collector(CollectorOptions options);
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;
  ~Collector();

  // The value of BEDPLATE_TRACE. The path leads through this process, so it opens while the
  // Collector lives.
  std::string ring_path() const;

  // CLOCK_MONOTONIC of run time 0.
  Nanos started() const;

  void start(pid_t root_pid);

  // A child of the caller ended: `wait_status` as waitpid() gave it.
  void process_ended(pid_t pid, int wait_status);

  void meta(std::string_view key, std::string_view value);
  void note(int pid, std::string_view key, std::string_view value);

  CollectorStatus status() const;

  // What a process is inside of right now, longest first: for "who is stuck".
  struct Inside {
    int pid;
    int rank;
    std::uint16_t kind;  // EventKind
    std::uint32_t arg;
    Nanos since;  // run time
  };
  std::vector<Inside> inside() const;

  // Takes the last samples, drains the ring and closes run.db, for at most `within`.
  void stop(Nanos within);

  // Sentences for the user, in the order they came up.
  std::vector<std::string> remarks() const;

 private:
  class Impl;
  std::shared_ptr<Impl>
      impl_;  // shared with the recorder's thread, which may outlive stop()'s patience
};

}  // namespace bedplate::probe
