// What the tables of checks share.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <utility>

#include "doctor/node_check.h"

namespace bedplate::doctor {

// The tables, one a file.
std::span<const NodeCheck> cpu_checks();
std::span<const NodeCheck> memory_checks();
std::span<const NodeCheck> limit_checks();
std::span<const NodeCheck> io_checks();
std::span<const NodeCheck> network_checks();
std::span<const NodeCheck> gpu_checks();
std::span<const NodeCheck> system_checks();

CheckResult all_well(std::string text);
CheckResult not_seen(std::string why);
CheckResult not_applicable(std::string why);
CheckResult found(CheckState state, std::string text, std::string source, std::string seen);

// Adds what was seen at one of several subjects; the result takes the worst state. With a subject
// it is also drawn there.
void add(CheckResult& result, CheckState state, std::string source, std::string seen,
         std::string subject = {});

// Ends a result that was made of add(): its text is `well` when nothing was added, what was seen
// when that is one thing, `many` when it is several.
CheckResult concluded(CheckResult result, std::string many, std::string well);

std::string bytes(std::int64_t value);  // "64 MiB", "unlimited"

std::string plural(std::size_t n, std::string_view one,
                   std::string_view many);  // "1 GPU", "8 GPUs"

}  // namespace bedplate::doctor
