#include "doctor/data_plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace bedplate::doctor {
namespace {

using nlohmann::json;

constexpr std::size_t kMostShown = 4;
constexpr int kTogether = -2;  // as a rank: several

std::string text_of(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::int64_t whole_of(const json& object, const char* name) {
  const auto it = object.find(name);
  return it != object.end() && it->is_number_integer()
             ? std::max<std::int64_t>(0, it->get<std::int64_t>())
             : 0;
}

void take_line(std::string_view line, DataPlane& plane) {
  const json object = json::parse(line, nullptr, false);
  if (!object.is_object()) return;
  plane.url = text_of(object, "url");
  plane.cache = text_of(object, "cache");
  plane.window_bytes = whole_of(object, "window");
  plane.trouble = text_of(object, "trouble");
  plane.set_bytes = whole_of(object, "bytes");
  plane.set_samples = whole_of(object, "samples");
  plane.remote_p99 = whole_of(object, "remote_p99_ns");
}

// A process may have several loaders: the one with most data is what is named.
void take_lines(const std::vector<std::string_view>& lines, DataPlane& plane) {
  for (const std::string_view line : lines) {
    DataPlane one;
    take_line(line, one);
    if (one.set_bytes < plane.set_bytes) continue;
    plane.url = std::move(one.url);
    plane.cache = std::move(one.cache);
    plane.window_bytes = one.window_bytes;
    plane.trouble = std::move(one.trouble);
    plane.set_bytes = one.set_bytes;
    plane.set_samples = one.set_samples;
    plane.remote_p99 = one.remote_p99;
  }
}

constexpr std::pair<std::string_view, std::int64_t DataPlane::*> kCounters[] = {
    {"trace.fetches", &DataPlane::batches},
    {"trace.data_samples", &DataPlane::samples},
    {"trace.data_bytes", &DataPlane::bytes},
    {"trace.data_wait_ns", &DataPlane::loop_wait},
    {"trace.data_make_ns", &DataPlane::make},
    {"trace.data_read_ns", &DataPlane::store_wait},
    {"trace.data_decode_ns", &DataPlane::decode},
    {"trace.data_idle_ns", &DataPlane::idle},
    {"trace.cache_hits", &DataPlane::hits},
    {"trace.cache_hit_bytes", &DataPlane::hit_bytes},
    {"trace.cache_memory_bytes", &DataPlane::memory_bytes},
    {"trace.cache_misses", &DataPlane::misses},
    {"trace.cache_origin_bytes", &DataPlane::origin_bytes},
    {"trace.cache_evictions", &DataPlane::evictions},
    {"trace.cache_pass_throughs", &DataPlane::pass_throughs},
    {"trace.cache_waits", &DataPlane::waits},
    {"trace.remote_reads", &DataPlane::remote_reads},
    {"trace.remote_ns", &DataPlane::remote_time},
    {"trace.remote_bytes", &DataPlane::remote_bytes},
    {"trace.remote_retries", &DataPlane::remote_retries},
    {"trace.remote_failures", &DataPlane::remote_failures}};

// A counter of a process begins at 0 and is first written when it has grown: what it had by then
// belongs to the window that holds its first sample.
std::optional<double> counted(const RunView& run, int pid, std::string_view metric, Window window) {
  const probe::Series* const series = run.series().find(proc(pid), metric);
  if (series == nullptr || series->samples.empty()) return std::nullopt;
  const probe::Sample& first = series->samples.front();
  const bool begins = first.t >= window.begin && first.t <= window.end;
  const auto grown = run.series().growth(proc(pid), metric, window);
  if (!begins) return grown;
  return static_cast<double>(first.value) + grown.value_or(0);
}

std::string bytes_text(std::int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }
std::string count_text(std::int64_t n) { return human_count(static_cast<double>(n)); }
std::string share_text(std::int64_t part, std::int64_t of) {
  return human_share(
      of > 0 ? std::clamp(static_cast<double>(part) / static_cast<double>(of), 0.0, 1.0) : 0);
}

std::string read_text(const DataPlane& plane) {
  std::string text = fmt::format("{} samples, {}, in {} batches", count_text(plane.samples),
                                 bytes_text(plane.bytes), count_text(plane.batches));
  if (!plane.url.empty()) text += fmt::format(", of {}", plane.url);
  if (plane.set_bytes > 0)
    text += fmt::format(" ({}, {} samples)", bytes_text(plane.set_bytes),
                        count_text(plane.set_samples));
  return text;
}

DataLine cache_line(const DataPlane& plane) {
  const bool window = plane.cache.empty();
  const std::int64_t all = plane.hit_bytes + plane.origin_bytes;
  const std::string in_memory =
      window ? std::string()
             : fmt::format(" ({} of that from memory)", bytes_text(plane.memory_bytes));
  return {window ? "window" : "cache",
          fmt::format("{}: {} of {} from it{}; {} from the origin in {} blocks; {} blocks evicted",
                      window ? bytes_text(plane.window_bytes) + " of memory" : plane.cache,
                      share_text(plane.hit_bytes, all), bytes_text(all), in_memory,
                      bytes_text(plane.origin_bytes), count_text(plane.misses),
                      count_text(plane.evictions))};
}

std::string passed_text(const DataPlane& plane) {
  return fmt::format("{} reads went past the cache{}{}", count_text(plane.pass_throughs),
                     plane.trouble.empty() ? "" : ": ", plane.trouble);
}

std::string remote_text(const DataPlane& plane) {
  const std::string slowest =
      plane.remote_p99 > 0 ? fmt::format(", 99 of 100 within {}", human_duration(plane.remote_p99))
                           : std::string();
  return fmt::format("{} reads, {}; a read takes {}{}; {} tried again, {} failed",
                     count_text(plane.remote_reads), bytes_text(plane.remote_bytes),
                     human_duration(plane.remote_time / plane.remote_reads), slowest,
                     count_text(plane.remote_retries), count_text(plane.remote_failures));
}

// Who waited for whom. What a thread does besides is waiting for a processor, or for what a
// caller's own decode function waits for.
std::string waiting_text(const DataPlane& plane) {
  const Nanos all = plane.make + plane.idle;
  const Nanos rest = std::max<Nanos>(0, plane.make - plane.store_wait - plane.decode);
  return fmt::format(
      "the loop waited {} for the loader; its threads spent {} of their time waiting for the "
      "store, {} decoding, {} waiting for the loop, {} otherwise",
      human_duration(plane.loop_wait), share_text(plane.store_wait, all),
      share_text(plane.decode, all), share_text(plane.idle, all), share_text(rest, all));
}

std::string label_of(const DataPlane& plane) {
  if (plane.rank == kTogether) return "all";
  return plane.rank >= 0 ? fmt::format("rank {}", plane.rank) : fmt::format("pid {}", plane.pid);
}

}  // namespace

std::optional<DataPlane> data_plane_of(const RunView& run, int pid, Window window) {
  const auto lines = run.notes("loader_data", pid);
  DataPlane plane;
  plane.pid = pid;
  bool any = false;
  for (const auto& [metric, member] : kCounters) {
    const auto grown = counted(run, pid, metric, window);
    plane.*member = static_cast<std::int64_t>(std::clamp(grown.value_or(0), 0.0, 1e16));
    any |= grown.has_value() && metric.starts_with("trace.data_");
  }
  if (lines.empty() && !any) return std::nullopt;
  take_lines(lines, plane);
  if (const RankView* rank = run.rank_of(pid)) plane.rank = rank->rank;
  return plane;
}

std::vector<DataPlane> data_planes(const RunView& run, Window window) {
  std::vector<DataPlane> out;
  for (const int pid : run.job_pids()) {
    if (auto plane = data_plane_of(run, pid, window)) out.push_back(*std::move(plane));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const DataPlane& a, const DataPlane& b) { return a.rank < b.rank; });
  return out;
}

