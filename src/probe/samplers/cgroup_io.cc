// Limits of IO that bind the job, a subject "iolimit/DEVICE" each, and what the group that they
// count in has read and written.
//
// v2 limits (io.max) bind a group and all below it. v1 limits (blkio.throttle.*) bind the processes
// of that very group only: block/blk-throttle.c, throtl_pd_init(); so parents are looked at for v2
// alone. Sources: Linux Documentation/admin-guide/cgroup-v1/blkio-controller.rst, cgroup-v2.rst.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "probe/internal/job_groups.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

constexpr int kLookAgain = 4;  // ticks

enum Kind { kReadBytes, kWriteBytes, kReads, kWrites, kKinds };
struct Names {
  std::string_view limit_metric;
  std::string_view v1_file;
  std::string_view v2_limit;  // key in io.max
  std::string_view v2_count;  // key in io.stat
  std::string_view count_metric;
};
constexpr std::array<Names, kKinds> kNames = {{
    {"io.read_bps", "blkio.throttle.read_bps_device", "rbps", "rbytes", "io.read_bytes"},
    {"io.write_bps", "blkio.throttle.write_bps_device", "wbps", "wbytes", "io.write_bytes"},
    {"io.read_iops", "blkio.throttle.read_iops_device", "riops", "rios", "io.reads"},
    {"io.write_iops", "blkio.throttle.write_iops_device", "wiops", "wios", "io.writes"},
}};

struct Limit {
  std::int64_t value = 0;
  std::string source;
};

// "rbps=1048576" → the number after "rbps="; nullopt for another key and for "max".
std::optional<std::int64_t> assigned(std::string_view word, std::string_view key) {
  if (!word.starts_with(key) || word.size() <= key.size() || word[key.size()] != '=')
    return std::nullopt;
  return natural(word.substr(key.size() + 1));
}

