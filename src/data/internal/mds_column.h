// A column of a MosaicML Streaming (MDS) set: its encoding, and a value as a field.
//
// Encodings as in streaming/base/format/mds/encodings.py of mosaicml-streaming 0.13.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/schema.h"
#include "data/shard_index.h"

namespace bedplate::data {

class MdsColumn {
 public:
  // Error{kUnsupported}, naming column and encoding, for one that is not read; kCorrupt for one
  // that is none.
  MdsColumn(std::string name, std::string_view encoding);

  const std::string& name() const { return name_; }
  // Bytes of each value; nullopt when a value tells its own.
  std::optional<std::int64_t> size() const;
  Dtype dtype() const { return dtype_; }
  // Of a column whose values have a size.
  const std::vector<std::int64_t>& shape() const { return shape_; }

  // Error{kCorrupt} when the bytes cannot be a value.
  Field field(std::span<const std::byte> bytes) const;

 private:
  enum class Kind { kText, kScalar, kArray };

  void parse_array(std::string_view arguments);
  Field array(std::span<const std::byte> bytes) const;

  std::string name_;
  Kind kind_ = Kind::kScalar;
  Dtype dtype_ = Dtype::kBytes;
  std::string_view told_;  // Field::encoding
  std::vector<std::int64_t> shape_;
  // Of arrays: what each value begins with, because the column does not say it.
  bool dtype_in_value_ = false;
  bool shape_in_value_ = false;
};

}  // namespace bedplate::data
