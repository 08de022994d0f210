// Memory of the whole machine, from /proc/meminfo.
#include <algorithm>

#include "base/error.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

struct Field {
  std::string_view key;
  std::string_view metric;
};
constexpr Field kFields[] = {
    {"MemTotal", "mem.total_bytes"}, {"MemAvailable", "mem.available_bytes"},
    {"MemFree", "mem.free_bytes"},   {"Cached", "mem.cached_bytes"},
    {"Dirty", "mem.dirty_bytes"},    {"Writeback", "mem.writeback_bytes"},
};

class HostMemory final : public Sampler {
 public:
  explicit HostMemory(const SampleContext& context)
      : meminfo_(required(context.host, "/proc/meminfo",
                          "/proc/meminfo is absent: /proc is not mounted")) {}

  void sample(std::span<const JobProcess>, SampleSink& sink) override {
    const auto text = meminfo_.read();
    if (!text) return;
    for (const Field& field : kFields) {
      const auto bytes = times(keyed(*text, field.key), kKiB);  // "kB" there means KiB
      if (bytes) sink.gauge("host", field.metric, *bytes, meminfo_.path());
    }
    const auto total = times(keyed(*text, "SwapTotal"), kKiB);
    const auto free = times(keyed(*text, "SwapFree"), kKiB);
    if (total && free) {
      sink.gauge("host", "mem.swap_used_bytes", std::max<std::int64_t>(0, *total - *free),
                 meminfo_.path());
    }
  }

 private:
  TickFile meminfo_;
};

}  // namespace

extern const SamplerPart kHostMemory = {
    .name = "host.memory",
    .what = "memory of the machine: available, cached, dirty, swapped out",
    .every = 2,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<HostMemory>(context);
    },
};

}  // namespace bedplate::probe
