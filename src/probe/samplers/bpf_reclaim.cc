// How long the job's tasks had to free memory themselves: the machine's (direct reclaim), or their
// control group's at its limit (memcg reclaim, where the kernel has the tracepoint).
#include "probe/bpf/shared.h"
#include "probe/internal/bpf_signal.h"

namespace bedplate::probe {
namespace {

class BpfReclaim final : public Sampler {
 public:
  explicit BpfReclaim(const SampleContext& context)
      : bpf_(context, "reclaim"), memcg_(bpf_.source().find("memcg") != std::string::npos) {}

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    bpf_.follow(processes);
    const auto sums = bpf_.sums<bpf_reclaim_sums>();
    sink.counter("cgroup/job", "bpf.direct_reclaim_ns", as_value(sums.direct_ns), bpf_.source());
    sink.counter("cgroup/job", "bpf.direct_reclaims", as_value(sums.directs), bpf_.source());
    if (!memcg_) return;
    sink.counter("cgroup/job", "bpf.memcg_reclaim_ns", as_value(sums.memcg_ns), bpf_.source());
    sink.counter("cgroup/job", "bpf.memcg_reclaims", as_value(sums.memcgs), bpf_.source());
  }

 private:
  BpfSignal bpf_;
  bool memcg_;
};

}  // namespace

extern const SamplerPart kBpfReclaim = {
    .name = "bpf.reclaim",
    .what = "how long the job's tasks had to free memory themselves before they got some (BPF)",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<BpfReclaim>(context);
    },
};

}  // namespace bedplate::probe
