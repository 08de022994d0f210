// Memory from which and to which O_DIRECT goes.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace bedplate::os {

constexpr std::size_t kDirectAlignment = 4096;  // enough for every disk of today

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte[], FreeMemory>;

// `size`: a multiple of kDirectAlignment. Throws std::bad_alloc.
inline AlignedMemory aligned_memory(std::size_t size) {
  AlignedMemory memory(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, size)));
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace bedplate::os
