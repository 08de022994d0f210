// JPEG and PNG files into pixels: cropped, resized and mirrored on the way, straight into a batch.
//
//   ImageDecoder decoder;                                    // one a thread
//   const ImageSpec spec{.height = 224, .width = 224, .fit = Fit::kRandomResizedCrop, .flip = 0.5};
//   std::vector<std::byte> slab(output_bytes(spec) * batch);  // [batch, height, width, channels]
//   decoder.decode(file, spec, key_of({seed, epoch, sample}), std::span(slab).subspan(…));
//
// Only what the crop needs is decoded: JPEGs shrink while they are transformed (Shrink), columns
// beside the crop are not transformed, rows above it are not either, those below it are not even
// read. Once warm, a decoder allocates nothing itself; libjpeg and libpng keep their own work
// space.
//
// Resizing is bilinear with antialiasing: a triangle as wide as two output pixels, in 8 bits a pass
// (Pillow's BILINEAR, torchvision's antialias=True). The same bits come out of every machine's
// resizing; those of libjpeg's transform depend on its version.
//
// What happens to each kind of file: docs/decode.md. A file is known by its first bytes, not by its
// name. Errors do not name the file, which only the caller knows:
//   kCorrupt      cut off, or damaged where it was read (Damage::kAccept takes it nevertheless)
//   kUnsupported  neither JPEG nor PNG, a rare kind of them, more pixels than allowed, or a build
//                 without decoders
//   kInvalid      a spec or a span of bytes that cannot be
// After an error the output's bytes are undefined and the decoder is as good as new.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace bedplate::data {

enum class ImageKind : std::uint8_t { kJpeg, kPng };

// What the head of a file says.
struct ImageSize {
  ImageKind kind = ImageKind::kJpeg;
  int width = 0;  // as stored: before the orientation
  int height = 0;
  int channels = 0;     // 1 grey, 2 grey and alpha, 3 colour (palettes too), 4 CMYK or with alpha
  int bits = 8;         // a channel
  int orientation = 1;  // of EXIF: 1 to 8; 1 when there is none or an impossible one

  // Whether rows and columns change places when it is shown upright.
  bool transposed() const { return orientation >= 5; }
  int shown_width() const { return transposed() ? height : width; }
  int shown_height() const { return transposed() ? width : height; }
};

// Reads the head only, and needs no library. Error{kUnsupported} for what is neither JPEG nor PNG,
// {kCorrupt} for a head that is cut off or impossible.
ImageSize image_size(std::span<const std::byte> file);

enum class Fit : std::uint8_t {
  kStretch,     // the whole picture, whatever that does to its proportions
  kCenterCrop,  // the short side to `resize`, then the middle: torchvision's Resize, CenterCrop
  kRandomResizedCrop,  // a random part: torchvision's RandomResizedCrop (Szegedy et al. 2014)
  kPad,                // the whole picture in its proportions, in the middle of `background`
};
enum class ImageLayout : std::uint8_t { kHwc, kChw };

// What is wanted: uint8 of [height, width, channels] or [channels, height, width].
struct ImageSpec {
  int height = 224;
  int width = 224;
  int channels = 3;  // 3: RGB; 1: grey (ITU-R BT.601 luma)
  ImageLayout layout = ImageLayout::kHwc;
  Fit fit = Fit::kStretch;
  int resize = 0;  // kCenterCrop: of the short side, in pixels; 0: as small as covers the output
  std::array<double, 2> scale = {0.08, 1.0};             // kRandomResizedCrop: share of the area
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};  // kRandomResizedCrop: width / height
  double flip = 0.0;                                     // probability of a mirror, left to right
  std::array<std::uint8_t, 3> background = {0, 0, 0};    // RGB; kPad and Alpha::kCompose
};

// How many bytes decode() fills. Error{kInvalid}, saying what, for a spec that cannot be.
std::size_t output_bytes(const ImageSpec& spec);

enum class Damage : std::uint8_t {
  kRefuse,  // Error{kCorrupt}
  kAccept,  // what can be decoded; what is missing is whatever the library leaves there
};
enum class Exif : std::uint8_t { kApply, kIgnore };  // the orientation
enum class Alpha : std::uint8_t {
  kDrop,     // the colours as stored, as Pillow's convert("RGB") and torchvision have it
  kCompose,  // over ImageSpec::background
};
enum class Shrink : std::uint8_t {
  // A JPEG at 1/2, 1/4 or 1/8 of its size where the crop stays at least as large as the output.
  // Much less work on large pictures; a little sharper than kNever.
  kInTransform,
  kNever,
};

struct ImageDecoderOptions {
  Damage damage = Damage::kRefuse;
  Exif exif = Exif::kApply;
  Alpha alpha = Alpha::kDrop;
  Shrink shrink = Shrink::kInTransform;
  std::int64_t max_pixels = 178'956'970;  // of the file's picture: Pillow's limit, 512 MiB of RGB

  bool operator==(const ImageDecoderOptions&) const = default;
};

struct Pixels {
  int height = 0;
  int width = 0;
  int channels = 0;
  std::vector<std::byte> bytes;  // [height, width, channels]
};

// Not thread-safe: one a thread. After fork() use in the child is fine.
class ImageDecoder {
 public:
  // Error{kUnsupported}, naming the packages, in a build without decoders.
  explicit ImageDecoder(const ImageDecoderOptions& options = {});
  ~ImageDecoder();
  ImageDecoder(ImageDecoder&&) noexcept;
  ImageDecoder& operator=(ImageDecoder&&) noexcept;

  // `out` has output_bytes(spec). What is random is a function of `seed`, the spec and the
  // picture's size alone: the same on every machine and in every version.
  void decode(std::span<const std::byte> file, const ImageSpec& spec, std::uint64_t seed,
              std::span<std::byte> out);

  // The picture as it is, upright; `channels` as in ImageSpec; Alpha::kCompose is over black.
  // Reuses pixels.bytes.
  void decode_whole(std::span<const std::byte> file, int channels, Pixels& pixels);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bedplate::data
