// Processor time of the job's own control group: every process of the job, those that have ended
// included.
#include "base/error.h"
#include "probe/internal/cgroup_usage.h"

namespace bedplate::probe {
namespace {

class CgroupCpu final : public Sampler {
 public:
  explicit CgroupCpu(const SampleContext& context) : usage_(context.host, own_cpu_group(context)) {}

  void sample(std::span<const JobProcess>, SampleSink& sink) override {
    const auto reading = usage_.read();
    if (!reading) return;
    const auto write = [&](std::string_view metric, std::optional<Nanos> value, Rising& counter) {
      if (value)
        sink.counter("cgroup/job", metric, counter.update(*value, Rising::Fall::kNoise),
                     usage_.source());
    };
    write("cpu.usage_ns", reading->usage, total_);
    write("cpu.user_ns", reading->user, user_);
    write("cpu.system_ns", reading->system, system_);
  }

 private:
  CgroupUsage usage_;
  Rising total_, user_, system_;
};

}  // namespace

extern const SamplerPart kCgroupCpu = {
    .name = "cgroup.cpu",
    .what = "processor time of the whole job",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<CgroupCpu>(context);
    },
};

}  // namespace bedplate::probe
