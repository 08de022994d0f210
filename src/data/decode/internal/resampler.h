// Resizing of rows as they come, bilinear with antialiasing: the window of rows that is kept is no
// higher than the filter.
//
//   x.make(…); y.make(…);                    // what each output column and row is made of
//   resampler.begin(x, y, 3, canvas);
//   for (…) { reader.read_row(resampler.row()); resampler.feed(); }
//
// The filter is a triangle whose half width is one output pixel, or one input pixel where that is
// larger, cut off at the edges and made to add up to one again: what Pillow calls BILINEAR.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/decode/internal/geometry.h"
#include "data/decode/internal/resample_kernels.h"

namespace bedplate::data {

// What each output of a row, or of a column, is made of.
class Axis {
 public:
  enum class Order : std::uint8_t { kForward, kMirrored };
  // The inputs from `start` on, `size` of them, become `outputs`; none outside of first … end - 1
  // is used.
  void make(double start, double size, int outputs, int first, int end, Order order);

  int begin() const { return begin_; }  // the inputs that are used
  int end() const { return end_; }
  int outputs() const { return static_cast<int>(firsts_.size()); }
  int taps() const { return taps_; }  // a multiple of 4
  int shift() const { return shift_; }
  // Counts inputs from another one on.
  void move_origin(int to);

  std::span<const std::int32_t> firsts() const { return firsts_; }
  std::span<const std::int32_t> ends() const { return ends_; }  // behind the last that counts
  const std::int16_t* weights(int output) const {
    return &weights_[static_cast<std::size_t>(output) * static_cast<std::size_t>(taps_)];
  }

 private:
  void quantise(std::size_t stride);

  std::vector<std::int32_t> firsts_;
  std::vector<std::int32_t> ends_;
  std::vector<std::int16_t> weights_;
  std::vector<double> exact_;  // before they are rounded
  int taps_ = 4;
  int shift_ = 14;
  int begin_ = 0;
  int end_ = 0;
};

// Where resized rows go: into a caller's bytes, turned as the plan says.
class Canvas {
 public:
  // `out`: [height, width, channels], or with the channels first.
  void begin(const Plan& plan, int height, int width, int channels, ImageLayout layout,
             std::span<std::byte> out);
  void fill(const std::array<std::uint8_t, 3>& rgb);
  // Where row `y` of the plan's rows is to be written, plan.width pixels; then done(y).
  std::uint8_t* row(int y);
  void done(int y, const ResampleKernels& kernels);

 private:
  std::uint8_t* at(int y, int x) const;

  Plan plan_;
  int height_ = 0;
  int width_ = 0;
  int channels_ = 3;
  ImageLayout layout_ = ImageLayout::kHwc;
  std::uint8_t* out_ = nullptr;
  std::vector<std::uint8_t> row_;
};

class Resampler {
 public:
  explicit Resampler(const ResampleKernels& kernels = resample_kernels()) : kernels_(&kernels) {}

  // Borrows all three until the last feed(). The origin of both axes is the first pixel fed; a row
  // has `width` pixels.
  void begin(const Axis& x, const Axis& y, int width, int channels, Canvas& canvas);
  // For the next row: of 4 bytes a pixel for 3 channels, of 1 for 1.
  std::uint8_t* row() { return in_.data(); }
  void feed();

 private:
  std::uint8_t* kept(int row) {
    return &kept_[static_cast<std::size_t>(row % rows_kept_) * kept_stride_];
  }

  const ResampleKernels* kernels_;
  const Axis* x_ = nullptr;
  const Axis* y_ = nullptr;
  Canvas* canvas_ = nullptr;
  int channels_ = 3;
  int fed_ = 0;
  int made_ = 0;
  int rows_kept_ = 1;
  std::size_t kept_stride_ = 0;
  std::vector<std::uint8_t> in_;
  std::vector<std::uint8_t> kept_;
  std::vector<const std::uint8_t*> column_;
};

}  // namespace bedplate::data
