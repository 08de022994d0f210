#include "base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace bedplate {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  constexpr std::size_t kPiece = 1U << 30;  // ISA-L counts in int
  unsigned crc = ~before;
  while (!bytes.empty()) {
    const std::size_t n = std::min(bytes.size(), kPiece);
    // Its parameter is not const by oversight: it only reads.
    crc = crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data())),
                      static_cast<int>(n), crc);
    bytes = bytes.subspan(n);
  }
  return ~crc;
}

}  // namespace bedplate
