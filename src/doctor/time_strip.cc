#include "doctor/time_strip.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/text.h"
#include "doctor/series_view.h"
#include "probe/run_file.h"

namespace bedplate::doctor {
namespace {

constexpr std::int64_t kMostPieces = 64;  // looks into one column for its lowest and highest

std::string_view meta(const probe::RunData& run, std::string_view key) {
  const auto found = run.meta.find(std::string(key));
  return found == run.meta.end() ? std::string_view() : std::string_view(found->second);
}

Nanos sampling_period(const probe::RunData& run) {
  const double hz = to_double(meta(run, probe::run_meta::kSampleHz)).value_or(2);
  return hz > 0.001 && hz < 1e6 ? static_cast<Nanos>(1e9 / hz) : kSecond / 2;
}

// What a lane shows during a window; nullopt: not recorded then.
using Reader = std::function<std::optional<double>(Window)>;

struct LaneRecipe {
  std::string name;
  std::string group;
  LaneUnit unit;
  std::string source;
  double top;  // 0: the highest
  Reader read;
};

std::optional<double> sum(const SeriesView& series, const std::vector<std::string_view>& subjects,
                          std::initializer_list<std::string_view> metrics, Window w) {
  std::optional<double> total;
  for (const auto subject : subjects) {
    for (const auto metric : metrics) {
      if (const auto rate = series.rate(subject, metric, w)) total = total.value_or(0) + *rate;
    }
  }
  return total;
}

std::optional<double> scaled(std::optional<double> value, double factor) {
  return value ? std::optional(*value * factor) : std::nullopt;
}

void add_cpu(const SeriesView& series, Nanos end, std::vector<LaneRecipe>& recipes) {
  const double cpus = series.highest("host", "cpu.online", {0, end + 1}).value_or(0);
  if (series.has("cgroup/job", "cpu.usage_ns")) {
    recipes.push_back({"CPU, the job", "CPU", LaneUnit::kCores,
                       series.source("cgroup/job", "cpu.usage_ns"), cpus,
                       [&](Window w) { return series.share("cgroup/job", "cpu.usage_ns", w); }});
  }
  if (series.has("host", "cpu.user_ns")) {
    recipes.push_back({"CPU, the machine", "CPU", LaneUnit::kCores,
                       series.source("host", "cpu.user_ns"), cpus, [&](Window w) {
                         return scaled(sum(series, {"host"},
                                           {"cpu.user_ns", "cpu.nice_ns", "cpu.system_ns",
                                            "cpu.irq_ns", "cpu.softirq_ns", "cpu.steal_ns"},
                                           w),
                                       1e-9);
                       }});
  }
  if (series.has("cgroup/cpu", "cpu.periods")) {
    recipes.push_back({"CPU quota throttles", "throttling", LaneUnit::kShare,
                       series.source("cgroup/cpu", "cpu.throttled_periods"), 1,
                       [&](Window w) -> std::optional<double> {
                         const auto periods = series.growth("cgroup/cpu", "cpu.periods", w);
                         const auto throttled =
                             series.growth("cgroup/cpu", "cpu.throttled_periods", w);
                         if (!periods || !throttled) return std::nullopt;
                         return *periods > 0 ? std::min(1.0, *throttled / *periods) : 0.0;
                       }});
  }
}

void add_pressure(const SeriesView& series, std::vector<LaneRecipe>& recipes) {
  struct Kind {
    const char* name;
    const char* metric;
  };
  for (const auto& [name, metric] :
       {Kind{"CPU pressure", "psi.cpu.some_us"}, Kind{"memory pressure", "psi.memory.some_us"},
        Kind{"IO pressure", "psi.io.some_us"}}) {
    const std::string_view subject = series.has("cgroup/job", metric) ? "cgroup/job" : "host";
    if (!series.has(subject, metric)) continue;
    recipes.push_back({name, "pressure", LaneUnit::kShare, series.source(subject, metric), 1,
                       [&series, subject, metric = metric](Window w) {
                         return scaled(series.rate(subject, metric, w), 1e-6);
                       }});
  }
}

void add_devices(const SeriesView& series, std::vector<LaneRecipe>& recipes) {
  const auto add = [&](std::string name, std::string group, LaneUnit unit, std::string source,
                       Reader read) {
    recipes.push_back(
        {std::move(name), std::move(group), unit, std::move(source), 0, std::move(read)});
  };
  if (const auto disks = series.subjects("disk/"); !disks.empty()) {
    add("disk reads", "disk", LaneUnit::kBytesPerSecond, series.source(disks.front(), "read_bytes"),
        [&series, disks](Window w) { return sum(series, disks, {"read_bytes"}, w); });
    add("disk writes", "disk", LaneUnit::kBytesPerSecond,
        series.source(disks.front(), "write_bytes"),
        [&series, disks](Window w) { return sum(series, disks, {"write_bytes"}, w); });
  }
  if (series.has("cgroup/memory", "memory.refault_file_pages")) {
    add("page cache re-reads", "memory", LaneUnit::kBytesPerSecond,
        series.source("cgroup/memory", "memory.refault_file_pages"), [&](Window w) {
          return scaled(series.rate("cgroup/memory", "memory.refault_file_pages", w), 4096);
        });
  }
  if (series.has("host", "vm.pswpin")) {
    add("swapping in", "memory", LaneUnit::kBytesPerSecond, series.source("host", "vm.pswpin"),
        [&](Window w) { return scaled(series.rate("host", "vm.pswpin", w), 4096); });
  }
  auto nets = series.subjects("net/");
  std::erase(nets, "net/lo");
  if (!nets.empty()) {
    add("network", "network", LaneUnit::kBytesPerSecond, series.source(nets.front(), "rx_bytes"),
        [&series, nets](Window w) {
          return sum(series, nets, {"rx_bytes", "tx_bytes"}, w);
        });
  }
  if (series.has("host", "tcp.retrans_segs")) {
    add("TCP retransmits", "retransmits", LaneUnit::kPerSecond,
        series.source("host", "tcp.retrans_segs"),
        [&](Window w) { return series.rate("host", "tcp.retrans_segs", w); });
  }
  for (const auto gpu : series.subjects("gpu/")) {
    if (!series.has(gpu, "utilization_pct")) continue;
    recipes.push_back({fmt::format("GPU {}", gpu.substr(4)), "GPU", LaneUnit::kShare,
                       series.source(gpu, "utilization_pct"), 1, [&series, gpu](Window w) {
                         return scaled(series.mean(gpu, "utilization_pct", w), 0.01);
                       }});
  }
}

Lane fill(const LaneRecipe& recipe, const TimeStrip& strip, Nanos period) {
  Lane lane{recipe.name, recipe.group, recipe.unit, recipe.source, recipe.top, 0, 0, {}};
  lane.columns.resize(strip.columns());
  const Nanos span = strip.end - strip.begin;
  const auto columns = static_cast<Nanos>(strip.columns());
  double total = 0;
  double seen = 0;
  for (Nanos column = 0; column < columns; ++column) {
    // A column shorter than the sampling period shows the period around it: nothing finer is known.
    const Window w{strip.begin + span * column / columns,
                   strip.begin + span * (column + 1) / columns};
    const auto mean = recipe.read(w);
    if (!mean) continue;
    Level level{*mean, *mean, *mean};
    const std::int64_t pieces = std::clamp<std::int64_t>(length(w) / period, 1, kMostPieces);
    for (std::int64_t i = 0; pieces > 1 && i < pieces; ++i) {
      const auto piece =
          recipe.read({w.begin + length(w) * i / pieces, w.begin + length(w) * (i + 1) / pieces});
      if (!piece) continue;
      level.low = std::min(level.low, *piece);
      level.high = std::max(level.high, *piece);
    }
    if (recipe.unit == LaneUnit::kShare) level.high = std::min(level.high, 1.0);
    lane.highest = std::max(lane.highest, level.high);
    total += level.mean;
    seen += 1;
    lane.columns[static_cast<std::size_t>(column)] = level;
  }
  lane.mean = seen > 0 ? total / seen : 0;
  if (lane.top <= 0) lane.top = lane.highest;
  return lane;
}

void fill_steps(const probe::RunData& run, TimeStrip& strip) {
  const auto columns = static_cast<Nanos>(strip.columns());
  const Nanos span = strip.end - strip.begin;
  std::vector<double> sums(strip.columns());
  std::vector<double> time(strip.columns());
  for (const auto& step : run.steps) {
    if (step.duration <= 0 || step.start < strip.begin || step.start >= strip.end) continue;
    strip.has_steps = true;
    const auto weight = static_cast<double>(std::max<std::int64_t>(step.weight, 1));
    const double mean = milliseconds(step.duration) / weight;
    const double high = std::max(mean, milliseconds(step.longest));
    const auto column_of = [&](Nanos t) {
      return std::clamp<Nanos>(
          static_cast<Nanos>(static_cast<double>(t - strip.begin) / static_cast<double>(span) *
                             static_cast<double>(columns)),
          0, columns - 1);
    };
    const Nanos first = column_of(step.start);
    const Nanos last = column_of(std::min(step.start + step.duration, strip.end) - 1);
    for (Nanos at = first; at <= last; ++at) {
      const auto i = static_cast<std::size_t>(at);
      auto& column = strip.steps[i];
      if (!column) column = StepColumn{0, {mean, mean, high}, {}, false};
      const Window part =
          overlap({strip.begin + span * at / columns, strip.begin + span * (at + 1) / columns},
                  {step.start, step.start + step.duration});
      const double share = static_cast<double>(std::max<Nanos>(length(part), 1)) /
                           static_cast<double>(step.duration);
      for (std::size_t phase = 0; phase < probe::kPhaseCount; ++phase) {
        column->phases[phase] += static_cast<double>(step.phases[phase]) * share;
      }
      if (at == first) column->steps += weight;
      column->evaluation = column->evaluation || step.evaluation;
      sums[i] += mean * share * weight;
      time[i] += share * weight;
      column->ms.low = std::min(column->ms.low, mean);
      column->ms.high = std::max(column->ms.high, high);
    }
  }
  for (std::size_t i = 0; i < strip.columns(); ++i) {
    auto& column = strip.steps[i];
    if (!column) continue;
    double total = 0;
    for (const double phase : column->phases) total += phase;
    for (double& phase : column->phases) phase = total > 0 ? phase / total : 0;
    if (time[i] > 0) column->ms.mean = sums[i] / time[i];
    strip.highest_ms = std::max(strip.highest_ms, column->ms.high);
  }
}

}  // namespace

bool Lane::quiet() const {
  switch (unit) {
    case LaneUnit::kShare:
    case LaneUnit::kCores:
      return highest < 0.01;
    case LaneUnit::kBytesPerSecond:
      return highest < static_cast<double>(kMiB);
    case LaneUnit::kPerSecond:
      return highest <= 0;
  }
  return false;
}

Nanos end_of(const probe::RunData& run) {
  if (const auto duration = to_int(meta(run, probe::run_meta::kDurationNs));
      duration && *duration > 0)
    return *duration;
  Nanos end = 0;
  for (const auto& series : run.series) {
    if (!series.samples.empty()) end = std::max(end, series.samples.back().t);
  }
  for (const auto& step : run.steps) end = std::max(end, step.start + step.duration);
  return end;
}

TimeStrip make_time_strip(const probe::RunData& run, std::size_t columns) {
  TimeStrip strip;
  strip.end = end_of(run);
  if (strip.end <= strip.begin || columns == 0) return strip;
  strip.steps.resize(columns);
  fill_steps(run, strip);

  const Nanos period = sampling_period(run);
  const SeriesView series(run, strip.end);
  std::vector<LaneRecipe> recipes;
  add_cpu(series, strip.end, recipes);
  add_pressure(series, recipes);
  add_devices(series, recipes);
  for (const auto& recipe : recipes) {
    Lane lane = fill(recipe, strip, period);
    const bool seen = std::any_of(lane.columns.begin(), lane.columns.end(),
                                  [](const auto& column) { return column.has_value(); });
    if (seen) strip.lanes.push_back(std::move(lane));
  }
  return strip;
}

std::string level_text(LaneUnit unit, double value) {
  switch (unit) {
    case LaneUnit::kShare:
      return human_share(value);
    case LaneUnit::kCores:
      return fmt::format("{:.2f} cores", value);
    case LaneUnit::kBytesPerSecond:
      return human_bytes(value) + "/s";
    case LaneUnit::kPerSecond:
      return human_count(value) + "/s";
  }
  return {};
}

}  // namespace bedplate::doctor
