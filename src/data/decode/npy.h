// NumPy's .npy files as a view: no copy, nothing executed.
//
//   const NpyArray array = parse_npy(bytes);   // of np.save(): versions 1, 2 and 3 of the format
//   array.dtype, array.shape, array.bytes      // bytes: [shape…], little-endian, C order
//
// Format: numpy.lib.format. Its head is a Python literal; exactly the dictionary that NumPy writes
// is taken, in any order and spacing, and no other Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/schema.h"

namespace bedplate::data {

struct NpyArray {
  Dtype dtype = Dtype::kBytes;
  std::vector<std::int64_t> shape;   // empty: one element
  std::span<const std::byte> bytes;  // into the file; not aligned beyond what the file is
};

// What a file's head says, by its first bytes: at most kMostNpyHead of them are needed.
struct NpyHead {
  Dtype dtype = Dtype::kBytes;
  std::vector<std::int64_t> shape;  // empty: one element
  std::int64_t head_bytes = 0;      // the numbers follow
  std::int64_t data_bytes = 0;      // of the numbers
};
constexpr std::int64_t kMostNpyHead = 64 * 1024 + 12;
// Errors as those of parse_npy(), but for what they say of the numbers.
NpyHead parse_npy_head(std::span<const std::byte> begin_of_file);

// The head of a file of such numbers. nullopt for bf16, bytes and text, which NumPy does not have.
std::optional<std::string> make_npy_head(Dtype dtype, std::span<const std::int64_t> shape);

// Error{kCorrupt} for what is no such file, one that is cut off and one with bytes behind the
// array; {kUnsupported} for Fortran order (save np.ascontiguousarray(a)), big-endian numbers,
// pickled objects, structured, text, complex and time dtypes, and a newer version of the format.
NpyArray parse_npy(std::span<const std::byte> file);

}  // namespace bedplate::data
