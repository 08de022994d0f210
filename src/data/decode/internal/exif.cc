#include "data/decode/internal/exif.h"

#include <cstdint>
#include <string_view>

namespace bedplate::data {

int exif_orientation(std::span<const std::byte> tiff) {
  if (tiff.size() < 8) return 1;
  const std::string_view order(reinterpret_cast<const char*>(tiff.data()), 2);
  if (order != "II" && order != "MM") return 1;
  const auto number = [&](std::size_t at, std::size_t bytes) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      const std::size_t from = order == "MM" ? at + i : at + bytes - 1 - i;
      value = value << 8 | static_cast<std::uint8_t>(tiff[from]);
    }
    return value;
  };
  constexpr std::size_t kEntryBytes = 12;
  constexpr std::uint32_t kOrientation = 0x0112;
  constexpr std::uint32_t kShort = 3;
  const std::size_t directory = number(4, 4);
  if (number(2, 2) != 42 || directory > tiff.size() - 2) return 1;
  const std::size_t entries = number(directory, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > tiff.size()) return 1;
    if (number(entry, 2) != kOrientation) continue;
    const std::uint32_t value = number(entry + 8, 2);
    const bool possible = number(entry + 2, 2) == kShort && value >= 1 && value <= 8;
    return possible ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace bedplate::data
