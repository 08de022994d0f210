// Writes samples into one shard, packed or as a WebDataset tar.
//
//   const auto writer = make_shard_writer(Target::kPacked, source.schema(), std::move(object));
//   writer->add(sample, 17);
//   const ObjectInfo made = writer->finish();
//
// One thread. Error{kInvalid} for a sample that does not fit, of which nothing is written then;
// other errors are those of the store, after which the writer cannot be used.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "data/pack_source.h"
#include "data/schema.h"
#include "data/shard_index.h"
#include "store/store.h"

namespace bedplate::data {

class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  // `number` becomes the key where the sample has none and the format needs one.
  virtual void add(const Sample& sample, std::int64_t number) = 0;
  virtual std::int64_t samples() const = 0;
  virtual store::ObjectInfo finish() = 0;
};

// `schema`: of packed shards; nullptr for tars. Packed: fields go into the columns of their names,
// the key into the column __key__. Tar: bytes and text become members as they are; numbers become
// .npy members.
std::unique_ptr<ShardWriter> make_shard_writer(Target target, const Schema* schema,
                                               std::unique_ptr<store::ObjectWriter> out);

// Bytes that a sample will take in a shard, nearly.
std::int64_t bytes_in_shard(Target target, PackSource::Cost cost);

}  // namespace bedplate::data
