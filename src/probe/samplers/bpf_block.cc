// Latency of block requests between issue and completion, by device, and of those that the job's
// own tasks issued.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "probe/bpf/shared.h"
#include "probe/internal/bpf_signal.h"

namespace bedplate::probe {
namespace {

constexpr std::uint32_t kJobKey = 0xffffffff;  // BLOCK_JOB_KEY of block.bpf.c
constexpr unsigned kMinorBits = 20;

class BpfBlock final : public Sampler {
 public:
  explicit BpfBlock(const SampleContext& context) : host_(context.host), bpf_(context, "block") {
    bpf_.put("block_tick", 0, ++tick_);
  }

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    bpf_.follow(processes);
    // A new tick begins before the old one is read: what completes in between belongs to the new
    // one.
    const std::uint64_t ended = tick_;
    bpf_.put("block_tick", 0, ++tick_);
    bool job = false;
    bpf_.each("block_devices", sizeof(bpf_block_sums),
              [&](std::uint32_t key, std::span<const std::byte> slots) {
                bpf_block_sums total{};
                for (std::size_t at = 0; at + sizeof(bpf_block_sums) <= slots.size();
                     at += sizeof(bpf_block_sums)) {
                  bpf_block_sums one;
                  std::memcpy(&one, slots.data() + at, sizeof one);
                  total.requests += one.requests;
                  total.latency_ns += one.latency_ns;
                  if (one.tick == ended) total.max_ns = std::max(total.max_ns, one.max_ns);
                }
                job = job || key == kJobKey;
                write(subject(key), total, sink);
              });
    // That the job has issued nothing yet is known, too.
    if (!job) write("cgroup/job", {}, sink);
  }

 private:
  void write(std::string_view subject, const bpf_block_sums& sums, SampleSink& sink) const {
    sink.counter(subject, "bpf.requests", as_value(sums.requests), bpf_.source());
    sink.counter(subject, "bpf.latency_ns", as_value(sums.latency_ns), bpf_.source());
    sink.gauge(subject, "bpf.latency_max_ns", as_value(sums.max_ns), bpf_.source());
  }

  const std::string& subject(std::uint32_t key) {
    std::string& known = subjects_[key];
    if (known.empty()) {
      const std::string number =
          fmt::format("{}:{}", key >> kMinorBits, key & ((1u << kMinorBits) - 1));
      known = key == kJobKey
                  ? "cgroup/job"
                  : "disk/" + host_.link_name("/sys/dev/block/" + number).value_or(number);
    }
    return known;
  }

  const os::HostRoot& host_;
  BpfSignal bpf_;
  std::map<std::uint32_t, std::string> subjects_;
  std::uint64_t tick_ = 0;
};

}  // namespace

extern const SamplerPart kBpfBlock = {
    .name = "bpf.block",
    .what = "latency of block requests, by device and of the job's own (BPF)",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<BpfBlock>(context);
    },
};

}  // namespace bedplate::probe
