// Small shards of every format, for tests and fuzzers; and what must hold of any sample.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/shard_index.h"
#include "store/store.h"

namespace bedplate::data {

struct TestFormat {
  std::string_view name;   // of the Format
  std::string_view field;  // that holds a sample's text
  // Writes a shard with these texts; the keys of its objects, that of the shard first.
  std::vector<std::string> (*write)(store::Store& store, const std::string& folder,
                                    std::span<const std::string> texts);
};
std::span<const TestFormat> test_formats();

// Texts that find mistakes: none, short, long, Unicode, zeros.
std::vector<std::string> some_texts(std::size_t count);

// The pieces of formats that Bedplate does not write.
std::string tfrecord_of(std::string_view data);
// A tf.train.Example with a feature of bytes, one of integers and one of floats.
std::string example_of(std::string_view text, std::int64_t number, float real);
std::string protobuf_field(int number, std::string_view bytes);
std::string megatron_index(int dtype_code, std::span<const std::int32_t> lengths,
                           std::span<const std::int64_t> places);
struct MdsTestColumn {
  std::string name;
  std::string encoding;
  std::int64_t size = -1;  // -1: null
};
// Of samples as they lie in the file, heads included.
std::string mds_shard(std::span<const std::string> samples);
std::string mds_index(std::span<const MdsTestColumn> columns, std::string_view basename,
                      std::int64_t bytes, std::int64_t samples);

// Reads and unpacks one sample. False when its bytes are more than `most_bytes` or their checksum
// is wrong. Aborts when the index breaks its promises: a negative extent, a field outside of what
// was read and unpacked, a shape that does not make the field's bytes.
bool read_sample(store::Store& store, const ShardIndex& index, std::int64_t number,
                 std::int64_t most_bytes, std::string& raw, Sample& sample);

}  // namespace bedplate::data
