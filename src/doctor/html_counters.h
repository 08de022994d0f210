// The raw figures behind a report: every series of the run with its file, growth or range, folded
// by subject.
#pragma once

#include <string>

#include "probe/run_data.h"

namespace bedplate::doctor {

// Appends the tables; of a job with very many processes and threads only the ranks' and the busiest
// ones' are listed, and how many are not is said.
void put_counters(std::string& page, const probe::RunData& run);

}  // namespace bedplate::doctor
