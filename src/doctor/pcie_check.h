// Whether a device's PCIe link runs at what both its ends can do.
#pragma once

#include <string>

#include "doctor/node_check.h"

namespace bedplate::doctor {

// Adds what is wrong with the link of `title` to `result` and draws it at `subject`. False when the
// link is not told.
bool check_link(const NodeView& node, const host::PciDevice& device, const std::string& title,
                const std::string& subject, CheckResult& result);

}  // namespace bedplate::doctor
