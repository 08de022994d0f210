// A sampler reads one kind of signal; it is one file in samplers/ that ends in a SamplerPart.
//
// A sampler is opened once a run. What it cannot see it says at opening, by an Error{kUnsupported |
// kPermission | kNotFound} whose text goes into the report ("could not see: …"); what vanishes
// later (a process ended) is skipped silently.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "os/cgroup.h"
#include "os/host_root.h"
#include "probe/run_data.h"

namespace bedplate::probe {

// One process of the job as the collector knows it at this tick.
struct JobProcess {
  int pid;
  Nanos start;    // run time
  bool appeared;  // first tick that sees it
};

// Where a sampler puts what it read. Series are made on first use.
class SampleSink {
 public:
  virtual ~SampleSink() = default;
  virtual Nanos now() const = 0;  // run time of this tick
  virtual void counter(std::string_view subject, std::string_view metric, std::int64_t value,
                       std::string_view source) = 0;
  virtual void gauge(std::string_view subject, std::string_view metric, std::int64_t value,
                     std::string_view source) = 0;
  virtual void note(int pid, std::string_view key, std::string_view value) = 0;
};

struct SampleContext {
  const os::HostRoot& host;
  const os::CgroupTree& cgroups;
  const os::JobCgroup* job = nullptr;  // null: the job has no group of its own
  int root_pid = 0;                    // the job's first process
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  // `processes`: the job's processes now. Called from one thread.
  virtual void sample(std::span<const JobProcess> processes, SampleSink& sink) = 0;
  // What limited the sampler so far, for SignalState::why of a seen signal: "not permitted for 2
  // processes of other users: …"; empty when nothing did. Asked for at the run's end at the latest.
  virtual std::string remark() const { return {}; }
};

struct SamplerPart {
  std::string_view name;  // the signal's name: rules list it under `needs`
  std::string_view what;  // "time in throttled periods of the CPU quota"
  int every;              // in ticks of the base rate (2 Hz): 1 = each, 2 = every second…
  std::unique_ptr<Sampler> (*open)(const SampleContext&);
};

std::span<const SamplerPart* const> all_samplers();

}  // namespace bedplate::probe
