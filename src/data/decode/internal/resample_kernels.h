// The inner loops of resizing, once for any machine and once for each instruction set that is worth
// it. All give the same bits. This header is included by files that are compiled for one
// instruction set: it must define no function.
//
// An output is a sum of inputs times weights, where the weights of one output add up to 2^shift:
//   out = clamp((2^(shift-1) + Σ weight × in) >> shift)
#pragma once

#include <cstddef>
#include <cstdint>

namespace bedplate::data {

struct RowAxis {                // of a row's outputs
  const std::int32_t* first;    // input pixel that the first weight of an output is for
  const std::int16_t* weights;  // `taps` for each output, zeros at their end
  int taps;                     // a multiple of 4
  int outputs;
  int shift;
};

struct ResampleKernels {
  const char* name;
  // From 4 bytes a pixel to 3. `in` is readable for 4 x taps bytes behind its last pixel and `out`
  // writable for 4 bytes behind its last.
  void (*row_of_4)(const RowAxis& axis, const std::uint8_t* in, std::uint8_t* out);
  // One byte a pixel. `in` is readable for taps bytes behind its last.
  void (*row_of_1)(const RowAxis& axis, const std::uint8_t* in, std::uint8_t* out);
  // `out`: `bytes` of it, each from the bytes at its place in the rows. `taps` is even.
  void (*column)(const std::uint8_t* const* rows, const std::int16_t* weights, int taps, int shift,
                 std::size_t bytes, std::uint8_t* out);
  // RGB RGB … into three planes.
  void (*planes)(const std::uint8_t* rgb, std::size_t pixels, std::uint8_t* const* planes);
};

extern const ResampleKernels kPlainKernels;
extern const ResampleKernels kAvx2Kernels;  // on x86-64

// The best for this machine.
const ResampleKernels& resample_kernels();

}  // namespace bedplate::data
