// Who else runs: processor time of the machine minus the job's own, and, when that is much, which
// processes they are.
//
// The job's time comes from its control group; without one, from its processes, where what a
// process did just before it ended is missed. Both accounts have their own grain, so the difference
// since the start is held where it would fall.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "probe/internal/cgroup_usage.h"
#include "probe/internal/per_process.h"
#include "probe/internal/proc_stat.h"

namespace bedplate::probe {
namespace {

constexpr double kMuch = 0.2;  // processors, over one tick: then it is worth to look who it is
constexpr double kWorthNaming = 0.05;      // of a processor, for one process
constexpr std::size_t kReadAtATime = 128;  // processes looked at in one tick
constexpr std::size_t kNamed = 3;          // processes a round
constexpr Nanos kBetweenRounds = 10 * kSecond;
constexpr std::size_t kMostKnown = 20'000;

// Processor time of the job, whatever can tell it.
class JobTime {
 public:
  explicit JobTime(const SampleContext& context) : host_(context.host) {
    try {
      group_.emplace(host_, own_cpu_group(context));
    } catch (const Error&) {
      // No group of its own: the processes must do.
    }
  }

  std::optional<Nanos> read(std::span<const JobProcess> processes) {
    if (group_) {
      const auto reading = group_->read();
      return reading ? std::optional(reading->usage) : std::nullopt;
    }
    table_.visit(processes, [&](const JobProcess& process, const std::string&, State& state) {
      if (state.path.empty()) state.path = fmt::format("/proc/{}/stat", process.pid);
      const auto text = state.file.read(host_, state.path, table_.few(), buffer_);
      const auto stat = text ? parse_proc_stat(*text) : std::nullopt;
      if (!stat) return;
      const Nanos now =
          times(sum(stat->user_ticks, stat->system_ticks), clock_tick()).value_or(state.last);
      total_ += std::max<Nanos>(0, now - state.last);
      state.last = std::max(state.last, now);
    });
    return total_;
  }

  std::string source() const { return group_ ? group_->source() : "/proc/*/stat of the job"; }

 private:
  struct State {
    std::string path;
    ProcessFile file;
    Nanos last = 0;
  };
  const os::HostRoot& host_;
  std::optional<CgroupUsage> group_;
  PerProcess<State> table_;
  std::string buffer_;
  Nanos total_ = 0;
};

class CgroupOthers final : public Sampler {
 public:
  explicit CgroupOthers(const SampleContext& context)
      : host_(context.host),
        job_(context),
        stat_(required(context.host, "/proc/stat", "/proc/stat is absent: /proc is not mounted")),
        source_("/proc/stat minus " + job_.source()) {}

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    const auto busy = read_busy();
    const auto own = job_.read(processes);
    if (!busy || !own) return;
    if (!base_) base_ = *busy - *own;
    const Nanos before = outside_;
    outside_ = std::max(outside_, *busy - *own - *base_);
    sink.counter("cgroup/others", "cpu.usage_ns", outside_, source_);

    const Nanos length = sink.now() - last_at_;
    if (started_ && length > 0) {
      const bool much =
          static_cast<double>(outside_ - before) > kMuch * static_cast<double>(length);
      if (much && round_.empty() && sink.now() >= next_round_at_) begin_round();
    }
    last_at_ = sink.now();
    started_ = true;
    if (!round_.empty()) continue_round(processes, sink);
  }

 private:
  struct Seen {
    Nanos time = 0;
    Nanos at = 0;
  };
  struct Busy {
    int pid;
    std::string comm;
    double share;
  };

  std::optional<Nanos> read_busy() {
    const auto text = stat_.read();
    if (!text || !text->starts_with("cpu ")) return std::nullopt;
    Words words(text->substr(4));
    Nanos busy = 0;
    for (int field = 0; field < 7; ++field) {  // user nice system idle iowait irq softirq
      const auto ns = times(natural(words.next()), clock_tick());
      if (field == 3 || field == 4) continue;
      if (!ns || __builtin_add_overflow(busy, *ns, &busy)) return std::nullopt;
    }
    return busy;
  }

  // A round reads every process twice, a part each tick: the second time gives its share.
  void begin_round() {
    for (const std::string& name : host_.list("/proc")) {
      if (const auto pid = natural(name); pid && *pid > 0 && *pid < (1 << 30))
        round_.push_back(static_cast<int>(*pid));
      if (round_.size() == kMostKnown) break;
    }
    at_ = 0;
    second_ = false;
    seen_.clear();
    busy_.clear();
  }

  void continue_round(std::span<const JobProcess> processes, SampleSink& sink) {
    std::unordered_set<int> job;
    for (const JobProcess& process : processes) job.insert(process.pid);
    job.insert(::getpid());  // Bedplate's own cost is printed elsewhere
    const std::size_t end = std::min(round_.size(), at_ + kReadAtATime);
    for (; at_ < end; ++at_) {
      if (!job.contains(round_[at_])) look(round_[at_], sink.now());
    }
    if (at_ < round_.size()) return;
    at_ = 0;
    if (!second_) {
      second_ = true;
      return;
    }
    std::ranges::sort(busy_, [](const Busy& a, const Busy& b) { return a.share > b.share; });
    for (std::size_t i = 0; i < std::min(kNamed, busy_.size()); ++i) {
      sink.note(busy_[i].pid, "top_outside",
                fmt::format("{} {} {:.2f}", busy_[i].pid, to_utf8(busy_[i].comm), busy_[i].share));
    }
    round_.clear();
    next_round_at_ = sink.now() + kBetweenRounds;
  }

  void look(int pid, Nanos now) {
    const os::UniqueFd file = host_.open(fmt::format("/proc/{}/stat", pid));
    const auto text = file ? os::reread(file.get(), buffer_) : std::nullopt;
    const auto stat = text ? parse_proc_stat(*text) : std::nullopt;
    const auto time =
        stat ? times(sum(stat->user_ticks, stat->system_ticks), clock_tick()) : std::nullopt;
    if (!time) return;
    if (!second_) {
      seen_[pid] = {*time, now};
      return;
    }
    const auto first = seen_.find(pid);
    if (first == seen_.end() || now <= first->second.at) return;
    const double share = static_cast<double>(*time - first->second.time) /
                         static_cast<double>(now - first->second.at);
    if (share >= kWorthNaming) busy_.push_back({pid, std::string(stat->comm), share});
  }

  const os::HostRoot& host_;
  JobTime job_;
  TickFile stat_;
  std::string source_;
  std::optional<Nanos> base_;
  Nanos outside_ = 0;
  Nanos last_at_ = 0;
  bool started_ = false;
  Nanos next_round_at_ = 0;
  std::vector<int> round_;
  std::size_t at_ = 0;
  bool second_ = false;
  std::unordered_map<int, Seen> seen_;
  std::vector<Busy> busy_;
  std::string buffer_;
};

}  // namespace

extern const SamplerPart kCgroupOthers = {
    .name = "cgroup.others",
    .what =
        "processor time of everything on the machine that is not the job, and which processes use "
        "most of it",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<CgroupOthers>(context);
    },
};

}  // namespace bedplate::probe
