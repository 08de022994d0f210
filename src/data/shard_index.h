// Where the samples of one shard lie and what they are made of, whatever its format.
//
//   const auto index = open_packed(store, info);
//   const Extent extent = index->extent(17);        // one read brings the whole sample
//   … read extent.bytes from extent.offset into raw; check crc32c(raw) == extent.crc …
//   index->fields(17, raw, fields);                 // views into raw
//
// Thread-safe to read. At most 24 bytes of memory a sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/schema.h"

namespace bedplate::data {

struct Extent {
  std::int64_t offset = 0;  // in the shard
  std::int64_t bytes = 0;
  std::optional<std::uint32_t> crc;  // CRC32C of these bytes, where the format has one
};

struct Field {
  std::string name;
  Dtype dtype = Dtype::kBytes;
  std::vector<std::int64_t> shape;   // elements in each dimension
  std::span<const std::byte> bytes;  // into what was read
};

class ShardIndex {
 public:
  virtual ~ShardIndex() = default;

  virtual std::int64_t samples() const = 0;
  // 0 <= sample < samples(), else undefined.
  virtual Extent extent(std::int64_t sample) const = 0;
  // `raw`: the bytes of extent(sample). Error{kCorrupt} when they cannot be a sample.
  virtual void fields(std::int64_t sample, std::span<const std::byte> raw,
                      std::vector<Field>& fields) const = 0;
  virtual std::int64_t memory_bytes() const = 0;
};

}  // namespace bedplate::data
