#include "doctor/compare_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/units.h"
#include "doctor/compare_stats.h"
#include "doctor/cpu_facts.h"
#include "doctor/run_view.h"
#include "doctor/words.h"

namespace bedplate::doctor {
namespace {

using enum Better;

// Two runs of one job differ by more than the noise inside each: where the pages lie, what the
// neighbours do. 3 % of step time is what repeated runs of healthy jobs on a shared two-core
// machine stayed within; several runs a side measure it instead.
constexpr double kStepSpread = 0.03;
constexpr double kPhaseSpread = 0.02;  // of the step
constexpr double kRateSpread = 0.10;
constexpr double kMiBs = static_cast<double>(kMiB);

constexpr Metric kMetrics[] = {
    {"step_ms", "steps", "step time, median", MetricUnit::kMilliseconds, kLower, kStepSpread, 0.01},
    {"step_p99_ms", "steps", "step time, 99th percentile", MetricUnit::kMilliseconds, kLower,
     kRateSpread, 0.01},
    {"steps_per_s", "steps", "steps a second, stalls included", MetricUnit::kPerSecond, kHigher,
     kStepSpread, 0},
    {"input_wait_ms", "phases", "input wait a step", MetricUnit::kMilliseconds, kLower, kRateSpread,
     0.01, kPhaseSpread},
    {"h2d_ms", "phases", "host to device a step", MetricUnit::kMilliseconds, kLower, kRateSpread,
     0.01, kPhaseSpread},
    {"compute_ms", "phases", "compute a step", MetricUnit::kMilliseconds, kLower, kStepSpread, 0.01,
     kPhaseSpread},
    {"communication_ms", "phases", "communication a step", MetricUnit::kMilliseconds, kLower,
     kRateSpread, 0.01, kPhaseSpread},
    {"optimizer_ms", "phases", "optimizer a step", MetricUnit::kMilliseconds, kLower, kRateSpread,
     0.01, kPhaseSpread},
    {"checkpoint_ms", "phases", "checkpoint a step", MetricUnit::kMilliseconds, kLower, kRateSpread,
     0.01, kPhaseSpread},
    {"gc_ms", "phases", "Python GC a step", MetricUnit::kMilliseconds, kLower, kRateSpread, 0.01,
     kPhaseSpread},
    {"other_ms", "phases", "other a step", MetricUnit::kMilliseconds, kLower, kRateSpread, 0.01,
     kPhaseSpread},
    {"job_cpu_cores", "CPU", "CPU that the job used", MetricUnit::kCores, kNeither, kRateSpread,
     0.1},
    {"other_cpu_cores", "CPU", "CPU that others used", MetricUnit::kCores, kLower, kRateSpread,
     0.1},
    {"cpu_throttled", "CPU", "periods throttled by the quota", MetricUnit::kShare, kLower,
     kRateSpread, 0.05},
    {"cpu_pressure", "pressure", "CPU pressure", MetricUnit::kShare, kLower, kRateSpread, 0.05},
    {"memory_pressure", "pressure", "memory pressure", MetricUnit::kShare, kLower, kRateSpread,
     0.02},
    {"io_pressure", "pressure", "IO pressure", MetricUnit::kShare, kLower, kRateSpread, 0.05},
    {"peak_rss_bytes", "memory", "peak memory of the largest rank", MetricUnit::kBytes, kLower,
     0.05, 16 * kMiBs},
    {"major_faults_per_s", "memory", "major page faults", MetricUnit::kPerSecond, kLower,
     kRateSpread, 20},
    {"refault_bytes_per_s", "memory", "page cache read again", MetricUnit::kBytesPerSecond, kLower,
     kRateSpread, kMiBs},
    {"disk_read_bytes_per_s", "IO", "disk reads", MetricUnit::kBytesPerSecond, kNeither,
     kRateSpread, kMiBs},
    {"disk_write_bytes_per_s", "IO", "disk writes", MetricUnit::kBytesPerSecond, kNeither,
     kRateSpread, kMiBs},
    {"network_bytes_per_s", "network", "network, both ways", MetricUnit::kBytesPerSecond, kNeither,
     kRateSpread, kMiBs},
    {"tcp_retransmits_per_s", "network", "TCP retransmits", MetricUnit::kPerSecond, kLower,
     kRateSpread, 5},
    {"duration_s", "run", "length of the run", MetricUnit::kSeconds, kLower, 0.05, 0.5},
    {"findings", "run", "causes found", MetricUnit::kCount, kLower, 0, 0.5},
};

// The steps of the job in order: at each position the mean over its ranks, which wait for one
// another or do not.
std::vector<StepView> job_steps(const RunView& run) {
  std::size_t count = run.ranks().empty() ? 0 : run.ranks().front().steps.size();
  for (const auto& rank : run.ranks()) count = std::min(count, rank.steps.size());
  std::vector<StepView> steps;
  const auto ranks = static_cast<Nanos>(run.ranks().size());
  for (std::size_t i = 0; i < count; ++i) {
    StepView mean;
    for (const auto& rank : run.ranks()) {
      const StepView& step = rank.steps[i];
      mean.end += (step.end - step.begin) / std::max<Nanos>(step.weight, 1) / ranks;
      for (std::size_t p = 0; p < probe::kPhaseCount; ++p)
        mean.phases[p] += step.phases[p] / std::max<Nanos>(step.weight, 1) / ranks;
    }
    steps.push_back(mean);
  }
  return steps;
}

Measure measure_of(double value, std::vector<double> values, Statistic statistic) {
  Blocks blocks = block_values(values, statistic);
  Measure measure{value, std::move(blocks.values)};
  measure.enough = blocks.length * kFewestBlocks;
  if (values.size() < kFewestValues) return measure;
  std::sort(values.begin(), values.end());
  measure.range = {values[values.size() / 10], values[values.size() - 1 - values.size() / 10]};
  return measure;
}

void measure_steps(const RunView& run, const Report& report, MeasuredRun& out) {
  const auto steps = job_steps(run);
  if (!run.has_steps() || steps.empty()) return;
  std::vector<double> ms;
  double total = 0;
  for (const auto& step : steps) {
    ms.push_back(milliseconds(step.end));
    total += ms.back();
  }
  if (!(total > 0)) return;
  out.measures["step_ms"] = measure_of(report.steps.median_ms, ms, Statistic::kMedian);
  out.measures["step_p99_ms"] = {report.steps.p99_ms, {}, true};
  Measure rate = measure_of(1000 * static_cast<double>(ms.size()) / total, ms, Statistic::kMean);
  const auto per_second = [](double each) { return each > 0 ? 1000 / each : 0; };
  for (double& block : rate.blocks) block = per_second(block);
  if (rate.range) rate.range = {per_second(rate.range->second), per_second(rate.range->first)};
  out.measures["steps_per_s"] = std::move(rate);
  for (std::size_t p = 0; p < probe::kPhaseCount; ++p) {
    std::vector<double> values;
    double sum = 0;
    for (const auto& step : steps) {
      values.push_back(milliseconds(step.phases[p]));
      sum += values.back();
    }
    const double mean = sum / static_cast<double>(values.size());
    out.measures[std::string(probe::kPhaseNames[p]) + "_ms"] =
        measure_of(mean, std::move(values), Statistic::kMean);
  }
}

// A metric of time: its mean over the steady window, blocks from the sampling periods.
void measure_rate(const RunView& run, std::string_view name,
                  const std::function<std::optional<double>(Window)>& read, MeasuredRun& out) {
  const auto value = read(run.window());
  if (!value || !std::isfinite(*value)) return;
  std::vector<double> values;
  for (const Window w : run.grid()) {
    if (const auto one = read(w)) values.push_back(*one);
  }
  out.measures[std::string(name)] = measure_of(*value, std::move(values), Statistic::kMean);
}

std::optional<double> sum_of_rates(const RunView& run, std::string_view prefix,
                                   std::initializer_list<std::string_view> metrics, Window w) {
  std::optional<double> sum;
  for (const auto subject : run.series().subjects(prefix)) {
    if (subject == "net/lo") continue;
    for (const auto metric : metrics) {
      if (const auto rate = run.series().rate(subject, metric, w)) sum = sum.value_or(0) + *rate;
    }
  }
  return sum;
}

void measure_machine(const RunView& run, MeasuredRun& out) {
  const SeriesView& series = run.series();
  const auto rate = [&](std::string_view name, std::string_view subject, std::string_view metric,
                        double factor) {
    measure_rate(
        run, name,
        [&](Window w) -> std::optional<double> {
          const auto value = series.rate(subject, metric, w);
          return value ? std::optional(*value * factor) : std::nullopt;
        },
        out);
  };
  measure_rate(
      run, "job_cpu_cores", [&](Window w) { return job_cpus(run, w); }, out);
  measure_rate(
      run, "other_cpu_cores", [&](Window w) { return outside_cpus(run, w); }, out);
  measure_rate(
      run, "cpu_throttled",
      [&](Window w) -> std::optional<double> {
        const auto periods = series.growth("cgroup/cpu", "cpu.periods", w);
        const auto throttled = series.growth("cgroup/cpu", "cpu.throttled_periods", w);
        if (!periods || !throttled) return std::nullopt;
        return *periods > 0 ? std::min(1.0, *throttled / *periods) : 0.0;
      },
      out);
  for (const std::string kind : {"cpu", "memory", "io"}) {
    const std::string metric = "psi." + kind + ".some_us";
    rate(kind + "_pressure", series.has("cgroup/job", metric) ? "cgroup/job" : "host", metric,
         1e-6);
  }
  measure_rate(
      run, "major_faults_per_s",
      [&](Window w) { return sum_of_rates(run, "proc/", {"major_faults"}, w); }, out);
  rate("refault_bytes_per_s", "cgroup/memory", "memory.refault_file_pages", 4096);
  measure_rate(
      run, "disk_read_bytes_per_s",
      [&](Window w) { return sum_of_rates(run, "disk/", {"read_bytes"}, w); }, out);
  measure_rate(
      run, "disk_write_bytes_per_s",
      [&](Window w) { return sum_of_rates(run, "disk/", {"write_bytes"}, w); }, out);
  measure_rate(
      run, "network_bytes_per_s",
      [&](Window w) {
        return sum_of_rates(run, "net/", {"rx_bytes", "tx_bytes"}, w);
      },
      out);
  rate("tcp_retransmits_per_s", "host", "tcp.retrans_segs", 1);
}

}  // namespace

std::span<const Metric> all_metrics() { return kMetrics; }

const Metric* find_metric(std::string_view name) {
  const auto found = std::find_if(std::begin(kMetrics), std::end(kMetrics),
                                  [&](const Metric& metric) { return metric.name == name; });
  return found == std::end(kMetrics) ? nullptr : &*found;
}

std::string metric_text(MetricUnit unit, double value) {
  switch (unit) {
    case MetricUnit::kMilliseconds:
      return milliseconds_text(value);
    case MetricUnit::kSeconds:
      return human_duration(static_cast<Nanos>(value * 1e9));
    case MetricUnit::kPerSecond:
      return human_count(std::round(value * 100) / 100) + "/s";
    case MetricUnit::kShare:
      return human_share(value);
    case MetricUnit::kCores:
      return fmt::format("{:.2f} cores", value);
    case MetricUnit::kBytes:
      return human_bytes(value);
    case MetricUnit::kBytesPerSecond:
      return human_bytes(value) + "/s";
    case MetricUnit::kCount:
      return human_count(value);
  }
  return {};
}

MeasuredRun measure(std::string name, const probe::RunData& data, Report report) {
  MeasuredRun out;
  out.name = std::move(name);
  const RunView run(data);
  measure_steps(run, report, out);
  measure_machine(run, out);
  double peak = 0;
  for (const auto& use : report.resources)
    peak = std::max(peak, static_cast<double>(use.peak_rss_bytes));
  if (peak > 0) out.measures["peak_rss_bytes"] = {peak, {}, true};
  if (report.duration > 0) out.measures["duration_s"] = {seconds(report.duration), {}, true};
  const auto roots = std::count_if(report.findings.begin(), report.findings.end(),
                                   [](const Finding& f) { return !f.because_of; });
  out.measures["findings"] = {static_cast<double>(roots), {}, true};
  out.report = std::move(report);
  return out;
}

}  // namespace bedplate::doctor
