// A comparison for a terminal and for scripts.
//
// The text says the answer first, then what changed layer by layer, then the findings that came and
// went; it fits TextOptions::columns. The JSON object (schema 1) has every metric of both sides
// with its noise; what one side lacks is null.
#pragma once

#include <string>
#include <vector>

#include "doctor/compare.h"
#include "doctor/fail_if.h"
#include "doctor/render_text.h"

namespace bedplate::doctor {

std::string render_text(const Comparison& result, const std::vector<GateResult>& gates,
                        const TextOptions& options = {});
std::string render_json(const Comparison& result, const std::vector<GateResult>& gates);

}  // namespace bedplate::doctor
