// Writes one packed shard (docs/formats.md).
//
//   PackedWriter shard(store.create("000000.shard", IfExists::kRefuse, timeout), schema);
//   for (…) shard.add(values);             // a span of bytes for each column
//   const ObjectInfo made = shard.finish();
//
// Holds one block in memory, and 16 bytes a record. One thread. Errors are those of the store, and
// Error{kInvalid} for values that do not fit the schema: nothing of such a sample is written.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/packed_layout.h"
#include "data/schema.h"
#include "store/store.h"

namespace bedplate::data {

struct PackedOptions {
  std::int64_t block_bytes = 4 * 1024 * 1024;  // of data; a larger record has a block of its own
};

class PackedWriter {
 public:
  PackedWriter(std::unique_ptr<store::ObjectWriter> out, Schema schema, PackedOptions options = {});

  void add(std::span<const std::span<const std::byte>> values);
  std::int64_t records() const { return static_cast<std::int64_t>(entries_.size()); }
  // What the file would have if it were finished now.
  std::int64_t bytes() const;
  store::ObjectInfo finish();

 private:
  void write(std::string_view bytes);
  void pad_to_page();
  void flush_block();

  std::unique_ptr<store::ObjectWriter> out_;
  Schema schema_;
  PackedOptions options_;
  std::int64_t written_ = 0;
  std::uint64_t blocks_ = 0;
  std::size_t flushed_ = 0;            // records that lie in blocks that were written
  std::string data_;                   // of the open block
  std::vector<std::uint64_t> places_;  // of the records: in the file, or in data_ while it is open
  std::vector<packed::Entry> entries_;
};

}  // namespace bedplate::data
