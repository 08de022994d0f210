// The CPU quota that binds the job: of the job's groups and all their parents the one with the
// least quota per period, unless another one throttles while that one does not (a wider quota that
// the job shares with others). Source: Linux Documentation/scheduler/sched-bwc.rst.
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "probe/internal/job_groups.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

constexpr int kLookAgain = 4;  // ticks: quotas are changed and processes are moved while a job runs

struct Quota {
  std::int64_t quota_us = 0;
  std::int64_t period_us = 0;
  double processors() const {
    return static_cast<double>(quota_us) / static_cast<double>(period_us);
  }
};

std::optional<Quota> read_quota(const os::HostRoot& host, const os::Cgroup& group) {
  Quota found;
  if (group.unified) {
    const auto text = host.read(group.file("cpu.max"));  // "max 100000" or "20000 100000"
    if (!text) return std::nullopt;
    Words words(*text);
    const auto quota = natural(words.next());
    const auto period = natural(words.next());
    if (!quota || !period) return std::nullopt;
    found = {*quota, *period};
  } else {
    found.quota_us = host.read_int(group.file("cpu.cfs_quota_us")).value_or(-1);
    found.period_us = host.read_int(group.file("cpu.cfs_period_us")).value_or(0);
  }
  if (found.quota_us <= 0 || found.period_us <= 0) return std::nullopt;
  return found;
}

struct Throttling {
  std::optional<std::int64_t> periods, throttled, throttled_ns;
};

Throttling parse_throttling(std::string_view text, bool unified) {
  return {
      keyed(text, "nr_periods"), keyed(text, "nr_throttled"),
      unified ? times(keyed(text, "throttled_usec"), kMicrosecond) : keyed(text, "throttled_time")};
}

class CgroupQuota final : public Sampler {
 public:
  explicit CgroupQuota(const SampleContext& context)
      : host_(context.host), governing_(context, "cpu") {}

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    if (tick_++ % kLookAgain == 0) {
      governing_.refresh(processes);
      choose();
    }
    if (!quota_) {
      sink.gauge("cgroup/cpu", "cpu.quota_us", -1, governing_.groups().front().folder);
      return;
    }
    const auto text = stat_.read();
    if (!text) {
      tick_ = 0;  // the group is gone: look at once
      return;
    }
    sink.gauge("cgroup/cpu", "cpu.quota_us", quota_->quota_us, quota_source_);
    sink.gauge("cgroup/cpu", "cpu.period_us", quota_->period_us, quota_source_);
    const Throttling now = parse_throttling(*text, unified_);
    const auto write = [&](std::string_view metric, std::optional<std::int64_t> value,
                           Rising& counter) {
      if (value)
        sink.counter("cgroup/cpu", metric, counter.update(*value, Rising::Fall::kReplaced),
                     stat_.path());
    };
    write("cpu.periods", now.periods, periods_);
    write("cpu.throttled_periods", now.throttled, throttled_);
    write("cpu.throttled_ns", now.throttled_ns, throttled_ns_);
  }

 private:
  void choose() {
    const os::Cgroup* best = nullptr;
    std::optional<Quota> best_quota;
    bool best_grew = false;
    std::map<std::string, std::int64_t> throttled;
    for (const os::Cgroup& group : governing_.groups()) {
      const auto quota = read_quota(host_, group);
      if (!quota) continue;
      const auto text = host_.read(group.file("cpu.stat")).value_or("");
      const std::int64_t now = parse_throttling(text, group.unified).throttled.value_or(0);
      const auto before = last_throttled_.find(group.folder);
      const bool grew = before != last_throttled_.end() && now > before->second;
      throttled[group.folder] = now;
      const bool tighter = !best || quota->processors() < best_quota->processors();
      if (best && (grew == best_grew ? !tighter : !grew)) continue;
      best = &group;
      best_quota = quota;
      best_grew = grew;
    }
    last_throttled_ = std::move(throttled);
    quota_ = best_quota;
    if (best == nullptr || best->folder == folder_) return;
    folder_ = best->folder;
    unified_ = best->unified;
    quota_source_ = best->file(best->unified ? "cpu.max" : "cpu.cfs_quota_us");
    stat_ = TickFile(host_, best->file("cpu.stat"));
    for (Rising* counter : {&periods_, &throttled_, &throttled_ns_}) counter->rebase();
  }

  const os::HostRoot& host_;
  GoverningGroups governing_;
  std::optional<Quota> quota_;
  std::string folder_, quota_source_;
  bool unified_ = false;
  TickFile stat_;
  Rising periods_, throttled_, throttled_ns_;
  std::map<std::string, std::int64_t> last_throttled_;
  int tick_ = 0;
};

}  // namespace

extern const SamplerPart kCgroupQuota = {
    .name = "cgroup.quota",
    .what = "the CPU quota that binds the job, and time in throttled periods of it",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<CgroupQuota>(context);
    },
};

}  // namespace bedplate::probe
