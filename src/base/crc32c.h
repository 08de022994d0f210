// CRC32C (Castagnoli, as in iSCSI, RFC 3720, and in TFRecord): what guards every sample.
//
//   crc32c("123456789") == 0xe3069283
//   crc32c(tail, crc32c(head)) == crc32c(head + tail)
//
// By ISA-L, with the processor's instruction where there is one (tens of GiB/s). Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace bedplate {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);
inline std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0) {
  return crc32c(std::as_bytes(std::span(bytes)), before);
}

}  // namespace bedplate
