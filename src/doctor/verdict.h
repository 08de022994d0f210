// What the report says in one sentence, and what "no time is being lost" means.
//
// Lost is step time that passed without progress and without the job keeping its processors busy:
// waiting for input, writing checkpoints, collecting garbage, standing in a throttled period,
// stalled on memory or IO, and, as far as the job leaves processors free or others take them,
// waiting for a processor or for a slower rank. A job that is slow because it computes is healthy.
// Below the threshold and without a finding the verdict is healthy; above it and without a finding
// it is unknown.
#pragma once

#include <span>

#include "doctor/lost_time.h"
#include "doctor/rule.h"
#include "doctor/run_view.h"

namespace bedplate::doctor {

std::span<const Threshold> verdict_thresholds();

LostTime lost_time(const RunView& run);

// What each rank waited in collectives longer than the rank that waited least, in the steps in
// which the waits of all ranks are known: somebody came late.
LostTime uneven_communication(const RunView& run);

// Fills in verdict and verdict_text from the ranked findings.
void give_verdict(const RunView& run, Report& report);

}  // namespace bedplate::doctor
