// Processor time, faults, threads, memory and state of each process of the job, from
// /proc/PID/stat. Times are those of the whole process, threads that have ended included.
#include <string>

#include "base/error.h"
#include "probe/internal/per_process.h"
#include "probe/internal/proc_stat.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

class ProcCpu final : public Sampler {
 public:
  explicit ProcCpu(const SampleContext& context) : host_(context.host) {
    if (!host_.exists("/proc/stat")) throw Error(Code::kUnsupported, "/proc is not mounted");
  }

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    table_.visit(processes,
                 [&](const JobProcess& process, const std::string& subject, State& state) {
                   if (state.path.empty()) state.path = fmt::format("/proc/{}/stat", process.pid);
                   const auto text = state.file.read(host_, state.path, table_.few(), buffer_);
                   const auto stat = text ? parse_proc_stat(*text) : std::nullopt;
                   if (stat) write(*stat, subject, state, sink);
                 });
  }

 private:
  struct State {
    std::string path;
    ProcessFile file;
    Rising user, system, minor_faults, major_faults, io_delay;
  };

  static void write(const ProcStat& stat, const std::string& subject, State& state,
                    SampleSink& sink) {
    const auto counter = [&](std::string_view metric, std::optional<std::int64_t> raw,
                             Rising& rising) {
      if (raw) sink.counter(subject, metric, rising.update(*raw, Rising::Fall::kNoise), state.path);
    };
    const auto gauge = [&](std::string_view metric, std::optional<std::int64_t> value) {
      if (value) sink.gauge(subject, metric, *value, state.path);
    };
    counter("cpu.user_ns", times(stat.user_ticks, clock_tick()), state.user);
    counter("cpu.system_ns", times(stat.system_ticks, clock_tick()), state.system);
    counter("minor_faults", stat.minor_faults, state.minor_faults);
    counter("major_faults", stat.major_faults, state.major_faults);
    // Delay accounting is off on most machines, and then says 0 for what it does not know.
    if (stat.io_delay_ticks.value_or(0) > 0) {
      counter("io_delay_ns", times(stat.io_delay_ticks, clock_tick()), state.io_delay);
    }
    gauge("threads", stat.threads);
    gauge("rss_bytes", times(stat.resident_pages, page_size()));
    gauge("state", stat.state);
  }

  const os::HostRoot& host_;
  PerProcess<State> table_;
  std::string buffer_;
};

}  // namespace

extern const SamplerPart kProcCpu = {
    .name = "proc.cpu",
    .what = "processor time, page faults, threads, memory and state of each process",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<ProcCpu>(context);
    },
};

}  // namespace bedplate::probe
