// The one thing of EXIF that decoding needs.
#pragma once

#include <cstddef>
#include <span>

namespace bedplate::data {

// Tag 0x0112 of the first directory of a TIFF structure; 1 when there is none, or none that could
// be (CIPA DC-008, 4.6.4). Never throws: cameras and editors write damaged ones.
int exif_orientation(std::span<const std::byte> tiff);

}  // namespace bedplate::data
