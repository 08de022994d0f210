// Where the samples of one shard lie and what they are made of, whatever its format.
//
//   const auto index = open_packed(store, info);
//   const Extent extent = index->extent(17);        // one read brings the whole sample
//   … read extent.bytes from extent.offset of index->object(17, …) into raw;
//     check crc32c(raw) == extent.crc …
//   index->unpack(17, raw, sample);                 // sample.fields: views
//
// Thread-safe to read. At most 24 bytes of memory a sample, but for formats whose samples are
// objects of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/schema.h"
#include "store/store.h"

namespace bedplate::data {

struct Extent {
  std::int64_t offset = 0;  // in the object
  std::int64_t bytes = 0;
  std::optional<std::uint32_t> crc;  // CRC32C of these bytes, where the format has one
};

struct Field {
  std::string name;
  Dtype dtype = Dtype::kBytes;
  std::vector<std::int64_t> shape;   // elements in each dimension
  std::span<const std::byte> bytes;  // into what was read, or into Sample::owned
  std::string_view encoding = {};    // what the bytes are, where the format says so: "jpeg"; static
};

struct Sample {
  std::string key;  // its name, where the format has one: WebDataset's key, a loose file's path
  std::vector<Field> fields;
  std::deque<std::string> owned;  // bytes that had to be unpacked
  std::deque<std::string> raw;    // what was read, when the sample holds it itself

  void clear() {
    key.clear();
    fields.clear();
    owned.clear();
  }
};

class ShardIndex {
 public:
  explicit ShardIndex(store::ObjectInfo object) : object_(std::move(object)) {}
  virtual ~ShardIndex() = default;

  // As it was opened.
  const store::ObjectInfo& shard() const { return object_; }

  virtual std::int64_t samples() const = 0;
  // 0 <= sample < samples(), else undefined; so in all members.
  virtual Extent extent(std::int64_t sample) const = 0;
  // The object that the extent is of: the shard, or one that is made into `scratch`.
  virtual const store::ObjectInfo& object(std::int64_t /*sample*/,
                                          store::ObjectInfo& /*scratch*/) const {
    return object_;
  }
  // `raw`: the bytes of extent(sample). Error{kCorrupt} when they cannot be a sample.
  virtual void unpack(std::int64_t sample, std::span<const std::byte> raw, Sample& out) const = 0;
  // Where `field` lies when it is at the same place in all samples: it can be copied unparsed.
  virtual std::optional<FixedPlace> fixed_place(std::string_view /*field*/) const { return {}; }
  // What every sample is made of, where the format says so; nullptr where samples may differ.
  virtual const Schema* schema() const { return nullptr; }
  virtual std::int64_t memory_bytes() const = 0;

 protected:
  const store::ObjectInfo object_;
};

}  // namespace bedplate::data
