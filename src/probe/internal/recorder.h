// What the collector does in one tick, without threads: so that it can be tested by calling it.
//
// Drains the ring into steps, events and notes; finds the job's processes; runs the samplers that
// are due; writes it all. Throws what RunWriter throws; after that it is to be called no more.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "probe/collector.h"
#include "probe/internal/job_processes.h"
#include "probe/internal/oom_watch.h"
#include "probe/internal/sample_writer.h"
#include "probe/run_file.h"
#include "probe/step_builder.h"
#include "probe/trace_ring.h"

namespace bedplate::probe {

class Recorder final : private TraceVisitor {
 public:
  // `options.host`, `cgroups` and `clock` are set.
  explicit Recorder(const CollectorOptions& options);
  ~Recorder() override;

  const TraceRing& ring() const { return ring_; }
  Nanos started() const { return started_; }

  void begin(int root_pid);  // opens the samplers
  void drain();              // the ring only
  void sample();             // one tick of everything
  void end();                // the last tick, own cost, closes the file

  void process_ended(int pid, int wait_status);
  void meta(std::string_view key, std::string_view value) { writer_.meta(key, value); }
  void note(int pid, std::string_view key, std::string_view value);
  const CollectorStatus& status() const { return status_; }
  std::vector<Collector::Inside> inside() const;

 private:
  struct Open {
    const SamplerPart* part;
    std::unique_ptr<Sampler> sampler;
    int offset;  // spreads samplers that are not due each tick
  };
  struct Source {  // one process that speaks through the ring
    explicit Source(int pid) : builder(pid) {}
    StepBuilder builder;
    TraceOwner owner;
    bool written = false;  // its process row says that the hook is active
    bool gone = false;     // it closed its slot, or is dead
  };
  struct Recent {
    Nanos end;
    Nanos duration;
    Nanos input;
  };

  void events(const TraceOwner& owner, std::span<const Event> events) override;
  void text(const TraceOwner& owner, std::string_view key, std::string_view value) override;
  void gone(const TraceOwner& owner) override;

  Nanos run_time() const;
  Source& source_of(const TraceOwner& owner);
  void write_steps(Source& source);
  void write_totals(int pid, const Source& source);
  void finish(int pid);
  void open_samplers();
  void run_samplers();
  void run_sampler(Open& open);
  void write_own_cost();

  // recorder_processes.cc
  void write_processes();
  void mark_hooks();
  void complete(Process& process, const Source& source) const;
  void write_ended(Process process);
  void write_late_ends();
  void watch_memory();
  void watch_clock();
  void update_status();
  void write_peak_memory(int pid);

  const CollectorOptions options_;
  const os::HostRoot& host_;
  const Clock& clock_;
  RunWriter writer_;
  TraceRing ring_;
  SampleWriter sink_;
  const Nanos started_;
  std::unique_ptr<JobProcesses> processes_;
  int root_pid_ = 0;
  std::vector<Open> open_;
  std::map<int, Source> sources_;
  std::map<int, int> wait_statuses_;   // of processes not yet seen gone
  std::map<int, Process> unwaited_;    // seen gone, without a wait status so far
  std::map<int, int> asked_for_hook_;  // how often
  OomWatch oom_;
  bool hook_seen_ = false;
  std::int64_t tick_ = 0;
  Nanos wall_offset_ = 0;
  std::string clock_steps_;
  std::deque<Recent> recent_;
  std::int64_t most_steps_ = 0;  // of the processes that are gone
  std::map<std::string, std::pair<Nanos, std::int64_t>> pressure_;
  CollectorStatus status_;
};

}  // namespace bedplate::probe
