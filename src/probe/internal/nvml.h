// NVIDIA GPUs, asked through the driver's library in a child process: a dying GPU blocks whoever
// asks it.
//
// The library is found at run time (libnvidia-ml.so.1 comes with the driver); nothing of NVIDIA's
// is needed to build. No profiling fields are read, and nothing is set. Source: NVML API reference,
// https://docs.nvidia.com/deploy/nvml-api/.
#pragma once

#include <memory>
#include <string>

#include "base/units.h"
#include "probe/sampler.h"

namespace bedplate::probe {

struct NvmlOptions {
  std::string library = "libnvidia-ml.so.1";
  Nanos answer_within = 2 * kSecond;  // one reading of all GPUs
  Nanos first_answer_within =
      10 * kSecond;                  // without a persistence daemon the driver first wakes the GPUs
  Nanos wait_at_open = 2 * kSecond;  // for the library to be found and the driver to answer
};

// Throws Error{kUnsupported} "no NVIDIA driver: …" or Error{kUnavailable | kTimeout}. sample()
// never waits: it takes the answer to the last question, if there is one, and asks the next.
std::unique_ptr<Sampler> open_nvml(const NvmlOptions& options);

}  // namespace bedplate::probe