DataPlane together(const std::vector<DataPlane>& planes) {
  DataPlane sum;
  for (const DataPlane& one : planes) {
    for (const auto& [metric, member] : kCounters) sum.*member += one.*member;
    if (sum.url.empty()) sum.url = one.url;
    if (sum.cache.empty()) sum.cache = one.cache;
    sum.window_bytes = std::max(sum.window_bytes, one.window_bytes);  // a machine has one
    if (sum.trouble.empty()) sum.trouble = one.trouble;
    if (one.set_bytes > sum.set_bytes) {
      sum.set_bytes = one.set_bytes;
      sum.set_samples = one.set_samples;
    }
    sum.remote_p99 = std::max(sum.remote_p99, one.remote_p99);
  }
  sum.rank = kTogether;
  return sum;
}

std::vector<DataPlane> shown_planes(const std::vector<DataPlane>& planes) {
  if (planes.size() <= kMostShown) return planes;
  return {together(planes)};
}

std::vector<DataLine> data_lines(const DataPlane& plane) {
  std::vector<DataLine> lines = {{label_of(plane), read_text(plane)}};
  if (plane.counts_hits()) lines.push_back(cache_line(plane));
  if (plane.pass_throughs > 0 || !plane.trouble.empty())
    lines.push_back({"past it", passed_text(plane)});
  if (plane.remote_reads > 0) lines.push_back({"remote", remote_text(plane)});
  lines.push_back({"waiting", waiting_text(plane)});
  return lines;
}

}  // namespace bedplate::doctor
