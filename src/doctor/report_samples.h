// Hand-made reports and a made-up recorded run, for the renderers' tests: values are plausible,
// fixed, and cover every field.
#pragma once

#include <string>
#include <vector>

#include "doctor/finding.h"
#include "probe/run_data.h"

namespace bedplate::doctor {

struct NamedReport {
  std::string name;  // "hostile": also the name of its golden files
  Report report;
};

// full, healthy, unknown, empty, hostile, incomplete, no_steps, many_ranks.
std::vector<NamedReport> sample_reports();

// The one of that name. Aborts when there is none.
Report sample_report(std::string_view name);

// A run of two ranks: `steps` steps a rank of about 50 ms over `duration`, counters every half
// second, a throttled stretch in the middle third, an evaluation at the end. The same for the same
// arguments.
probe::RunData sample_run(std::int64_t steps, Nanos duration);

}  // namespace bedplate::doctor
