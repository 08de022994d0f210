// TCP segments sent again: of the machine, and of the job's own sockets where the job has a v2
// group of its own.
#include "probe/bpf/shared.h"
#include "probe/internal/bpf_signal.h"

namespace bedplate::probe {
namespace {

class BpfTcp final : public Sampler {
 public:
  explicit BpfTcp(const SampleContext& context) : bpf_(context, "tcp") {}

  void sample(std::span<const JobProcess>, SampleSink& sink) override {
    const auto sums = bpf_.sums<bpf_tcp_sums>();
    sink.counter("host", "bpf.tcp_retransmits", as_value(sums.host), bpf_.source());
    if (bpf_.by_group())
      sink.counter("cgroup/job", "bpf.tcp_retransmits", as_value(sums.job), bpf_.source());
  }

  std::string remark() const override {
    return bpf_.by_group()
               ? ""
               : "of the whole machine only: the job has no v2 control group of its own";
  }

 private:
  BpfSignal bpf_;
};

}  // namespace

extern const SamplerPart kBpfTcp = {
    .name = "bpf.tcp",
    .what = "TCP segments that the job and the machine sent again (BPF)",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<BpfTcp>(context);
    },
};

}  // namespace bedplate::probe
