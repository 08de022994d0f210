// A report as the JSON object of docs/report.schema.json (schema 1), which scripts rely on.
//
//   write_output(path, render_json(report));
//
// Keys come in a fixed order, shares are rounded to four digits, times to a microsecond; what is
// not known is null or absent from its map, never 0. Texts are made valid UTF-8. Ends with a line
// end. Pure.
#pragma once

#include <string>

#include "doctor/finding.h"

namespace bedplate::doctor {

constexpr int kReportSchema = 1;

std::string render_json(const Report& report);

}  // namespace bedplate::doctor
