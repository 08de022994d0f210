// Pressure and traffic that the memory and IO rules share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "doctor/input_facts.h"
#include "doctor/run_view.h"

namespace bedplate::doctor {

// Share of time that tasks stood still on a resource ("io", "memory"); of the job's group, else of
// the machine.
inline std::optional<double> pressure(const RunView& run, std::string_view what,
                                      std::string_view kind, Window w) {
  const std::string metric = fmt::format("psi.{}.{}_us", what, kind);
  auto rate = run.series().rate("cgroup/job", metric, w);
  if (!rate) rate = run.series().rate("host", metric, w);
  if (!rate) return std::nullopt;
  return std::clamp(*rate / 1e6, 0.0, 1.0);
}

inline std::string pressure_source(const RunView& run, std::string_view what,
                                   std::string_view kind) {
  const std::string metric = fmt::format("psi.{}.{}_us", what, kind);
  return run.series().source(run.series().has("cgroup/job", metric) ? "cgroup/job" : "host",
                             metric);
}

// What the job read from or wrote to storage during the window (io.read_bytes, io.writes …): by its
// own group, by the nearest group that counts, or by its processes.
inline std::optional<double> storage_traffic(const RunView& run, std::string_view metric,
                                             Window w) {
  if (const auto group = run.series().growth("cgroup/job", metric, w)) return group;
  if (const auto group = run.series().growth("cgroup/io", metric, w)) return group;
  std::optional<double> sum;
  for (const int pid : run.job_pids()) {
    if (const auto one = run.series().growth(proc(pid), metric, w)) sum = sum.value_or(0) + *one;
  }
  return sum;
}

// The part of making batches that was not user code: what faster storage could take away. Without a
// trace of fetches the whole of it.
inline Timeline not_computing(const RunView& run, const RankView& rank) {
  return run.timeline([&](Window w) -> std::optional<double> {
    const Fetches f = fetches(run, rank, w);
    if (!(f.wall_ns > 0)) return 1.0;
    return 1 - f.share(f.user_ns);
  });
}

// Input wait as far as making batches was not user code: what faster storage gives back at most.
inline LostTime input_beyond_computing(const RunView& run) {
  return run.scaled(run.phase_time(probe::Phase::kInputWait),
                    [&](const RankView& rank) { return not_computing(run, rank); });
}

}  // namespace bedplate::doctor
