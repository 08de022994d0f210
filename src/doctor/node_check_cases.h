// A healthy machine, and for every check what to change in it so that the check fires, and so that
// it does not.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "doctor/node_check.h"

namespace bedplate::doctor {

// A DGX as its maker would like it: only NUMA balancing is turned off.
host::Host healthy();

host::Nic& nic(host::Host& host, std::string_view name);

struct Case {
  std::string id;
  std::string change;  // for the message
  std::function<void(host::Host&)> make;
  CheckState state;
  std::string says;  // part of the text or of the evidence
};

std::vector<Case> all_cases();

}  // namespace bedplate::doctor
