// The kernel's memory management of the whole machine, from /proc/vmstat, in the kernel's own
// units: pgpgin and pgpgout are KiB, other counts are pages or events.
#include <array>
#include <string>

#include "base/error.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

// Metrics are "vm." + the kernel's name. What this kernel does not count is not written.
constexpr std::array<std::string_view, 16> kCounters = {
    "vm.pgpgin",
    "vm.pgpgout",
    "vm.pswpin",
    "vm.pswpout",
    "vm.pgfault",
    "vm.pgmajfault",
    "vm.allocstall_normal",
    "vm.allocstall_movable",
    "vm.compact_stall",
    "vm.compact_fail",
    "vm.thp_fault_fallback",
    "vm.workingset_refault_file",
    "vm.workingset_refault_anon",
    "vm.oom_kill",
    "vm.numa_hint_faults",
    "vm.numa_pages_migrated",
};
constexpr std::array<std::string_view, 3> kGauges = {"vm.nr_dirty", "vm.nr_writeback",
                                                     "vm.nr_dirty_threshold"};
constexpr std::size_t kPrefix = std::string_view("vm.").size();

class HostVm final : public Sampler {
 public:
  explicit HostVm(const SampleContext& context)
      : vmstat_(required(context.host, "/proc/vmstat", "this kernel has no /proc/vmstat")) {}

  void sample(std::span<const JobProcess>, SampleSink& sink) override {
    const auto text = vmstat_.read();
    if (!text) return;
    for (Lines lines(*text); auto line = lines.next();) {
      Words words(*line);
      const std::string_view name = words.next();
      const auto value = natural(words.next());
      if (!value) continue;
      for (std::size_t i = 0; i < kCounters.size(); ++i) {
        if (kCounters[i].substr(kPrefix) != name) continue;
        sink.counter("host", kCounters[i], counters_[i].update(*value, Rising::Fall::kNoise),
                     vmstat_.path());
      }
      for (const std::string_view gauge : kGauges) {
        if (gauge.substr(kPrefix) == name) sink.gauge("host", gauge, *value, vmstat_.path());
      }
    }
  }

 private:
  TickFile vmstat_;
  std::array<Rising, kCounters.size()> counters_;
};

}  // namespace

extern const SamplerPart kHostVm = {
    .name = "host.vm",
    .what =
        "the kernel's memory management: faults, swapping, reclaim, compaction, refaults, dirty "
        "pages, NUMA balancing",
    .every = 2,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<HostVm>(context);
    },
};

}  // namespace bedplate::probe
