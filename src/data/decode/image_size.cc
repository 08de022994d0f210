#include <algorithm>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "data/decode/image.h"
#include "data/decode/internal/exif.h"

namespace bedplate::data {
namespace {

using Bytes = std::span<const std::byte>;
using namespace std::string_view_literals;

constexpr std::string_view kPngSignature = "\x89PNG\r\n\x1a\n"sv;
constexpr std::string_view kExif = "Exif\0\0"sv;

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint32_t big_endian(Bytes bytes) {
  std::uint32_t value = 0;
  for (const std::byte byte : bytes) value = value << 8 | static_cast<std::uint8_t>(byte);
  return value;
}

Error cut_off(std::string_view kind, std::size_t bytes) {
  return {Code::kCorrupt, "a {} of {} bytes is cut off: its head does not end", kind, bytes};
}

// Of a frame header (ITU-T T.81, B.2.2).
ImageSize size_of_frame(Bytes frame, int orientation) {
  if (frame.size() < 6) throw Error(Code::kCorrupt, "a damaged JPEG: its frame header is short");
  ImageSize size{.kind = ImageKind::kJpeg,
                 .width = static_cast<int>(big_endian(frame.subspan(3, 2))),
                 .height = static_cast<int>(big_endian(frame.subspan(1, 2))),
                 .channels = static_cast<int>(frame[5]),
                 .bits = static_cast<int>(frame[0]),
                 .orientation = orientation};
  if (size.height == 0)
    throw Error(Code::kUnsupported,
                "a JPEG that tells its height only behind its data (DNL) is not read: write it "
                "anew with any other program");
  if (size.width == 0 || size.channels == 0)
    throw Error(Code::kCorrupt, "a damaged JPEG: {} x {} pixels of {} channels", size.width,
                size.height, size.channels);
  return size;
}

ImageSize jpeg_size(Bytes file) {
  int orientation = 1;
  std::size_t at = 2;
  while (true) {
    // Any number of fill bytes 0xFF may stand before a marker's code. What else stands there is
    // damage, which is for the decoder to judge: it skips that too, 0xFF 0x00 included.
    while (at < file.size() && file[at] != std::byte{0xff}) ++at;
    while (at < file.size() && file[at] == std::byte{0xff}) ++at;
    if (at >= file.size()) throw cut_off("JPEG", file.size());
    const int marker = static_cast<int>(file[at++]);
    const bool alone = marker <= 0x01 || (marker >= 0xd0 && marker <= 0xd7);  // none, TEM, RST
    if (alone) continue;
    if (marker == 0xd9 || marker == 0xda)
      throw Error(Code::kCorrupt, "a damaged JPEG: it has no frame header before its data");
    if (file.size() - at < 2) throw cut_off("JPEG", file.size());
    const std::size_t length = big_endian(file.subspan(at, 2));
    if (length < 2)
      throw Error(Code::kCorrupt, "a damaged JPEG: at byte {} a length is {}", at, length);
    if (file.size() - at < length) throw cut_off("JPEG", file.size());
    const Bytes segment = file.subspan(at + 2, length - 2);
    const bool frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 &&
                       marker != 0xcc;  // those are tables and a reserved code
    if (frame) return size_of_frame(segment, orientation);
    if (marker == 0xe1 && text_of(segment).starts_with(kExif))
      orientation = exif_orientation(segment.subspan(kExif.size()));
    at += length;
  }
}

// Of an image header (ISO/IEC 15948, 11.2.2).
ImageSize size_of_header(Bytes header) {
  constexpr std::uint32_t kMaxSide = 0x7fffffff;
  constexpr int kPalette = 3;
  static constexpr int kChannels[] = {1, 0, 3, 3, 2, 0, 4};
  const std::uint32_t width = big_endian(header.first(4));
  const std::uint32_t height = big_endian(header.subspan(4, 4));
  const int bits = static_cast<int>(header[8]);
  const auto colour = static_cast<std::size_t>(header[9]);
  const int channels = colour < std::size(kChannels) ? kChannels[colour] : 0;
  const bool depth = bits == 8 || (bits == 16 && colour != kPalette) ||
                     ((bits == 1 || bits == 2 || bits == 4) && (colour == 0 || colour == kPalette));
  if (width == 0 || height == 0 || width > kMaxSide || height > kMaxSide || channels == 0 || !depth)
    throw Error(Code::kCorrupt, "a damaged PNG: {} x {} pixels of {} bits and colour type {}",
                width, height, bits, colour);
  return {.kind = ImageKind::kPng,
          .width = static_cast<int>(width),
          .height = static_cast<int>(height),
          .channels = channels,
          .bits = bits};
}

ImageSize png_size(Bytes file) {
  std::optional<ImageSize> size;
  std::size_t at = kPngSignature.size();
  while (true) {
    if (file.size() - at < 8) throw cut_off("PNG", file.size());
    const std::size_t length = big_endian(file.subspan(at, 4));
    const std::string_view type = text_of(file.subspan(at + 4, 4));
    if (type == "IDAT" && size) return *size;
    if (file.size() - at - 8 < length + 4) throw cut_off("PNG", file.size());
    const Bytes chunk = file.subspan(at + 8, length);
    if (!size && (type != "IHDR" || length != 13))
      throw Error(Code::kCorrupt, "a damaged PNG: it does not begin with its header");
    if (!size) {
      size = size_of_header(chunk);
    } else if (type == "tRNS" && size->channels % 2 == 1) {
      ++size->channels;
    } else if (type == "eXIf") {
      size->orientation = exif_orientation(chunk);
    } else if (type == "IEND") {
      throw Error(Code::kCorrupt, "a damaged PNG: it has no picture");
    }
    at += length + 12;
  }
}

// What else people have in their data sets, for the error's sake.
std::string_view kind_of_other(Bytes file) {
  const std::string_view text = text_of(file);
  if (text.empty()) return "an empty file";
  if (text.starts_with("GIF8")) return "a GIF";
  if (text.starts_with("BM")) return "a BMP";
  if (text.starts_with("II*\0"sv) || text.starts_with("MM\0*"sv)) return "a TIFF";
  if (text.starts_with("RIFF") && text.size() >= 12 && text.substr(8, 4) == "WEBP") return "a WebP";
  if (text.size() >= 12 && text.substr(4, 4) == "ftyp") return "an AVIF, HEIF or video";
  if (text.starts_with("\x93NUMPY")) return "a NumPy array";
  return "it begins otherwise";
}

}  // namespace

ImageSize image_size(std::span<const std::byte> file) {
  const std::string_view text = text_of(file);
  if (text.starts_with("\xff\xd8"sv)) return jpeg_size(file);
  if (text.starts_with(kPngSignature)) return png_size(file);
  // The first bytes of one of the two, and no more: cut off rather than something else.
  if (!text.empty() && (kPngSignature.starts_with(text) || text == "\xff"sv))
    throw cut_off(text == "\xff"sv ? "JPEG" : "PNG", file.size());
  throw Error(Code::kUnsupported, "neither JPEG nor PNG: {}", kind_of_other(file));
}

}  // namespace bedplate::data
