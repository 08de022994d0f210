#include <algorithm>

#include "data/decode/internal/resample_kernels.h"

namespace bedplate::data {
namespace {

std::uint8_t finished(std::int32_t sum, int shift) {
  return static_cast<std::uint8_t>(std::clamp(sum >> shift, 0, 255));
}

template <int kIn, int kOut>
void row(const RowAxis& axis, const std::uint8_t* in, std::uint8_t* out) {
  const std::int16_t* weights = axis.weights;
  for (int i = 0; i < axis.outputs; ++i, weights += axis.taps, out += kOut) {
    const std::uint8_t* from = in + static_cast<std::ptrdiff_t>(axis.first[i]) * kIn;
    std::int32_t sums[kOut];
    std::fill_n(sums, kOut, std::int32_t{1} << (axis.shift - 1));
    for (int k = 0; k < axis.taps; ++k, from += kIn)
      for (int c = 0; c < kOut; ++c) sums[c] += weights[k] * from[c];
    for (int c = 0; c < kOut; ++c) out[c] = finished(sums[c], axis.shift);
  }
}

void column(const std::uint8_t* const* rows, const std::int16_t* weights, int taps, int shift,
            std::size_t bytes, std::uint8_t* out) {
  for (std::size_t x = 0; x < bytes; ++x) {
    std::int32_t sum = std::int32_t{1} << (shift - 1);
    for (int k = 0; k < taps; ++k) sum += weights[k] * rows[k][x];
    out[x] = finished(sum, shift);
  }
}

void planes(const std::uint8_t* rgb, std::size_t pixels, std::uint8_t* const* out) {
  for (std::size_t i = 0; i < pixels; ++i)
    for (std::size_t c = 0; c < 3; ++c) out[c][i] = rgb[i * 3 + c];
}

}  // namespace

const ResampleKernels kPlainKernels = {"plain", row<4, 3>, row<1, 1>, column, planes};

const ResampleKernels& resample_kernels() {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) return kAvx2Kernels;
#endif
  return kPlainKernels;
}

}  // namespace bedplate::data
