// Whole block devices that are in use, from /proc/diskstats; no partitions, since the device has
// their sums.
//
// The read-ahead window beside it, from /sys/block, seldom: it is set by hand, if at all.
//
// Sectors are 512 bytes whatever the device's own are. The kernel prints its milliseconds as 32
// bits: they wrap. Source: Linux Documentation/admin-guide/iostats.rst.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

constexpr std::int64_t kSector = 512;

struct Column {
  std::size_t field;  // of the line, from 0: major, minor, name, reads, …
  std::string_view metric;
  std::int64_t factor;
  Rising::Fall fall;
};
constexpr std::array<Column, 10> kColumns = {{
    {3, "reads", 1, Rising::Fall::kReplaced},
    {5, "read_bytes", kSector, Rising::Fall::kReplaced},
    {6, "read_ns", kMillisecond, Rising::Fall::kWraps32},
    {7, "writes", 1, Rising::Fall::kReplaced},
    {9, "write_bytes", kSector, Rising::Fall::kReplaced},
    {10, "write_ns", kMillisecond, Rising::Fall::kWraps32},
    {12, "busy_ns", kMillisecond, Rising::Fall::kWraps32},
    {13, "queue_ns", kMillisecond, Rising::Fall::kWraps32},
    {18, "flushes", 1, Rising::Fall::kReplaced},  // Linux 5.5 and newer
    {19, "flush_ns", kMillisecond, Rising::Fall::kWraps32},
}};
constexpr std::size_t kInFlight = 11;
constexpr std::size_t kLeastFields = 14;
constexpr std::size_t kMostFields = 20;
constexpr int kReadAheadEvery = 20;  // ticks
constexpr int kLookAgain = 20;  // ticks until an idle device is asked again whether it has a medium

class HostDisk final : public Sampler {
 public:
  explicit HostDisk(const SampleContext& context)
      : host_(context.host),
        diskstats_(required(context.host, "/proc/diskstats", "this kernel has no /proc/diskstats")),
        have_sys_(!context.host.list("/sys/block").empty()) {}

  void sample(std::span<const JobProcess>, SampleSink& sink) override {
    const auto text = diskstats_.read();
    if (!text) return;
    for (Lines lines(*text); auto line = lines.next();) {
      std::array<std::string_view, kMostFields> fields;
      std::size_t count = 0;
      Words words(*line);
      for (auto word = words.next(); !word.empty() && count < kMostFields; word = words.next())
        fields[count++] = word;
      if (count >= kLeastFields) device(std::span(fields).first(count), sink);
    }
    ++tick_;
  }

 private:
  struct Device {
    std::string subject;
    bool whole = false;
    bool in_use = false;
    int look_at = 0;
    int read_ahead_at = 0;
    std::array<Rising, kColumns.size()> counters;
  };

  void device(std::span<const std::string_view> fields, SampleSink& sink) {
    const std::string name(fields[2]);
    auto [it, fresh] = devices_.try_emplace(name);
    Device& known = it->second;
    if (fresh) {
      known.subject = "disk/" + name;
      known.whole = is_whole(name);
    }
    if (!known.whole) return;
    if (!known.in_use) known.in_use = in_use(name, fields, known);
    if (!known.in_use) return;
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      const Column& column = kColumns[i];
      if (column.field >= fields.size()) continue;
      const auto raw = natural(fields[column.field]);
      if (!raw) continue;
      // Counts in the kernel's unit and multiplies after, so that a wrap of 32 bits is seen as one.
      const auto value = times(known.counters[i].update(*raw, column.fall), column.factor);
      if (value) sink.counter(known.subject, column.metric, *value, diskstats_.path());
    }
    if (const auto n = natural(fields[kInFlight]))
      sink.gauge(known.subject, "in_flight", *n, diskstats_.path());
    if (have_sys_ && tick_ >= known.read_ahead_at) read_ahead(name, known, sink);
  }

  void read_ahead(const std::string& name, Device& known, SampleSink& sink) const {
    known.read_ahead_at = tick_ + kReadAheadEvery;
    const std::string path = fmt::format("/sys/block/{}/queue/read_ahead_kb", entry_of(name));
    const auto kib = host_.read_int(path);
    if (kib && *kib >= 0 && *kib < (std::int64_t{1} << 40))
      sink.gauge(known.subject, "read_ahead_bytes", *kib * kKiB, path);
  }

  // In /sys/block.
  static std::string entry_of(std::string name) {
    std::replace(name.begin(), name.end(), '/', '!');
    return name;
  }

  // /sys/block lists whole devices only. On a recorded machine without it, a
  // partition is what continues the name of a device listed before it by a number ("sda1",
  // "nvme0n1p1").
  bool is_whole(const std::string& name) const {
    if (have_sys_) {
      return host_.exists("/sys/block/" + entry_of(name));
    }
    for (const auto& [other, device] : devices_) {
      if (!device.whole || other == name || !name.starts_with(other)) continue;
      std::string_view rest = std::string_view(name).substr(other.size());
      if (rest.starts_with('p')) rest.remove_prefix(1);
      if (natural(rest)) return false;
    }
    return true;
  }

  // A device that has done any IO, or has a medium that some may be done on. The RAM disks that the
  // kernel makes at boot have a size and are never used.
  bool in_use(const std::string& name, std::span<const std::string_view> fields, Device& known) {
    if (natural(fields[3]).value_or(0) > 0 || natural(fields[7]).value_or(0) > 0) return true;
    if (!have_sys_ || name.starts_with("ram") || name.starts_with("zram") || tick_ < known.look_at)
      return false;
    known.look_at = tick_ + kLookAgain;
    return host_.read_int("/sys/block/" + name + "/size").value_or(0) > 0;
  }

  const os::HostRoot& host_;
  TickFile diskstats_;
  bool have_sys_;
  int tick_ = 0;
  std::unordered_map<std::string, Device> devices_;
};

}  // namespace

extern const SamplerPart kHostDisk = {
    .name = "host.disk",
    .what = "requests, bytes and times of each block device",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<HostDisk>(context);
    },
};

}  // namespace bedplate::probe
