// What is known of one run: the contents of its run.db, as plain data.
//
// Times are nanoseconds since the run's start, by CLOCK_MONOTONIC. Absence is kept apart from zero:
// a series exists only when its signal could be read, and `signals` says for every signal whether
// it was seen and, if not, why.
//
// Subjects name what a series speaks of:
//   host           the machine                     cpu/3          one processor
//   disk/vda       one block device                net/eth0       one network interface gpu/0
//   cgroup/job     the job's own group             cgroup/cpu     the ancestor with the tightest
//   CPU quota cgroup/memory  the ancestor with the tightest memory limit   cgroup/io  the ancestor
//   with an io limit proc/4242      one process of the job          thread/4242/4250  one thread of
//   it
// Metrics are listed, with their meaning and unit, in src/probe/README.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "probe/phase.h"

namespace bedplate::probe {

constexpr int kRunSchema = 1;

enum class SeriesKind : std::uint8_t {
  kCounter,
  kGauge
};  // a counter only grows; a gauge is a level

struct Sample {
  Nanos t;
  std::int64_t value;
};

struct Series {
  std::string subject;
  std::string metric;
  SeriesKind kind = SeriesKind::kCounter;
  std::string source;           // the file that was read: "/sys/fs/cgroup/cpu/job/cpu.stat"
  std::vector<Sample> samples;  // ascending t; a value holds until the next sample (what did not
                                // change is not stored again)
};

struct SignalState {
  std::string name;  // the sampler's: "cgroup.cpu", "host.psi", "bpf.block", "hook"
  bool seen = false;
  std::string why;  // when not seen: "not permitted: …", "this kernel has no PSI"; when seen: what
                    // was used, if it matters
};

struct Process {
  int pid = 0;
  int ppid = 0;
  Nanos start = 0;           // negative when it began before the run
  std::optional<Nanos> end;  // first time it was seen gone
  std::string comm;
  std::string
      command;  // arguments joined as a shell would take them, at most 4 KiB, secrets masked
  std::string executable;
  int rank = -1;  // -1: not a rank
  int local_rank = -1;
  int world_size = 0;
  std::string role;  // "rank", "worker" (a DataLoader's), "launcher", "python", "other"
  std::string hook;  // "active", "" (not Python), or why there is no hook
  std::optional<int> wait_status;  // as of waitpid(), where it could be had
  bool oom_killed = false;
};

struct Step {
  int pid = 0;
  int rank = -1;
  std::int64_t index = 0;
  Nanos start = 0;
  Nanos duration = 0;       // of all merged steps together
  std::int64_t weight = 1;  // how many steps this row stands for; > 1 after thinning
  Nanos longest = 0;        // the longest of the merged steps
  PhaseTimes phases{};      // sums to `duration`
  bool evaluation = false;  // holds a loop without gradients: not counted in medians
};

// Kinds are those of the trace format (probe/trace_format.h).
struct Event {
  Nanos start = 0;
  Nanos duration = 0;
  std::uint16_t kind = 0;
  std::uint32_t tid = 0;
  std::uint64_t arg = 0;
};

struct Note {
  int pid = 0;
  Nanos t = 0;
  std::string key;  // "torch", "loader", "exception", "hook_off", "open_path", "ckpt_path", …; see
                    // docs of the hook
  std::string value;
};

// getrusage() of one process as last seen, in the words of /usr/bin/time -v.
struct ResourceUse {
  int pid = 0;
  std::int64_t peak_rss_bytes = 0;
  std::int64_t major_faults = 0;
  std::int64_t minor_faults = 0;
  std::int64_t voluntary_switches = 0;
  std::int64_t involuntary_switches = 0;
  std::int64_t read_bytes = 0;  // from storage
  std::int64_t write_bytes = 0;
  Nanos user = 0;
  Nanos system = 0;
};

struct RunData {
  std::map<std::string, std::string> meta;     // see RunMeta keys in probe/run_file.h
  std::map<std::string, std::string> machine;  // path → text: "host.json" and raw files
  std::vector<SignalState> signals;
  std::vector<Process> processes;
  std::vector<ResourceUse> resources;
  std::vector<Series> series;  // sorted by (subject, metric)
  std::vector<Step> steps;     // sorted by (pid, index)
  std::map<int, std::vector<Event>>
      events;  // by pid, ascending start; the middle of a long run is thinned away
  std::vector<Note> notes;
};

}  // namespace bedplate::probe
