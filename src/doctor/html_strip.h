// The time strip of the HTML report: steps on top, coloured by phase, where each finding's evidence
// holds, and what the machine did, all on one time axis. A few hundred kilobytes whatever the
// length of the run.
#pragma once

#include <string>

#include "doctor/finding.h"
#include "doctor/time_strip.h"

namespace bedplate::doctor {

// Appends the strip to the page; nothing when there is nothing to show. Plots stretch with the
// page, texts do not.
void put_time_strip(std::string& page, const TimeStrip& strip, const Report& report);

}  // namespace bedplate::doctor
