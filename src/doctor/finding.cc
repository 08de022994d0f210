#include "doctor/finding.h"

#include "doctor/rule.h"

namespace bedplate::doctor {

std::string_view name(Status status) {
  switch (status) {
    case Status::kHypothesis:
      return "hypothesis";
    case Status::kSupported:
      return "supported";
    case Status::kEstablished:
      return "established";
  }
  return "hypothesis";
}

std::string_view name(Layer layer) {
  switch (layer) {
    case Layer::kCpu:
      return "CPU";
    case Layer::kFramework:
      return "framework";
    case Layer::kMemory:
      return "memory";
    case Layer::kIo:
      return "IO";
    case Layer::kNetwork:
      return "network";
    case Layer::kGpu:
      return "GPU";
    case Layer::kCoordination:
      return "coordination";
  }
  return "";
}

}  // namespace bedplate::doctor
