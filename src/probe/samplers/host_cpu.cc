// Processor time of the whole machine and of each processor, from /proc/stat.
//
// Idle and iowait of one processor may fall by a tick or two (Documentation/filesystems/proc.rst
// says so), therefore they are held. `user` holds guest time too, as the kernel counts it there.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

constexpr std::array<std::string_view, 8> kMetrics = {
    "cpu.user_ns",   "cpu.nice_ns", "cpu.system_ns",  "cpu.idle_ns",
    "cpu.iowait_ns", "cpu.irq_ns",  "cpu.softirq_ns", "cpu.steal_ns"};

// More processors than this are written in turn, a part of them each tick: 256 processors would
// otherwise make 4,000 values a second, and what rules ask of one processor (is it alone at work?
// is it full of interrupts?) changes in seconds.
constexpr std::int64_t kProcessorsATick = 32;

class HostCpu final : public Sampler {
 public:
  explicit HostCpu(const SampleContext& context)
      : stat_(required(context.host, "/proc/stat", "/proc/stat is absent: /proc is not mounted")) {}

  void sample(std::span<const JobProcess>, SampleSink& sink) override {
    const auto text = stat_.read();
    if (!text) return;
    std::int64_t online = 0;
    for (Lines lines(*text); auto line = lines.next();) {
      Words words(*line);
      const std::string_view name = words.next();
      if (name == "cpu") {
        write_times(total_, "host", words, sink);
      } else if (name.starts_with("cpu")) {
        const auto number = natural(name.substr(3));
        if (!number || *number >= kMostProcessors) continue;
        ++online;
        processor(*number, words, sink);
      } else if (name == "procs_running") {
        if (const auto n = natural(words.next()))
          sink.gauge("host", "procs.running", *n, stat_.path());
      } else if (name == "procs_blocked") {
        if (const auto n = natural(words.next()))
          sink.gauge("host", "procs.blocked", *n, stat_.path());
      }
    }
    if (online > 0) sink.gauge("host", "cpu.online", online, stat_.path());
    turns_ = std::max<std::int64_t>(1, (online + kProcessorsATick - 1) / kProcessorsATick);
    ++tick_;
  }

 private:
  static constexpr std::int64_t kMostProcessors = 65'536;

  struct Times {
    std::string subject;
    std::array<Rising, kMetrics.size()> counters;
  };

  void processor(std::int64_t number, Words words, SampleSink& sink) {
    if (static_cast<std::size_t>(number) >= processors_.size())
      processors_.resize(static_cast<std::size_t>(number) + 1);
    Times& times = processors_[static_cast<std::size_t>(number)];
    if (times.subject.empty()) times.subject = fmt::format("cpu/{}", number);
    if (number % turns_ == tick_ % turns_) write_times(times, times.subject, words, sink);
  }

  void write_times(Times& into, std::string_view subject, Words words, SampleSink& sink) {
    for (std::size_t i = 0; i < kMetrics.size(); ++i) {
      const auto ns = times(natural(words.next()), clock_tick());
      if (ns)
        sink.counter(subject, kMetrics[i], into.counters[i].update(*ns, Rising::Fall::kNoise),
                     stat_.path());
    }
  }

  TickFile stat_;
  Times total_;
  std::vector<Times> processors_;
  std::int64_t turns_ = 1;
  std::int64_t tick_ = 0;
};

}  // namespace

extern const SamplerPart kHostCpu = {
    .name = "host.cpu",
    .what =
        "processor time of the machine: user, system, idle, waiting for IO, stolen by the "
        "hypervisor",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<HostCpu>(context);
    },
};

}  // namespace bedplate::probe
