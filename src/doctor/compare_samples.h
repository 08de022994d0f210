// Made-up runs for the tests of the comparison: steps with memory, as real ones have it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "probe/run_data.h"

namespace bedplate::doctor {

// Seeded normal values by Box and Muller over splitmix64: the same on every machine.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed) {}
  double normal() {
    return std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
  }

 private:
  double uniform() {
    state_ += 0x9E3779B97F4A7C15;
    std::uint64_t z = (state_ ^ state_ >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return (static_cast<double>((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
  }
  std::uint64_t state_;
};

struct RunShape {
  double step_ms = 50;
  double wait_share = 0.1;  // of the step, waiting for input
  double noise = 0.02;      // of the step, one standard deviation, with a memory of some ten steps
  std::int64_t steps = 600;
  std::uint64_t seed = 1;
  double io_pressure = 0.05;
  std::int64_t stall_every = 0;  // steps; 0: never
  double stall_ms = 0;
};

inline probe::RunData noisy_run(const RunShape& shape) {
  Noise noise(shape.seed);
  probe::RunData run;
  run.meta = {{"sample_hz", "2"}, {"version", "0.1.0"}, {"exit_code", "0"}};
  run.processes = {{.pid = 7,
                    .ppid = 1,
                    .comm = "python",
                    .rank = 0,
                    .world_size = 1,
                    .role = "rank",
                    .hook = "active"}};
  run.signals = {{"hook", true, ""}, {"cgroup.psi", true, ""}};
  double memory = 0;
  Nanos at = 0;
  for (std::int64_t i = 0; i < shape.steps; ++i) {
    memory = 0.8 * memory + 0.6 * noise.normal();
    double ms = shape.step_ms * (1 + shape.noise * memory);
    if (shape.stall_every > 0 && i % shape.stall_every == shape.stall_every - 1)
      ms += shape.stall_ms;
    probe::Step step{
        .pid = 7, .rank = 0, .index = i, .start = at, .duration = static_cast<Nanos>(ms * 1e6)};
    step.longest = step.duration;
    const auto wait = static_cast<Nanos>(shape.wait_share * shape.step_ms * 1e6);
    step.phases[index(probe::Phase::kInputWait)] = wait;
    step.phases[index(probe::Phase::kCompute)] = step.duration - wait;
    run.steps.push_back(step);
    at += step.duration;
  }
  run.meta["duration_ns"] = std::to_string(at);
  probe::Series io{"cgroup/job", "psi.io.some_us", probe::SeriesKind::kCounter, "io.pressure", {}};
  double total = 0;
  for (Nanos t = 0; t <= at; t += kSecond / 2) {
    io.samples.push_back({t, static_cast<std::int64_t>(total)});
    total += std::max(0.0, shape.io_pressure * (1 + 0.3 * noise.normal())) * 5e5;
  }
  run.series = {io};
  return run;
}

}  // namespace bedplate::doctor
