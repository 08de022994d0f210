// Pressure of the job's own v2 group: how long the job's tasks, not the machine's, waited.
#include "base/error.h"
#include "probe/internal/job_groups.h"
#include "probe/internal/pressure.h"

namespace bedplate::probe {
namespace {

class CgroupPsi final : public Sampler {
 public:
  CgroupPsi(const os::HostRoot& host, const os::Cgroup& group)
      : files_(host, "cgroup/job",
               {group.file("cpu.pressure"), group.file("memory.pressure"),
                group.file("io.pressure")}) {
    if (!files_.any()) {
      throw Error(
          Code::kUnsupported,
          "control groups have no pressure files here (CONFIG_PSI, Linux 4.20 and newer; psi=1)");
    }
  }

  void sample(std::span<const JobProcess>, SampleSink& sink) override { files_.sample(sink); }

 private:
  PressureFiles files_;
};

}  // namespace

extern const SamplerPart kCgroupPsi = {
    .name = "cgroup.psi",
    .what =
        "how long the job's tasks waited for processors, memory and IO (pressure stall "
        "information)",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<CgroupPsi>(context.host, own_group(context, ""));
    },
};

}  // namespace bedplate::probe
