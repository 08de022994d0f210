// A rule knows one root cause. It is one file in rules/ that ends in a Rule, and a pure function of
// the recorded run: so it is tested on a recorded run and can be run again on any old one.
//
// The engine, not the rule, answers "could not see" when a needed signal is absent, fills in which
// look-alikes were ruled out, marks consequences and ranks.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "doctor/finding.h"

namespace bedplate::doctor {

class RunView;

enum class Layer : std::uint8_t { kCpu, kFramework, kMemory, kIo, kNetwork, kGpu, kCoordination };
std::string_view name(Layer layer);

struct Threshold {
  std::string_view
      key;  // "cpu_quota.throttled_share": what a user writes in the [thresholds] table
  double value;
  std::string_view unit;  // "share", "ms", "per second"…
  std::string_view why;   // its source, or that it was tuned on healthy runs
};

// What another rule asks of this one when it lists it as a look-alike: why it is NOT this, in
// figures; nullopt when it cannot be ruled out.
using RuleOut = std::optional<std::string> (*)(const RunView&);

// A symptom that this cause brings about: when both rules fire and `holds` agrees, the other rule's
// finding is reported as a consequence of this one's. Declared by the root, so that a new root
// explains old symptoms without a change to them. `holds` may be null: always.
struct Brings {
  std::string_view rule;
  bool (*holds)(const RunView&, const Finding& consequence, const Finding& root) = nullptr;
};

struct Rule {
  std::string_view id;     // as in the catalogue, used in JSON
  std::string_view title;  // "the cgroup's CPU quota stops the job"
  Layer layer;
  // Signals (sampler names, "hook", "steps") without which it cannot judge; "a|b" is satisfied by
  // either.
  std::span<const std::string_view> needs;
  std::span<const std::string_view> look_alikes;  // rule ids
  std::span<const Threshold> thresholds;
  // For the documentation: printed by `bedplate rules --markdown`, checked against docs/doctor.md.
  std::string_view explanation;                // what happens, in two or three sentences
  std::string_view signals;                    // files and fields
  std::span<const std::string_view> symptoms;  // "every 100th step is slow"
  std::string_view verify;                     // the general form of the command
  std::string_view fix;
  std::optional<Finding> (*check)(const RunView&);
  RuleOut rule_out;
  std::span<const Brings> brings = {};
};

std::span<const Rule* const> all_rules();

}  // namespace bedplate::doctor
