// tf.train.Example, taken apart without TensorFlow: a message of named lists of bytes, floats or
// 64-bit integers (tensorflow/core/example/{example,feature}.proto), in protobuf's wire format
// (protobuf.dev/programming-guides/encoding).
//
//   if (!unpack_example(record, sample)) …   // it is none
#pragma once

#include <cstddef>
#include <span>

#include "data/shard_index.h"

namespace bedplate::data {

// Appends a field for each feature, in the order of their names' bytes: f32 and i64 with the shape
// [values], and bytes; a list of several bytes becomes NAME[0], NAME[1], …; a feature without
// values is no bytes. False, with `out` as it was, for what is no Example or one without features.
// Views into the record and out.owned.
bool unpack_example(std::span<const std::byte> record, Sample& out);

}  // namespace bedplate::data
