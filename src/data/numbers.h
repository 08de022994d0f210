// Numbers of any Dtype, one at a time: for text and JSON, not for batches.
#pragma once

#include <cstdint>

#include "data/schema.h"

namespace bedplate::data {

// IEEE 754 binary16 and bfloat16, rounded to the nearest, ties to even; too large ones become
// infinite, as by a cast.
std::uint16_t to_f16(float value);
float from_f16(std::uint16_t bits);
std::uint16_t to_bf16(float value);
float from_bf16(std::uint16_t bits);

// Calls `visit` with a value of the C++ type that holds one element of `dtype` in memory; f16 and
// bf16 come as std::uint16_t, text and bytes as std::uint8_t, bool as bool.
template <typename Visit>
decltype(auto) with_type_of(Dtype dtype, Visit&& visit) {
  switch (dtype) {
    case Dtype::kI8:
      return visit(std::int8_t{});
    case Dtype::kI16:
      return visit(std::int16_t{});
    case Dtype::kU16:
    case Dtype::kF16:
    case Dtype::kBf16:
      return visit(std::uint16_t{});
    case Dtype::kI32:
      return visit(std::int32_t{});
    case Dtype::kU32:
      return visit(std::uint32_t{});
    case Dtype::kI64:
      return visit(std::int64_t{});
    case Dtype::kU64:
      return visit(std::uint64_t{});
    case Dtype::kF32:
      return visit(float{});
    case Dtype::kF64:
      return visit(double{});
    case Dtype::kBool:
      return visit(bool{});
    case Dtype::kU8:
    case Dtype::kBytes:
    case Dtype::kUtf8:
      break;
  }
  return visit(std::uint8_t{});
}

}  // namespace bedplate::data
