// How long the job's tasks waited for a processor and were blocked, by reason, summed in the kernel
// at every switch: exact also for threads that live shorter than a tick. A wait is added when the
// thread leaves its processor again.
#include "probe/bpf/shared.h"
#include "probe/internal/bpf_signal.h"

namespace bedplate::probe {
namespace {

class BpfSched final : public Sampler {
 public:
  explicit BpfSched(const SampleContext& context) : bpf_(context, "sched") {}

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    bpf_.follow(processes);
    const auto sums = bpf_.sums<bpf_sched_sums>();
    sink.counter("cgroup/job", "bpf.run_delay_ns", as_value(sums.run_delay_ns), bpf_.source());
    sink.counter("cgroup/job", "bpf.offcpu_io_ns", as_value(sums.offcpu_io_ns), bpf_.source());
    sink.counter("cgroup/job", "bpf.offcpu_other_ns", as_value(sums.offcpu_other_ns),
                 bpf_.source());
  }

 private:
  BpfSignal bpf_;
};

}  // namespace

extern const SamplerPart kBpfSched = {
    .name = "bpf.sched",
    .what = "how long the job's tasks waited for a processor, for IO, and for other things (BPF)",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<BpfSched>(context);
    },
};

}  // namespace bedplate::probe
