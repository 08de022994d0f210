// Rows of pixels out of a file of one kind: what ImageDecoder stands on.
//
//   const auto reader = make_jpeg_reader();
//   reader->open(file, size, wishes);
//   const Region region = reader->start(2, wanted);   // of the picture at half its size
//   for (int i = 0; i < region.height; ++i) reader->read_row(row);
//
// Not thread-safe. Throws Error{kCorrupt | kUnsupported | kNoSpace}; after that, open() again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "data/decode/image.h"
#include "data/decode/internal/geometry.h"

namespace bedplate::data {

struct RowWishes {
  int channels = 3;  // 3: rows of 4 bytes a pixel, the last without meaning; 1: rows of 1 byte
  Damage damage = Damage::kRefuse;
  Alpha alpha = Alpha::kDrop;
  std::array<std::uint8_t, 3> background = {0, 0, 0};
};

class RowReader {
 public:
  virtual ~RowReader() = default;

  // `file` is borrowed until the next open() or close(); `size` is image_size(file).
  virtual void open(std::span<const std::byte> file, const ImageSize& size,
                    const RowWishes& wishes) = 0;
  // The picture at 1/shrink of its size, rounded up; 1, or 2, 4, 8 where can_shrink(). What comes
  // has the rows of `wanted` and at least its columns.
  virtual Region start(int shrink, const Region& wanted) = 0;
  virtual bool can_shrink() const = 0;
  virtual void read_row(std::uint8_t* row) = 0;
  virtual void close() = 0;  // gives back what open() took
};

// Error{kUnsupported} in a build without decoders.
std::unique_ptr<RowReader> make_jpeg_reader();
std::unique_ptr<RowReader> make_png_reader();

}  // namespace bedplate::data
