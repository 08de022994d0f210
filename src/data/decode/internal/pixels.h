// Small work on rows of pixels, for readers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace bedplate::data {

// Divides what is a product of two bytes by 255, rounded to the nearest.
constexpr unsigned divided_by_255(unsigned product) {
  const unsigned rounded = product + 128;
  return (rounded + (rounded >> 8)) >> 8;
}

// ITU-R BT.601 luma in 16 bits: 0.299, 0.587, 0.114.
inline void to_grey(const std::uint8_t* rgbx, std::size_t pixels, std::uint8_t* grey) {
  for (std::size_t i = 0; i < pixels; ++i, rgbx += 4)
    grey[i] = static_cast<std::uint8_t>(
        (rgbx[0] * 19595U + rgbx[1] * 38470U + rgbx[2] * 7471U + 0x8000U) >> 16);
}

inline void compose(std::uint8_t* rgba, std::size_t pixels,
                    const std::array<std::uint8_t, 3>& background) {
  for (std::size_t i = 0; i < pixels; ++i, rgba += 4) {
    const unsigned alpha = rgba[3];
    for (std::size_t c = 0; c < 3; ++c)
      rgba[c] = static_cast<std::uint8_t>(
          divided_by_255(rgba[c] * alpha + background[c] * (255 - alpha)));
  }
}

// CMYK as Adobe stores it, 255 for no ink: what is left of the light, without a colour profile.
inline void inverted_cmyk_to_rgbx(std::uint8_t* cmyk, std::size_t pixels) {
  for (std::size_t i = 0; i < pixels; ++i, cmyk += 4)
    for (std::size_t c = 0; c < 3; ++c)
      cmyk[c] = static_cast<std::uint8_t>(divided_by_255(unsigned{cmyk[c]} * cmyk[3]));
}

}  // namespace bedplate::data
