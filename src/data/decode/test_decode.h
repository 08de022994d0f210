// What decoders make of files, and how far apart pictures are: for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/decode/image.h"
#include "data/decode/test_pictures.h"
#include "data/test_bytes.h"

namespace bedplate::data {

inline Picture decoded_whole(std::string_view file, int channels = 3,
                             const ImageDecoderOptions& options = {}) {
  ImageDecoder decoder(options);
  Pixels pixels;
  decoder.decode_whole(bytes_of(file), channels, pixels);
  Picture picture{pixels.width, pixels.height, pixels.channels, {}};
  for (const std::byte byte : pixels.bytes)
    picture.bytes.push_back(static_cast<std::uint8_t>(byte));
  return picture;
}

inline Picture decoded(std::string_view file, const ImageSpec& spec, std::uint64_t seed = 0,
                       const ImageDecoderOptions& options = {}) {
  ImageDecoder decoder(options);
  std::vector<std::byte> out(output_bytes(spec));
  decoder.decode(bytes_of(file), spec, seed, out);
  Picture picture{spec.width, spec.height, spec.channels, {}};
  for (const std::byte byte : out) picture.bytes.push_back(static_cast<std::uint8_t>(byte));
  return picture;
}

// The largest difference of a byte; 1000 when the sizes differ.
inline int apart(const Picture& a, const Picture& b) {
  if (a.width != b.width || a.height != b.height || a.bytes.size() != b.bytes.size()) return 1000;
  int most = 0;
  for (std::size_t i = 0; i < a.bytes.size(); ++i)
    most = std::max(most, std::abs(a.bytes[i] - b.bytes[i]));
  return most;
}
inline double mean_apart(const Picture& a, const Picture& b) {
  if (a.bytes.size() != b.bytes.size()) return 1000;
  double sum = 0;
  for (std::size_t i = 0; i < a.bytes.size(); ++i) sum += std::abs(a.bytes[i] - b.bytes[i]);
  return sum / static_cast<double>(a.bytes.size());
}

template <typename Call>
std::string refusal(Code code, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "taken";
}
inline std::string refusal_of_file(Code code, std::string_view file,
                                   const ImageDecoderOptions& options = {}) {
  return refusal(code, [&] { decoded_whole(file, 3, options); });
}

}  // namespace bedplate::data
