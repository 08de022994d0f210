// Which part of a picture is taken, and where it comes to lie: numbers only, no pixels.
#pragma once

#include <cstdint>

#include "data/decode/image.h"

namespace bedplate::data {

// Whole pixels of a picture.
struct Region {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;

  bool operator==(const Region&) const = default;
};

// A part of a picture whose edges may lie between pixels.
struct Box {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
};

// What one picture's decoding does, in the picture's stored axes.
struct Plan {
  Box box;        // becomes …
  int width = 0;  // … so many pixels
  int height = 0;
  Region within;        // no pixel outside is looked at, though the filter might reach there
  bool flip_x = false;  // then mirrored,
  bool flip_y = false;
  bool transpose = false;  // then rows and columns change places,
  int left = 0;            // and it lies here in the output, as it is shown
  int top = 0;
};

// Error{kInvalid} for a spec that cannot be.
void check(const ImageSpec& spec);

Plan plan_of(const ImageSize& size, const ImageSpec& spec, std::uint64_t seed);
// The whole picture, as it is, upright.
Plan whole_plan(const ImageSize& size);

}  // namespace bedplate::data
