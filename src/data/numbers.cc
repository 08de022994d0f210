#include "data/numbers.h"

#include <bit>
#include <cmath>

namespace bedplate::data {

std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  if (std::isnan(value)) return sign | 0x7E00;
  const float size = std::fabs(value);
  if (size >= 65520.0F) return sign | 0x7C00;  // halfway to the next one, which there is not
  // Steps of 2^-24 below 2^-14, above of 2^-10 times the power of two; nearbyint() rounds ties to
  // even.
  if (size < 0x1p-14F)
    return sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(size, 24)));
  int exponent = 0;
  std::frexp(size, &exponent);
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 11 - exponent)));
  return sign | static_cast<std::uint16_t>(((exponent + 13) << 10) + static_cast<int>(steps));
}

float from_f16(std::uint16_t bits) {
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  const int exponent = bits >> 10 & 0x1F;
  const int steps = bits & 0x3FF;
  if (exponent == 31) return steps == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(steps), -24);
  return sign * std::ldexp(static_cast<float>(steps + 1024), exponent - 25);
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace bedplate::data
