// How long the kernel made the job's writers sleep because too much of the page cache was dirty.
#include <ctime>

#include "probe/bpf/shared.h"
#include "probe/internal/bpf_signal.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

// The kernel's own tick (CONFIG_HZ), of which a jiffy is one: the grain of its coarse clocks.
Nanos jiffy() {
  timespec grain{};
  ::clock_getres(CLOCK_MONOTONIC_COARSE, &grain);
  return grain.tv_sec * kSecond + grain.tv_nsec;
}

class BpfDirty final : public Sampler {
 public:
  explicit BpfDirty(const SampleContext& context) : bpf_(context, "dirty"), jiffy_(jiffy()) {}

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    bpf_.follow(processes);
    const auto sums = bpf_.sums<bpf_dirty_sums>();
    const auto ns = times(as_value(sums.pause_jiffies), jiffy_);
    if (ns) sink.counter("cgroup/job", "bpf.dirty_throttle_ns", *ns, bpf_.source());
    sink.counter("cgroup/job", "bpf.dirty_throttles", as_value(sums.pauses), bpf_.source());
  }

 private:
  BpfSignal bpf_;
  Nanos jiffy_;
};

}  // namespace

extern const SamplerPart kBpfDirty = {
    .name = "bpf.dirty",
    .what = "how long the job's writers were put to sleep because too much was dirty (BPF)",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<BpfDirty>(context);
    },
};

}  // namespace bedplate::probe