class CgroupIo final : public Sampler {
 public:
  explicit CgroupIo(const SampleContext& context)
      : host_(context.host), governing_(context, "blkio") {
    // What the job alone did, where its own group counts IO; else what its nearest counting group
    // did.
    if (context.job != nullptr) {
      for (const std::string_view controller : {"blkio", ""}) {
        if (const auto group = context.job->group(controller); group && open_counts(*group)) {
          count_subject_ = "cgroup/job";
          return;
        }
      }
    }
    for (const os::Cgroup& group : governing_.groups()) {
      if (open_counts(group)) return;
    }
  }

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    if (tick_++ % kLookAgain == 0) {
      governing_.refresh(processes);
      limits(sink);
    }
    if (unified_) {
      v2_counts(sink);
    } else {
      v1_counts(bytes_, kReadBytes, kWriteBytes, sink);
      v1_counts(requests_, kReads, kWrites, sink);
    }
  }

 private:
  using Limits =
      std::map<std::string, std::array<std::optional<Limit>, kKinds>>;  // by "MAJOR:MINOR"

  bool open_counts(const os::Cgroup& group) {
    unified_ = group.unified;
    if (unified_) {
      bytes_ = TickFile(host_, group.file("io.stat"));
      return static_cast<bool>(bytes_);
    }
    const auto first_of = [&](std::string_view name) {
      TickFile recursive(host_, group.file(std::string(name) + "_recursive"));
      return recursive ? std::move(recursive) : TickFile(host_, group.file(name));
    };
    bytes_ = first_of("blkio.throttle.io_service_bytes");
    requests_ = first_of("blkio.throttle.io_serviced");
    return static_cast<bool>(bytes_);
  }

  static void lower(std::optional<Limit>& known, std::int64_t value, const std::string& source) {
    if (!known || value < known->value) known = Limit{value, source};
  }

  void v2_limits(const os::Cgroup& group, Limits& found) const {
    const std::string path = group.file("io.max");
    const auto text = host_.read(path);
    if (!text) return;
    for (Lines lines(*text); auto line = lines.next();) {
      Words words(*line);
      const std::string device(words.next());
      for (auto word = words.next(); !word.empty(); word = words.next()) {
        for (int kind = 0; kind < kKinds; ++kind) {
          if (const auto value = assigned(word, kNames[kind].v2_limit))
            lower(found[device][kind], *value, path);
        }
      }
    }
  }

  void v1_limits(const os::Cgroup& group, Limits& found) const {
    for (int kind = 0; kind < kKinds; ++kind) {
      const std::string path = group.file(kNames[kind].v1_file);
      const auto text = host_.read(path);
      if (!text) continue;
      for (Lines lines(*text); auto line = lines.next();) {
        Words words(*line);
        const std::string device(words.next());
        const auto value = natural(words.next());
        if (value && *value > 0) lower(found[device][kind], *value, path);
      }
    }
  }

  void limits(SampleSink& sink) {
    Limits found;
    for (const os::Cgroup& group : governing_.groups()) {
      if (group.unified) v2_limits(group, found);
    }
    for (const os::Cgroup& group : governing_.leaves()) {
      if (!group.unified) v1_limits(group, found);
    }
    for (const auto& [device, kinds] : found) told_.try_emplace(device);
    for (auto& [device, sources] : told_) {
      const auto now = found.find(device);
      for (int kind = 0; kind < kKinds; ++kind) {
        const bool limited = now != found.end() && now->second[kind];
        if (limited) sources[kind] = now->second[kind]->source;
        if (sources[kind].empty()) continue;  // never limited in this way
        sink.gauge(subject(device), kNames[kind].limit_metric,
                   limited ? now->second[kind]->value : -1, sources[kind]);
      }
    }
  }

  const std::string& subject(const std::string& device) {
    std::string& known = subjects_[device];
    if (known.empty())
      known = "iolimit/" + host_.link_name("/sys/dev/block/" + device).value_or(device);
    return known;
  }

  // Sums over devices, kept a device apart so that one that goes away takes nothing with it.
  void add(std::string_view device, int kind, std::int64_t value) {
    counters_[kind][std::string(device)].update(value, Rising::Fall::kReplaced);
  }
  void write_sums(std::initializer_list<int> kinds, std::string_view source, SampleSink& sink) {
    for (const int kind : kinds) {
      std::int64_t sum = 0;
      for (const auto& [device, counter] : counters_[kind]) {
        if (__builtin_add_overflow(sum, counter.value(), &sum)) return;
      }
      sink.counter(count_subject_, kNames[kind].count_metric, sum, source);
    }
  }

  void v2_counts(SampleSink& sink) {
    const auto text = bytes_.read();
    if (!text) return;
    for (Lines lines(*text); auto line = lines.next();) {
      Words words(*line);
      const std::string_view device = words.next();
      for (auto word = words.next(); !word.empty(); word = words.next()) {
        for (int kind = 0; kind < kKinds; ++kind) {
          if (const auto value = assigned(word, kNames[kind].v2_count)) add(device, kind, *value);
        }
      }
    }
    write_sums({kReadBytes, kWriteBytes, kReads, kWrites}, bytes_.path(), sink);
  }

  // "254:0 Read 4096", …, "Total 4096". A group that did no IO yet says "Total 0".
  void v1_counts(TickFile& file, Kind read, Kind write, SampleSink& sink) {
    const auto text = file.read();
    if (!text) return;
    for (Lines lines(*text); auto line = lines.next();) {
      Words words(*line);
      const std::string_view device = words.next();
      const std::string_view what = words.next();
      const auto value = natural(words.next());
      if (!value) continue;
      if (what == "Read") add(device, read, *value);
      if (what == "Write") add(device, write, *value);
    }
    write_sums({read, write}, file.path(), sink);
  }

  const os::HostRoot& host_;
  GoverningGroups governing_;
  std::string_view count_subject_ = "cgroup/io";
  bool unified_ = false;
  TickFile bytes_, requests_;
  std::array<std::map<std::string, Rising>, kKinds> counters_;
  std::map<std::string, std::array<std::string, kKinds>>
      told_;  // sources of limits that were written
  std::map<std::string, std::string> subjects_;
  int tick_ = 0;
};

}  // namespace

extern const SamplerPart kCgroupIo = {
    .name = "cgroup.io",
    .what = "limits of IO that bind the job, and the IO of its control group",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<CgroupIo>(context);
    },
};

}  // namespace bedplate::probe
