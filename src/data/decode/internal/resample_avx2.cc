// Compiled for AVX2: nothing may be included that defines functions which other files share.
#include <immintrin.h>

#include "data/decode/internal/resample_kernels.h"

namespace bedplate::data {
namespace {

// Four weights in both halves of a register, as pairs for each channel of pixels 0 and 1 in the
// lower, of pixels 2 and 3 in the upper half.
__m256i spread_weights(const std::int16_t* weights) {
  const __m256i four =
      _mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights)));
  return _mm256_shuffle_epi8(four,
                             _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3,  //
                                              4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7));
}

// Four pixels of 4 bytes, as pairs for each channel: of pixels 0 and 1 in the lower half, of 2 and
// 3 in the upper.
__m256i spread_pixels(const std::uint8_t* pixels) {
  const __m256i four =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pixels)));
  return _mm256_shuffle_epi8(
      four, _mm256_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1,  //
                             8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1));
}

void row_of_4(const RowAxis& axis, const std::uint8_t* in, std::uint8_t* out) {
  const __m128i half = _mm_set1_epi32(1 << (axis.shift - 1));
  const __m128i shift = _mm_cvtsi32_si128(axis.shift);
  const std::int16_t* weights = axis.weights;
  for (int i = 0; i < axis.outputs; ++i, out += 3) {
    const std::uint8_t* from = in + static_cast<std::ptrdiff_t>(axis.first[i]) * 4;
    __m256i sums = _mm256_setzero_si256();
    for (int k = 0; k < axis.taps; k += 4, from += 16, weights += 4)
      sums =
          _mm256_add_epi32(sums, _mm256_madd_epi16(spread_pixels(from), spread_weights(weights)));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    sum = _mm_sra_epi32(_mm_add_epi32(sum, half), shift);
    sum = _mm_packs_epi32(sum, sum);
    sum = _mm_packus_epi16(sum, sum);
    _mm_storeu_si32(out, sum);
  }
}

void row_of_1(const RowAxis& axis, const std::uint8_t* in, std::uint8_t* out) {
  const std::int16_t* weights = axis.weights;
  for (int i = 0; i < axis.outputs; ++i) {
    const std::uint8_t* from = in + axis.first[i];
    __m128i sums = _mm_setzero_si128();
    for (int k = 0; k < axis.taps; k += 4, weights += 4) {
      const __m128i pixels = _mm_cvtepu8_epi16(_mm_loadu_si32(from + k));
      const __m128i four = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights));
      sums = _mm_add_epi32(sums, _mm_madd_epi16(pixels, four));
    }
    const int sum =
        (_mm_cvtsi128_si32(sums) + _mm_extract_epi32(sums, 1) + (1 << (axis.shift - 1))) >>
        axis.shift;
    out[i] = static_cast<std::uint8_t>(sum < 0 ? 0 : sum > 255 ? 255 : sum);
  }
}

// 32 bytes of each row at `x`.
void column_of_32(const std::uint8_t* const* rows, const std::int16_t* weights, int taps, int shift,
                  std::size_t x, std::uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i half = _mm256_set1_epi32(1 << (shift - 1));
  __m256i sums[4] = {half, half, half, half};
  for (int k = 0; k < taps; k += 2) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k] + x));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[k + 1] + x));
    const __m256i two = _mm256_broadcastd_epi32(_mm_loadu_si32(weights + k));
    const __m256i low = _mm256_unpacklo_epi8(a, b);
    const __m256i high = _mm256_unpackhi_epi8(a, b);
    const __m256i pairs[4] = {_mm256_unpacklo_epi8(low, zero), _mm256_unpackhi_epi8(low, zero),
                              _mm256_unpacklo_epi8(high, zero), _mm256_unpackhi_epi8(high, zero)};
    for (int i = 0; i < 4; ++i)
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs[i], two));
  }
  const __m128i count = _mm_cvtsi32_si128(shift);
  for (__m256i& sum : sums) sum = _mm256_sra_epi32(sum, count);
  const __m256i low = _mm256_packs_epi32(sums[0], sums[1]);
  const __m256i high = _mm256_packs_epi32(sums[2], sums[3]);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), _mm256_packus_epi16(low, high));
}

void column(const std::uint8_t* const* rows, const std::int16_t* weights, int taps, int shift,
            std::size_t bytes, std::uint8_t* out) {
  if (bytes < 32) return kPlainKernels.column(rows, weights, taps, shift, bytes, out);
  std::size_t x = 0;
  for (; x + 32 <= bytes; x += 32) column_of_32(rows, weights, taps, shift, x, out);
  // Not a byte behind the end: another thread may be at it.
  if (x < bytes) column_of_32(rows, weights, taps, shift, bytes - 32, out);
}

// Which byte of one of three registers goes to each place of a plane; -1: of another register.
alignas(16) constexpr std::int8_t kPlaces[3][3][16] = {
    {{0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
     {-1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1},
     {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13}},
    {{1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
     {-1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1},
     {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14}},
    {{2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
     {-1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1},
     {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15}}};

void planes(const std::uint8_t* rgb, std::size_t pixels, std::uint8_t* const* out) {
  std::size_t i = 0;
  for (; i + 16 <= pixels; i += 16) {
    const auto* from = reinterpret_cast<const __m128i*>(rgb + i * 3);
    for (std::size_t c = 0; c < 3; ++c) {
      __m128i plane = _mm_setzero_si128();
      for (std::size_t part = 0; part < 3; ++part) {
        const __m128i places = _mm_load_si128(reinterpret_cast<const __m128i*>(kPlaces[c][part]));
        plane = _mm_or_si128(plane, _mm_shuffle_epi8(_mm_loadu_si128(from + part), places));
      }
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out[c] + i), plane);
    }
  }
  for (; i < pixels; ++i)
    for (std::size_t c = 0; c < 3; ++c) out[c][i] = rgb[i * 3 + c];
}

}  // namespace

const ResampleKernels kAvx2Kernels = {"avx2", row_of_4, row_of_1, column, planes};

}  // namespace bedplate::data
