// Reads past the page cache (O_DIRECT): ranges, lengths and memory that are no multiples of the
// device's block go through aligned memory of our own.
#pragma once

#include <span>

#include "os/aligned_memory.h"
#include "store/internal/read_engine.h"

namespace bedplate::store {

using os::aligned_memory;
using os::AlignedMemory;
using os::kDirectAlignment;

// As ReadEngine::read(), for descriptors that were opened with O_DIRECT.
void read_directly(const ReadEngine& engine, std::span<RangeRead> reads, int depth,
                   Deadline deadline);

}  // namespace bedplate::store
