// Reads the index of a packed shard (docs/formats.md).
#pragma once

#include <memory>

#include "data/shard_index.h"
#include "store/store.h"

namespace bedplate::data {

// What to do with a shard whose end is missing.
enum class CutOff {
  kRefuse,   // Error{kCorrupt}, saying how much could be read
  kRecover,  // the samples of all whole blocks before the end
};

// Error{kCorrupt} for what is no packed shard or a damaged one, kUnsupported for one that needs a
// newer Bedplate, and those of the store.
std::shared_ptr<const ShardIndex> open_packed(store::Store& store, const store::ObjectInfo& info,
                                              CutOff cut_off = CutOff::kRefuse,
                                              Deadline deadline = Deadline::after(60 * kSecond));

}  // namespace bedplate::data
