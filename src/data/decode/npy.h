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
#include <span>
#include <vector>

#include "data/schema.h"

namespace bedplate::data {

struct NpyArray {
  Dtype dtype = Dtype::kBytes;
  std::vector<std::int64_t> shape;   // empty: one element
  std::span<const std::byte> bytes;  // into the file; not aligned beyond what the file is
};

// Error{kCorrupt} for what is no such file, one that is cut off and one with bytes behind the
// array; {kUnsupported} for Fortran order (save np.ascontiguousarray(a)), big-endian numbers,
// pickled objects, structured, text, complex and time dtypes, and a newer version of the format.
NpyArray parse_npy(std::span<const std::byte> file);

}  // namespace bedplate::data
