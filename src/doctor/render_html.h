// A report as one HTML file: no script, no network, light and dark, readable on a phone.
//
//   os::write_output("report.html", render_html(report, run));
//
// Holds the time strip, a card a cause, every rule's state, the machine as it was drawn, the lines
// of /usr/bin/time -v, and the raw counters with the files they were read from. Under 2 MB however
// long the run. Whatever the job wrote is escaped, and a content security policy forbids scripts
// and any request. Pure; thread-safe.
#pragma once

#include <string>

#include "doctor/finding.h"
#include "probe/run_data.h"

namespace bedplate::doctor {

std::string render_html(const Report& report, const probe::RunData& run);

}  // namespace bedplate::doctor
