// What a rule says, and the report that is made of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "probe/run_data.h"

namespace bedplate::doctor {

// How sure a finding is. established: the discriminating signal itself was seen and the look-alikes
// are ruled out. supported: the evidence fits, one look-alike could not be ruled out. hypothesis:
// worth a look.
enum class Status : std::uint8_t { kHypothesis, kSupported, kEstablished };
std::string_view name(Status status);

struct Evidence {
  std::string source;  // a file, a hook event, a BPF program: where the figure was read
  std::string text;    // "39 of 44 periods throttled, 4.1 s lost"
};

struct RuledOut {
  std::string rule;
  std::string text;  // "nr_throttled stayed 0"
};

struct Scope {
  std::vector<int> ranks;  // empty: all
  std::vector<int> pids;
  std::string device;
  std::string path;
};

// A half-open interval of run time.
struct Interval {
  Nanos begin;
  Nanos end;
};

struct Finding {
  std::string rule;  // filled in by the engine
  Status status = Status::kHypothesis;
  std::string title;        // one line for this run; empty: the rule's own title
  double gain_ceiling = 0;  // share of step time that removing the cause can at most give back, 0…1
  std::vector<Interval> when;  // where its evidence holds, for pictures
  Scope scope;
  std::vector<Evidence> evidence;
  std::vector<RuledOut> ruled_out;
  std::string verify;                     // a command that shows the cause
  std::string fix;                        // what to change, concrete
  std::string undo;                       // how to take the fix back
  std::optional<std::string> because_of;  // set by the engine: the rule whose consequence this is
};

struct NotSeen {
  std::string rule;
  std::vector<std::string> missing;  // "host.psi: this kernel has no PSI"
};

struct RankSteps {
  int rank = -1;
  int pid = 0;
  std::int64_t count = 0;
  double median_ms = 0;
  double p99_ms = 0;
  std::map<std::string, double> phases;  // share of step time by phase name, all of them, sums to 1
};

struct StepSummary {
  std::int64_t count = 0;  // of the rank with most steps
  double median_ms = 0;    // without warm-up (first step) and evaluation
  double p99_ms = 0;
  std::map<std::string, double> phases;
  std::vector<RankSteps> ranks;
};

// What bedplate.data counted in one process over the run (docs/loading.md, docs/cache.md).
struct DataPlane {
  int rank = -1;
  int pid = 0;
  std::string url = {};           // of the first data set's first shards; without its query
  std::string cache = {};         // as Dataset(cache=) was given; empty: none
  std::int64_t window_bytes = 0;  // memory that a loader without a cache reads through; 0: none
  std::int64_t set_bytes = 0;     // of the data sets' shards; 0: not told
  std::int64_t set_samples = 0;

  std::int64_t batches = 0;
  std::int64_t samples = 0;
  std::int64_t bytes = 0;
  Nanos loop_wait = 0;   // the training loop for the loader
  Nanos make = 0;        // the loader's threads, together: making batches …
  Nanos store_wait = 0;  // … of that waiting for the store …
  Nanos decode = 0;      // … and on the processor: checking, copying, decoding
  Nanos idle = 0;        // and waiting for the loop

  // Of the cache, or of the window.
  bool counts_hits() const { return !cache.empty() || window_bytes > 0; }
  std::int64_t hits = 0;
  std::int64_t hit_bytes = 0;
  std::int64_t memory_bytes = 0;  // of hit_bytes
  std::int64_t misses = 0;        // blocks
  std::int64_t origin_bytes = 0;
  std::int64_t evictions = 0;
  std::int64_t pass_throughs = 0;
  std::int64_t waits = 0;    // for another's fetch
  std::string trouble = {};  // why the cache was passed by

  std::int64_t remote_reads = 0;
  Nanos remote_time = 0;  // sum of latencies
  Nanos remote_p99 = 0;
  std::int64_t remote_bytes = 0;
  std::int64_t remote_retries = 0;
  std::int64_t remote_failures = 0;
};

enum class Verdict : std::uint8_t { kHealthy, kUnknown, kFinding };

struct Report {
  std::string version;
  std::string run_id;
  std::vector<std::string> command;
  std::optional<int> exit_code;
  std::optional<int> signal;
  Nanos started_unix = 0;
  Nanos duration = 0;
  bool complete = true;              // false: the recording was cut short
  std::map<int, std::string> hooks;  // pid → "active" or why not
  double own_cpu_share = 0;
  std::int64_t own_max_rss_bytes = 0;
  std::int64_t events = 0;
  std::int64_t events_lost = 0;
  StepSummary steps;
  std::vector<DataPlane> data;  // of the processes that read by bedplate.data, by rank
  Verdict verdict = Verdict::kUnknown;
  std::string verdict_text;
  std::vector<Finding> findings;  // ranked: roots by ceiling, each followed by its consequences
  std::vector<std::string> not_fired;
  std::vector<NotSeen> not_seen;
  std::vector<std::string> remarks;           // "as root the report would also have …"
  std::vector<probe::ResourceUse> resources;  // of the ranks, or of the job's first process
  std::vector<std::string> resource_remarks;  // what those figures mean here, one line each
};

}  // namespace bedplate::doctor
