#include "doctor/input_facts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "probe/trace_format.h"

namespace bedplate::doctor {
namespace {

using nlohmann::json;

int whole(const json& object, const char* name) {
  const auto it = object.find(name);
  if (it == object.end() || !it->is_number_integer()) return 0;
  return static_cast<int>(std::clamp<std::int64_t>(it->get<std::int64_t>(), 0, 1'000'000));
}

std::optional<Loader> parse_loader(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  Loader loader;
  loader.id = whole(object, "id");
  loader.workers = whole(object, "num_workers");
  loader.batch_size = whole(object, "batch_size");
  loader.prefetch = whole(object, "prefetch_factor");
  if (const auto it = object.find("persistent"); it != object.end() && it->is_boolean())
    loader.persistent = it->get<bool>();
  if (const auto it = object.find("dataset"); it != object.end() && it->is_string())
    loader.dataset = it->get<std::string>();
  return loader;
}

std::vector<int> producers(const RankView& rank) {
  std::vector<int> pids = rank.workers;
  pids.push_back(rank.pid);
  return pids;
}

}  // namespace

std::optional<Loader> main_loader(const RunView& run, const RankView& rank) {
  std::map<int, Loader> loaders;
  std::optional<int> first;
  for (const std::string_view note : run.notes("loader", rank.pid)) {
    if (auto loader = parse_loader(note)) {
      if (!first) first = loader->id;
      loaders.emplace(loader->id, std::move(*loader));
    }
  }
  if (!first) return std::nullopt;
  std::map<int, Nanos> waited;
  if (const auto events = run.data().events.find(rank.pid); events != run.data().events.end()) {
    for (const probe::Event& event : events->second) {
      if (event.kind != static_cast<std::uint16_t>(probe::EventKind::kInputWait) ||
          (event.arg & 1) != 0)
        continue;
      waited[static_cast<int>(event.arg >> 8 & 0xFFFFFF)] += std::max<Nanos>(0, event.duration);
    }
  }
  int most = *first;
  Nanos longest = 0;
  for (const auto& [id, time] : waited) {
    if (time > longest && loaders.count(id) != 0) {
      most = id;
      longest = time;
    }
  }
  return loaders.at(most);
}

Fetches fetches(const RunView& run, const RankView& rank, Window w) {
  Fetches out;
  const SeriesView& series = run.series();
  for (const int pid : producers(rank)) {
    const std::string subject = proc(pid);
    const double wall = series.growth(subject, "trace.fetch_wall_ns", w).value_or(0);
    if (!(wall > 0)) continue;
    const double user = series.growth(subject, "trace.fetch_user_ns", w).value_or(0);
    const double system = series.growth(subject, "trace.fetch_system_ns", w).value_or(0);
    out.batches += series.growth(subject, "trace.fetches", w).value_or(0);
    out.wall_ns += wall;
    out.user_ns += user;
    out.system_ns += system;
    out.files += series.growth(subject, "trace.files_opened", w).value_or(0);
    out.read_bytes += series.growth(subject, "io.rchar", w).value_or(0);
    out.reads += series.growth(subject, "io.syscr", w).value_or(0);
    out.storage_bytes += series.growth(subject, "io.read_bytes", w).value_or(0);
    out.loader_bytes += series.growth(subject, "trace.data_bytes", w).value_or(0);
    out.major_faults += series.growth(subject, "major_faults", w).value_or(0);
    out.minor_faults += series.growth(subject, "minor_faults", w).value_or(0);
    // A producer's delay is known for all its threads together; it is the fetch's as far as the
    // fetch was the one running.
    const double delay = series.growth(subject, "cpu.run_delay_ns", w).value_or(0);
    const double ran = series.growth(subject, "cpu.run_ns", w).value_or(0);
    const double part = ran > 0 ? std::min(1.0, (user + system) / ran) : 0;
    out.delay_ns += std::min(delay * part, std::max(0.0, wall - user - system));
  }
  return out;
}

Fetches all_fetches(const RunView& run) {
  Fetches sum;
  for (const RankView& rank : run.ranks()) {
    const Fetches one = fetches(run, rank, run.window());
    sum.batches += one.batches;
    sum.wall_ns += one.wall_ns;
    sum.user_ns += one.user_ns;
    sum.system_ns += one.system_ns;
    sum.delay_ns += one.delay_ns;
    sum.files += one.files;
    sum.read_bytes += one.read_bytes;
    sum.reads += one.reads;
    sum.storage_bytes += one.storage_bytes;
    sum.loader_bytes += one.loader_bytes;
    sum.major_faults += one.major_faults;
    sum.minor_faults += one.minor_faults;
  }
  return sum;
}

int worker_count(const RunView& run) {
  int count = 0;
  for (const RankView& rank : run.ranks()) {
    const auto loader = main_loader(run, rank);
    count += loader ? loader->workers : static_cast<int>(rank.workers.size());
  }
  return count;
}

std::optional<double> workers_making(const RunView& run) {
  const int count = worker_count(run);
  if (count == 0 || length(run.window()) == 0) return std::nullopt;
  std::optional<double> wall;
  for (const RankView& rank : run.ranks()) {
    for (const int pid : rank.workers) {
      const auto grown = run.series().growth(proc(pid), "trace.fetch_wall_ns", run.window());
      if (grown) wall = wall.value_or(0) + *grown;
    }
  }
  if (!wall) return std::nullopt;
  return std::min(1.0, *wall / static_cast<double>(length(run.window())) / count);
}

std::optional<double> workers_cpu(const RunView& run) {
  const int count = worker_count(run);
  if (count == 0 || length(run.window()) == 0) return std::nullopt;
  std::optional<double> cpu;
  for (const RankView& rank : run.ranks()) {
    for (const int pid : rank.workers) {
      const auto user = run.series().growth(proc(pid), "cpu.user_ns", run.window());
      const auto system = run.series().growth(proc(pid), "cpu.system_ns", run.window());
      if (user || system) cpu = cpu.value_or(0) + user.value_or(0) + system.value_or(0);
    }
  }
  if (!cpu) return std::nullopt;
  return *cpu / static_cast<double>(length(run.window())) / count;
}

}  // namespace bedplate::doctor
