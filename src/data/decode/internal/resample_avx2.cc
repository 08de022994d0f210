// Compiled for AVX2: nothing may be included that defines functions which other files share.
#include <immintrin.h>

#include "data/decode/internal/resample_kernels.h"

namespace bedplate::data {
namespace {

#define BEDPLATE_INLINE inline __attribute__((always_inline))

BEDPLATE_INLINE __m128i load_16(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
BEDPLATE_INLINE __m128i load_8(const void* from) {
  return _mm_loadl_epi64(static_cast<const __m128i*>(from));
}
BEDPLATE_INLINE __m256i both(__m128i low, __m128i high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

// Two outputs, one in each half of a register: a sum for each of the 4 bytes of a pixel.
struct TwoOutputs {
  const std::uint8_t* in[2];
  const std::int16_t* weights[2];

  BEDPLATE_INLINE TwoOutputs(const RowAxis& axis, const std::uint8_t* row, int output)
      : in{row + std::ptrdiff_t{axis.first[output]} * 4,
           row + std::ptrdiff_t{axis.first[output + 1]} * 4},
        weights{axis.weights + std::ptrdiff_t{output} * axis.taps,
                axis.weights + std::ptrdiff_t{output + 1} * axis.taps} {}

  // Adds pixels k to k + 3: as pairs for each byte, of pixels 0 and 1, and of 2 and 3.
  BEDPLATE_INLINE __m256i add(__m256i sums, std::ptrdiff_t k) const {
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1));
    const __m256i second = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1));
    const __m256i pixels = both(load_16(in[0] + k * 4), load_16(in[1] + k * 4));
    const __m256i four = both(load_8(weights[0] + k), load_8(weights[1] + k));
    const __m256i a =
        _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, first), _mm256_shuffle_epi32(four, 0x00));
    const __m256i b =
        _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, second), _mm256_shuffle_epi32(four, 0x55));
    return _mm256_add_epi32(sums, _mm256_add_epi32(a, b));
  }
};

// Outputs 0 and 1 in `a`, 2 and 3 in `b`, as 12 bytes; 4 more are written.
BEDPLATE_INLINE void store_4_outputs(__m256i a, __m256i b, __m128i shift, std::uint8_t* out) {
  const __m256i words = _mm256_packs_epi32(_mm256_sra_epi32(a, shift), _mm256_sra_epi32(b, shift));
  const __m256i bytes = _mm256_packus_epi16(words, words);  // 0 2 0 2, 1 3 1 3
  const __m128i pixels =
      _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
  const __m128i packed = _mm_shuffle_epi8(
      pixels, _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), packed);
}

void row_of_4(const RowAxis& axis, const std::uint8_t* in, std::uint8_t* out) {
  const __m256i half = _mm256_set1_epi32(1 << (axis.shift - 1));
  const __m128i shift = _mm_cvtsi32_si128(axis.shift);
  int i = 0;
  for (; i + 4 <= axis.outputs; i += 4) {
    const TwoOutputs first(axis, in, i);
    const TwoOutputs second(axis, in, i + 2);
    __m256i a = first.add(half, 0);
    __m256i b = second.add(half, 0);
    for (std::ptrdiff_t k = 4; k < axis.taps; k += 4) {
      a = first.add(a, k);
      b = second.add(b, k);
    }
    store_4_outputs(a, b, shift, out + std::ptrdiff_t{i} * 3);
  }
  if (i == axis.outputs) return;
  const RowAxis rest{.first = axis.first + i,
                     .weights = axis.weights + std::ptrdiff_t{i} * axis.taps,
                     .taps = axis.taps,
                     .outputs = axis.outputs - i,
                     .shift = axis.shift};
  kPlainKernels.row_of_4(rest, in, out + std::ptrdiff_t{i} * 3);
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

struct Column {
  const std::uint8_t* const* rows;
  const std::int16_t* weights;
  int taps;
  int shift;
};

// 32 bytes of each row at `x`. kTaps: the column's taps, or 0 for any number of them.
template <int kTaps>
BEDPLATE_INLINE void column_of_32(const Column& column, std::size_t x, std::uint8_t* out) {
  const int taps = kTaps == 0 ? column.taps : kTaps;
  const __m256i zero = _mm256_setzero_si256();
  const __m256i half = _mm256_set1_epi32(1 << (column.shift - 1));
  __m256i sums[4] = {half, half, half, half};
#pragma GCC unroll 8
  for (int k = 0; k < taps; k += 2) {
    const auto row = [&](int at) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(column.rows[at] + x));
    };
    const __m256i two = _mm256_broadcastd_epi32(_mm_loadu_si32(column.weights + k));
    const __m256i low = _mm256_unpacklo_epi8(row(k), row(k + 1));
    const __m256i high = _mm256_unpackhi_epi8(row(k), row(k + 1));
    const __m256i pairs[4] = {_mm256_unpacklo_epi8(low, zero), _mm256_unpackhi_epi8(low, zero),
                              _mm256_unpacklo_epi8(high, zero), _mm256_unpackhi_epi8(high, zero)};
    for (int i = 0; i < 4; ++i)
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs[i], two));
  }
  const __m128i count = _mm_cvtsi32_si128(column.shift);
  for (__m256i& sum : sums) sum = _mm256_sra_epi32(sum, count);
  const __m256i low = _mm256_packs_epi32(sums[0], sums[1]);
  const __m256i high = _mm256_packs_epi32(sums[2], sums[3]);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), _mm256_packus_epi16(low, high));
}

template <int kTaps>
void whole_column(const Column& column, std::size_t bytes, std::uint8_t* out) {
  for (std::size_t x = 0; x + 32 <= bytes; x += 32) column_of_32<kTaps>(column, x, out);
  // Not a byte behind the end: another thread may be at it.
  if (bytes % 32 != 0) column_of_32<kTaps>(column, bytes - 32, out);
}

void column(const std::uint8_t* const* rows, const std::int16_t* weights, int taps, int shift,
            std::size_t bytes, std::uint8_t* out) {
  if (bytes < 32) return kPlainKernels.column(rows, weights, taps, shift, bytes, out);
  const Column all{rows, weights, taps, shift};
  switch (taps) {
    case 2:
      return whole_column<2>(all, bytes, out);
    case 4:
      return whole_column<4>(all, bytes, out);
    case 6:
      return whole_column<6>(all, bytes, out);
    default:
      return whole_column<0>(all, bytes, out);
  }
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
