// Pictures: the head, the whole, regions and smaller copies of one file. Beside the absence of
// crashes, what is held: files that are whole decode alike however they are asked for.
#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "data/decode/image.h"
#include "data/decode/test_pictures.h"
#include "data/permutation.h"
#include "target.h"

namespace bedplate::fuzz {
namespace {

using Bytes = std::span<const std::byte>;
using Seeds = std::vector<std::string>;
using data::Fit;
using data::ImageLayout;
using data::ImageSpec;

constexpr std::int64_t kMostPixels = 1 << 16;  // so that an input takes milliseconds

// Used for one input after another, as a loader's thread uses them.
struct Decoders {
  data::ImageDecoder strict{{.max_pixels = kMostPixels}};
  data::ImageDecoder lenient{{.damage = data::Damage::kAccept, .max_pixels = kMostPixels}};
  data::ImageDecoder exact{{.shrink = data::Shrink::kNever, .max_pixels = kMostPixels}};
  data::ImageDecoder other{{.damage = data::Damage::kAccept,
                            .exif = data::Exif::kIgnore,
                            .alpha = data::Alpha::kCompose,
                            .max_pixels = kMostPixels}};
};
Decoders& decoders() {
  static Decoders all;
  return all;
}

// Whether `call` took the file.
template <typename Call>
bool takes(const Call& call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    BEDPLATE_CHECK(error.code() == Code::kCorrupt || error.code() == Code::kUnsupported);
    return false;
  }
}

bool takes_whole(data::ImageDecoder& decoder, Bytes file, int channels, data::Pixels& pixels) {
  return takes([&] { decoder.decode_whole(file, channels, pixels); });
}

// Nothing where the file is refused. `fill` is what the output holds before.
std::optional<std::vector<std::byte>> part_of(data::ImageDecoder& decoder, Bytes file,
                                              const ImageSpec& spec, std::uint64_t seed,
                                              std::byte fill) {
  std::vector<std::byte> out(data::output_bytes(spec), fill);
  if (!takes([&] { decoder.decode(file, spec, seed, out); })) return std::nullopt;
  return out;
}

constexpr ImageSpec kSpecs[] = {
    {.height = 5, .width = 4},  // by 8 and by 2 in the transform, and more by resizing
    {.height = 9, .width = 13, .channels = 1},
    {.height = 8, .width = 11, .layout = ImageLayout::kChw, .fit = Fit::kPad, .flip = 1},
    {.height = 6, .width = 6, .fit = Fit::kRandomResizedCrop, .flip = 0.5},
    {.height = 3,
     .width = 7,
     .channels = 1,
     .fit = Fit::kRandomResizedCrop,
     .scale = {0.01, 0.05},
     .ratio = {0.2, 5}},
    {.height = 4, .width = 6, .fit = Fit::kCenterCrop, .resize = 12}};

// A part from the middle, of no other scale, has the pixels that the whole has there.
void check_middle(Bytes file, const data::Pixels& whole) {
  const int least = std::min(whole.height, whole.width);
  // With an even rest, so that nobody has to round.
  const auto part = [&](int side) {
    const int pixels = std::min(least, side / 2);
    return pixels - (side - pixels) % 2;
  };
  const ImageSpec spec{.height = part(whole.height),
                       .width = part(whole.width),
                       .channels = whole.channels,
                       .fit = Fit::kCenterCrop,
                       .resize = least};
  if (spec.height < 1 || spec.width < 1) return;
  const auto out = part_of(decoders().exact, file, spec, 0, std::byte{0});
  BEDPLATE_CHECK(out.has_value());
  const auto channels = static_cast<std::size_t>(whole.channels);
  const auto left = static_cast<std::size_t>((whole.width - spec.width) / 2);
  const auto top = static_cast<std::size_t>((whole.height - spec.height) / 2);
  const std::size_t row = static_cast<std::size_t>(spec.width) * channels;
  for (std::size_t y = 0; y < static_cast<std::size_t>(spec.height); ++y) {
    const std::size_t at = ((top + y) * static_cast<std::size_t>(whole.width) + left) * channels;
    BEDPLATE_CHECK(std::memcmp(&(*out)[y * row], &whole.bytes[at], row) == 0);
  }
}

// A file that is whole: so are all parts of it, every byte of the output is written, and to accept
// damage changes nothing.
void check_whole(Bytes file, const data::Pixels& whole, std::uint64_t seed) {
  static data::Pixels again;
  BEDPLATE_CHECK(takes_whole(decoders().lenient, file, 3, again));
  BEDPLATE_CHECK(again.bytes == whole.bytes);
  BEDPLATE_CHECK(takes_whole(decoders().strict, file, 1, again));
  check_middle(file, again);
  check_middle(file, whole);
  for (const ImageSpec& spec : kSpecs) {
    const auto once = part_of(decoders().strict, file, spec, seed, std::byte{0});
    const auto twice = part_of(decoders().strict, file, spec, seed, std::byte{0xff});
    BEDPLATE_CHECK(once.has_value() && once == twice);
  }
}

void run_picture(Bytes bytes) {
  // A copy of its own size, so that a sanitizer sees its ends.
  const std::vector<std::byte> file(bytes.begin(), bytes.end());
  data::ImageSize size;
  const bool has_size = takes([&] { size = data::image_size(file); });
  static data::Pixels pixels;
  const std::uint64_t seed =
      data::hash_of({reinterpret_cast<const char*>(file.data()), file.size()});
  if (takes_whole(decoders().strict, file, 3, pixels)) {
    BEDPLATE_CHECK(has_size && pixels.width == size.shown_width() &&
                   pixels.height == size.shown_height());
    check_whole(file, pixels, seed);
    return;
  }
  takes_whole(decoders().lenient, file, 3, pixels);
  takes_whole(decoders().other, file, 1, pixels);
  for (const ImageSpec& spec : kSpecs) {
    part_of(decoders().strict, file, spec, seed, std::byte{0});
    part_of(decoders().lenient, file, spec, seed, std::byte{0});
    part_of(decoders().other, file, spec, seed, std::byte{0});
  }
}

void run_jpeg(Bytes bytes) { run_picture(bytes); }

// Makes the chunks' checksums right.
void repair_png(std::string& file) {
  constexpr std::size_t kHead = 8;  // a chunk's length and type; of the file, the signature
  const auto number = [&](std::size_t at) {
    std::size_t value = 0;
    for (std::size_t i = 0; i < 4; ++i)
      value = value << 8 | static_cast<unsigned char>(file[at + i]);
    return value;
  };
  for (std::size_t at = kHead; file.size() >= at + kHead + 4;) {
    const std::size_t length = number(at);
    if (length > file.size() - at - kHead - 4) return;
    const auto* const type = reinterpret_cast<const unsigned char*>(&file[at + 4]);
    const std::uint32_t sum = crc32_gzip_refl(0, type, length + 4);
    for (std::size_t i = 0; i < 4; ++i)
      file[at + kHead + length + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += kHead + length + 4;
  }
}

void run_png(Bytes bytes) {
  run_picture(bytes);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  repair_png(text);
  const Bytes repaired = std::as_bytes(std::span(text));
  if (!std::ranges::equal(repaired, bytes)) run_picture(repaired);
}

// --- seeds ----------------------------------------------------------------------------------

Seeds jpeg_seeds() {
  using data::jpeg_of;
  using data::picture_of;
  constexpr int kQuality = 60;
  const data::Picture colour = picture_of(37, 26);
  return {
      jpeg_of(colour, {.quality = kQuality, .app1 = data::exif_app1(6)}),
      jpeg_of(colour, {.quality = kQuality, .horizontal = 1, .vertical = 2}),
      jpeg_of(colour, {.quality = kQuality, .horizontal = 4, .vertical = 1, .restart_rows = 1}),
      jpeg_of(colour, {.quality = kQuality, .horizontal = 1, .vertical = 1, .rgb = true}),
      jpeg_of(colour, {.quality = kQuality, .progressive = true}),
      jpeg_of(colour, {.quality = kQuality, .arithmetic = true}),
      jpeg_of(colour, {.quality = kQuality, .scans = true}),
      jpeg_of(picture_of(19, 23, 1), {.quality = kQuality}),
      jpeg_of(picture_of(16, 9, 4), {.quality = kQuality, .adobe = true}),
      jpeg_of(picture_of(16, 9, 4), {.quality = kQuality, .progressive = true, .ycck = true}),
      jpeg_of(picture_of(200, 17, 1), {.quality = 10}),  // wide enough for columns to be left out
      jpeg_of(data::quarters(240, 40), {.quality = 10})};
}

Seeds png_seeds() {
  using data::picture_of;
  using data::png_of;
  return {png_of(picture_of(13, 9)),
          png_of(picture_of(13, 9, 4), {.interlaced = true}),
          png_of(picture_of(21, 7, 1), {.bits = 1}),
          png_of(picture_of(11, 10, 1),
                 {.bits = 4, .interlaced = true, .palette = true, .trns = "\x20\x80\xff"}),
          png_of(picture_of(11, 6, 1), {.bits = 8, .palette = true, .exif = data::tiff_of(5)}),
          png_of(picture_of(9, 8, 2)),
          png_of(picture_of(7, 5, 3), {.bits = 16, .trns = std::string("\0\1\0\2\0\3", 6)}),
          png_of(picture_of(5, 6, 4), {.bits = 16})};
}

constexpr std::array kTargets = {Target{"jpeg", run_jpeg, jpeg_seeds},
                                 Target{"png", run_png, png_seeds}};

}  // namespace

std::span<const Target> picture_targets() { return kTargets; }

}  // namespace bedplate::fuzz
