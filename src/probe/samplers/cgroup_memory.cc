// The memory limit that binds the job: of the job's groups and all their parents the one with the
// least limit, unless another one is being hit while that one is not. Without any limit, the job's
// nearest group, with limit -1.
//
// A job's own v1 group has no limit itself; what it does is counted in its parents' "total_"
// figures. Out-of-memory kills are counted by v1 in the victim's group alone, so those of all
// groups below the limit are added up. Sources: Linux
// Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst.
#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "probe/internal/job_groups.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

constexpr int kLookAgain = 4;  // samples

// v1 says "unlimited" by the greatest number of pages that fit; no machine has 2^60 bytes.
constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;

std::optional<std::int64_t> limit_of(const os::HostRoot& host, const os::Cgroup& group,
                                     std::string_view file) {
  const auto text = host.read(group.file(file));
  const auto value = text ? natural(Words(*text).next()) : std::nullopt;  // "max" is none
  return value && *value < kUnlimited ? value : std::nullopt;
}

class CgroupMemory final : public Sampler {
 public:
  explicit CgroupMemory(const SampleContext& context)
      : host_(context.host), governing_(context, "memory") {
    for (const os::Cgroup& group : governing_.groups()) {
      if (host_.readable(group.file("memory.stat"))) return;
    }
    throw Error(
        Code::kUnsupported,
        "no group above the job keeps memory.stat: the controller `memory` is not handed down");
  }

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    if (call_++ % kLookAgain == 0) {
      governing_.refresh(processes);
      choose();
    }
    if (!chosen_) return;
    gauge(sink, "memory.limit_bytes", limit_.value_or(-1), limit_source_);
    single(sink, usage_, "memory.usage_bytes");
    if (chosen_->unified) {
      events(sink);
    } else {
      if (const auto hits = number(hits_file_))
        counter(sink, "memory.limit_hits", *hits, limit_hits_, hits_file_.path());
      v1_kills(sink);
    }
    statistics(sink);
  }

 private:
  using Number = std::optional<std::int64_t>;

  static void gauge(SampleSink& sink, std::string_view metric, std::int64_t value,
                    std::string_view source) {
    sink.gauge("cgroup/memory", metric, value, source);
  }
  static void counter(SampleSink& sink, std::string_view metric, std::int64_t value, Rising& rising,
                      std::string_view source) {
    sink.counter("cgroup/memory", metric, rising.update(value, Rising::Fall::kReplaced), source);
  }
  static Number number(TickFile& file) {
    const auto text = file.read();
    return text ? natural(Words(*text).next()) : std::nullopt;
  }
  static void single(SampleSink& sink, TickFile& file, std::string_view metric) {
    if (const auto value = number(file)) gauge(sink, metric, *value, file.path());
  }

  // How often the group was at its limit, by the kernel's count.
  Number hits(const os::Cgroup& group) const {
    if (!group.unified) return host_.read_int(group.file("memory.failcnt"));
    const auto text = host_.read(group.file("memory.events"));
    if (!text) return std::nullopt;
    return sum(keyed(*text, "max").value_or(0), keyed(*text, "high").value_or(0));
  }

  void choose() {
    const os::Cgroup* best = nullptr;
    Number best_limit;
    std::string best_source;
    bool best_hit = false;
    std::map<std::string, std::int64_t> seen;
    for (const os::Cgroup& group : governing_.groups()) {
      std::string source = group.file(group.unified ? "memory.max" : "memory.limit_in_bytes");
      Number limit = limit_of(host_, group, group.unified ? "memory.max" : "memory.limit_in_bytes");
      if (group.unified) {
        // memory.high throttles where memory.max would kill: the job feels the lower one.
        const Number high = limit_of(host_, group, "memory.high");
        if (high && (!limit || *high < *limit)) {
          limit = high;
          source = group.file("memory.high");
        }
      }
      if (!limit) continue;
      const std::int64_t now = hits(group).value_or(0);
      const auto before = last_hits_.find(group.folder);
      const bool hit = before != last_hits_.end() && now > before->second;
      seen[group.folder] = now;
      if (best && (hit == best_hit ? *limit >= *best_limit : !hit)) continue;
      best = &group;
      best_limit = limit;
      best_source = source;
      best_hit = hit;
    }
    last_hits_ = std::move(seen);
    if (best == nullptr) {
      for (const os::Cgroup& group : governing_.groups()) {
        if (!best && host_.readable(group.file("memory.stat"))) best = &group;
      }
      if (best != nullptr)
        best_source = best->file(best->unified ? "memory.max" : "memory.limit_in_bytes");
    }
    limit_ = best_limit;
    limit_source_ = best_source;
    if (best != nullptr && (!chosen_ || chosen_->folder != best->folder)) open(*best);
  }

  void open(const os::Cgroup& group) {
    chosen_ = group;
    usage_ =
        TickFile(host_, group.file(group.unified ? "memory.current" : "memory.usage_in_bytes"));
    hits_file_ = TickFile(host_, group.file(group.unified ? "memory.events" : "memory.failcnt"));
    stat_ = TickFile(host_, group.file("memory.stat"));
    for (Rising* rising :
         {&limit_hits_, &high_hits_, &refault_file_, &refault_anon_, &major_faults_, &kills_})
      rising->rebase();
    kills_of_.clear();
    kills_total_ = 0;
  }

  void events(SampleSink& sink) {
    const auto text = hits_file_.read();
    if (!text) return;
    const auto write = [&](std::string_view metric, std::string_view key, Rising& rising) {
      if (const auto value = keyed(*text, key))
        counter(sink, metric, *value, rising, hits_file_.path());
    };
    write("memory.limit_hits", "max", limit_hits_);
    write("memory.high_hits", "high", high_hits_);
    write("memory.oom_kills", "oom_kill", kills_);
  }

  void v1_kills(SampleSink& sink) {
    bool any = false;
    for (const os::Cgroup& group : governing_.groups()) {
      if (group.folder != chosen_->folder && !group.folder.starts_with(chosen_->folder + "/"))
        continue;
      const auto text = host_.read(group.file("memory.oom_control"));
      const auto count = text ? keyed(*text, "oom_kill") : std::nullopt;  // Linux 4.13 and newer
      if (!count) continue;
      any = true;
      std::int64_t& last = kills_of_[group.folder];
      kills_total_ += std::max<std::int64_t>(0, *count - last);
      last = *count;
    }
    if (any)
      counter(sink, "memory.oom_kills", kills_total_, kills_, chosen_->file("memory.oom_control"));
  }

  void statistics(SampleSink& sink) {
    const auto text = stat_.read();
    if (!text) return;
    const bool unified = chosen_->unified;
    const auto find = [&](std::string_view v2_key, std::string_view v1_total,
                          std::string_view v1_key) {
      if (unified) return keyed(*text, v2_key);
      const auto total = keyed(*text, v1_total);
      return total ? total : keyed(*text, v1_key);
    };
    const auto count = [&](std::string_view metric, Number value, Rising& rising) {
      if (value) counter(sink, metric, *value, rising, stat_.path());
    };
    count(
        "memory.refault_file_pages",
        find("workingset_refault_file", "total_workingset_refault_file", "workingset_refault_file"),
        refault_file_);
    count(
        "memory.refault_anon_pages",
        find("workingset_refault_anon", "total_workingset_refault_anon", "workingset_refault_anon"),
        refault_anon_);
    count("memory.major_faults", find("pgmajfault", "total_pgmajfault", "pgmajfault"),
          major_faults_);
    if (const auto file = find("file", "total_cache", "cache"))
      gauge(sink, "memory.file_bytes", *file, stat_.path());
    if (const auto anon = find("anon", "total_rss", "rss"))
      gauge(sink, "memory.anon_bytes", *anon, stat_.path());
  }

  const os::HostRoot& host_;
  GoverningGroups governing_;
  std::optional<os::Cgroup> chosen_;
  Number limit_;
  std::string limit_source_;
  TickFile usage_, hits_file_, stat_;
  Rising limit_hits_, high_hits_, refault_file_, refault_anon_, major_faults_, kills_;
  std::map<std::string, std::int64_t> last_hits_, kills_of_;
  std::int64_t kills_total_ = 0;
  int call_ = 0;
};

}  // namespace

extern const SamplerPart kCgroupMemory = {
    .name = "cgroup.memory",
    .what =
        "the memory limit that binds the job: how often it was hit, pages that had to be read "
        "again, kills",
    .every = 2,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<CgroupMemory>(context);
    },
};

}  // namespace bedplate::probe
