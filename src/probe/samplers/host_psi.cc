// Pressure of the whole machine, from /proc/pressure.
#include "base/error.h"
#include "probe/internal/pressure.h"

namespace bedplate::probe {
namespace {

class HostPsi final : public Sampler {
 public:
  explicit HostPsi(const SampleContext& context)
      : files_(context.host, "host",
               {"/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io"}) {
    if (files_.any()) return;
    if (context.host.exists("/proc/pressure/cpu")) {
      throw Error(Code::kUnsupported,
                  "PSI is switched off on this machine: boot the kernel with psi=1");
    }
    throw Error(Code::kUnsupported, "this kernel has no PSI (CONFIG_PSI, Linux 4.20 and newer)");
  }

  void sample(std::span<const JobProcess>, SampleSink& sink) override { files_.sample(sink); }

 private:
  PressureFiles files_;
};

}  // namespace

extern const SamplerPart kHostPsi = {
    .name = "host.psi",
    .what =
        "how long tasks of the machine waited for processors, memory and IO (pressure stall "
        "information)",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<HostPsi>(context);
    },
};

}  // namespace bedplate::probe
