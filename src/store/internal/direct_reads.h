// Reads past the page cache (O_DIRECT): ranges, lengths and memory that are no multiples of the
// device's block go through aligned memory of our own.
#pragma once

#include <cstdlib>
#include <memory>
#include <span>

#include "store/internal/read_engine.h"

namespace bedplate::store {

constexpr std::size_t kDirectAlignment = 4096;  // enough for every disk of today

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte[], FreeMemory>;
// `size`: a multiple of kDirectAlignment. Throws std::bad_alloc.
AlignedMemory aligned_memory(std::size_t size);

// As ReadEngine::read(), for descriptors that were opened with O_DIRECT.
void read_directly(const ReadEngine& engine, std::span<RangeRead> reads, int depth,
                   Deadline deadline);

}  // namespace bedplate::store
