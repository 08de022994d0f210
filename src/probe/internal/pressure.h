// Pressure stall information: how long some or all of the tasks that were not idle waited for a
// resource. Source: Linux Documentation/accounting/psi.rst.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "probe/internal/sampling.h"

namespace bedplate::probe {

// The cpu, memory and io files of one subject.
class PressureFiles {
 public:
  struct Paths {
    std::string cpu, memory, io;
  };

  PressureFiles(const os::HostRoot& host, std::string subject, const Paths& paths);

  // At least one file answers. The kernel makes the files even where PSI is switched off; then
  // reading them fails.
  bool any() const { return any_; }
  void sample(SampleSink& sink);

 private:
  struct One {
    TickFile file;
    std::string_view some_metric, full_metric;
    Rising some, full;
  };
  std::string subject_;
  std::vector<One> files_;
  bool any_ = false;
};

}  // namespace bedplate::probe
