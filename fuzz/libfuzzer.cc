// One target for libFuzzer: -DBEDPLATE_FUZZ_TARGET="packed" (tools/fuzz.sh).
#include <cstdint>

#include "target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bedplate::fuzz::Target& target =
      bedplate::fuzz::target_of_name(BEDPLATE_FUZZ_TARGET);
  target.run(std::as_bytes(std::span(data, size)));
  return 0;
}
