// Pictures and files of them, made by the libraries themselves: for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bedplate::data {

struct Picture {
  int width = 0;
  int height = 0;
  int channels = 3;
  std::vector<std::uint8_t> bytes;  // [height, width, channels]

  std::uint8_t& at(int x, int y, int channel) {
    return bytes[static_cast<std::size_t>((y * width + x) * channels + channel)];
  }
  std::uint8_t at(int x, int y, int channel) const {
    return bytes[static_cast<std::size_t>((y * width + x) * channels + channel)];
  }
};

// Waves, edges and some noise; all pictures of a size are the same.
Picture picture_of(int width, int height, int channels = 3);
// Nothing that any compression loses or resizing changes but for where things are: four areas.
Picture quarters(int width, int height);

// Pictures of 1 channel are grey, of 3 RGB, of 4 CMYK.
struct JpegForm {
  int quality = 90;
  int horizontal = 2;  // sampling of luma; colours have 1
  int vertical = 2;
  bool progressive = false;
  bool arithmetic = false;
  bool rgb = false;    // no conversion
  bool ycck = false;   // of four channels
  bool adobe = false;  // the marker, which says that CMYK is inverted
  bool scans = false;  // sequential, but a scan for each channel
  int restart_rows = 0;
  std::string app1 = {};  // the contents of an APP1 segment
};
std::string jpeg_of(const Picture& picture, const JpegForm& form = {});

struct PngForm {
  int bits = 8;
  bool interlaced = false;
  bool palette = false;   // of one channel: grey levels reversed
  std::string trns = {};  // the contents of a tRNS chunk
  std::string exif = {};  // of an eXIf chunk
};
// Channels 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA; 16 bits: each byte b becomes b·256 + low(x).
std::string png_of(const Picture& picture, const PngForm& form = {});

// A TIFF structure with an orientation; big-endian when `order` is "MM".
std::string tiff_of(int orientation, std::string_view order = "II");
inline std::string exif_app1(int orientation) {
  return std::string("Exif\0\0", 6) + tiff_of(orientation);
}

}  // namespace bedplate::data
