// The parts of a report that are figures rather than judgement: steps and phases, resources in the
// words of /usr/bin/time -v.
#pragma once

#include <string>
#include <vector>

#include "doctor/run_view.h"

namespace bedplate::doctor {

// Medians and phases of the steady steps; empty for a job without steps.
StepSummary step_summary(const RunView& run);

// Resource use of the ranks, without ranks of the job's first process.
std::vector<probe::ResourceUse> main_resources(const RunView& run);

// What those figures mean here, one line each, beginning with the name that /usr/bin/time -v gives
// them.
std::vector<std::string> resource_remarks(const RunView& run,
                                          const std::vector<probe::ResourceUse>& resources);

// Where phases are not what they seem, since a process trains in several threads: one thread asks
// for batches and another one steps, or several step.
std::vector<std::string> thread_remarks(const RunView& run);

// What this report lacks because of missing permission: "as root the report would also have …".
std::vector<std::string> permission_remarks(const RunView& run);

}  // namespace bedplate::doctor
