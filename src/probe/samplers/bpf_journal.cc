// Commits of ext4's journals on the whole machine.
#include "probe/bpf/shared.h"
#include "probe/internal/bpf_signal.h"

namespace bedplate::probe {
namespace {

class BpfJournal final : public Sampler {
 public:
  explicit BpfJournal(const SampleContext& context) : bpf_(context, "journal") {}

  void sample(std::span<const JobProcess>, SampleSink& sink) override {
    const auto sums = bpf_.sums<bpf_journal_sums>();
    sink.counter("host", "bpf.journal_commits", as_value(sums.commits), bpf_.source());
    sink.counter("host", "bpf.journal_commit_ns", as_value(sums.ns), bpf_.source());
  }

 private:
  BpfSignal bpf_;
};

}  // namespace

extern const SamplerPart kBpfJournal = {
    .name = "bpf.journal",
    .what = "commits of ext4's journals and how long they took (BPF)",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<BpfJournal>(context);
    },
};

}  // namespace bedplate::probe
