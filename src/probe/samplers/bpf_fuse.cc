// Requests to file systems in user space on the whole machine, answered ones. A request without an
// answer is not in here: see /sys/fs/fuse/connections/*/waiting.
#include "probe/bpf/shared.h"
#include "probe/internal/bpf_signal.h"

namespace bedplate::probe {
namespace {

class BpfFuse final : public Sampler {
 public:
  explicit BpfFuse(const SampleContext& context) : bpf_(context, "fuse") {}

  void sample(std::span<const JobProcess>, SampleSink& sink) override {
    const auto sums = bpf_.sums<bpf_fuse_sums>();
    sink.counter("host", "bpf.fuse_requests", as_value(sums.requests), bpf_.source());
    sink.counter("host", "bpf.fuse_ns", as_value(sums.ns), bpf_.source());
  }

 private:
  BpfSignal bpf_;
};

}  // namespace

extern const SamplerPart kBpfFuse = {
    .name = "bpf.fuse",
    .what = "requests to file systems in user space and how long their answers took (BPF)",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<BpfFuse>(context);
    },
};

}  // namespace bedplate::probe
