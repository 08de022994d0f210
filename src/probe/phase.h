// What a training step's time is divided into, without overlap.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "base/units.h"

namespace bedplate::probe {

enum class Phase : std::uint8_t {
  kInputWait,      // the loop waits for its next batch
  kH2d,            // host-to-device copies that the loop waits for
  kCompute,        // forward, backward and what the script does between them
  kCommunication,  // inside collectives, and DDP's all-reduce as far as backward did not hide it
  kOptimizer,
  kCheckpoint,  // torch.save, torch.distributed.checkpoint, and the fsync calls inside
  kGc,          // Python's garbage collector
  kOther,  // between the optimizer's end and the next batch: logging, evaluation, the script's own
           // work
};

constexpr std::size_t kPhaseCount = 8;

// Names as the JSON report has them.
constexpr std::array<std::string_view, kPhaseCount> kPhaseNames = {
    "input_wait", "h2d", "compute", "communication", "optimizer", "checkpoint", "gc", "other"};

using PhaseTimes = std::array<Nanos, kPhaseCount>;

constexpr std::size_t index(Phase phase) { return static_cast<std::size_t>(phase); }

}  // namespace bedplate::probe
