// From a recorded run to a ranked report: attribution, rules, look-alikes, consequences, order.
//
//   const Report report = judge(probe::read_run(folder), thresholds);
//
// Pure: the same run gives the same report, byte for byte. Thread-safe.
#pragma once

#include <map>
#include <string>

#include "doctor/finding.h"
#include "doctor/rule.h"

namespace bedplate::doctor {

// Values that a user's configuration puts over the rules' own; unknown keys are refused by
// load_thresholds().
using Thresholds = std::map<std::string, double, std::less<>>;

Report judge(const probe::RunData& run, const Thresholds& overrides = {});

// The key/value pairs of a [thresholds] table, checked: throws Error{kInvalid} naming the unknown
// key and its nearest neighbour.
Thresholds check_thresholds(const std::map<std::string, double>& given);

}  // namespace bedplate::doctor
