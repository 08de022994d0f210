// Of a build without decoders.
#include "target.h"

namespace bedplate::fuzz {

std::span<const Target> picture_targets() { return {}; }

}  // namespace bedplate::fuzz
