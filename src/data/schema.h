// What a sample of a packed shard is made of: named columns with types.
//
//   const Schema schema({{.name = "tokens", .dtype = Dtype::kU16, .shape = {2048}},
//                        {.name = "text", .dtype = Dtype::kUtf8}});
//   schema.append(values, record);   // spans of bytes, one a column → the bytes of a record
//   schema.parse(record, values);    // and back: views into the record
//
// A record: for each column of variable length a u32 with its bytes; then the columns in their
// order, each from a multiple of its dtype's size on, zeros between. Little-endian.
// A value; thread-safe to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bedplate::data {

enum class Dtype : std::uint8_t {
  kI8,
  kU8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF16,
  kBf16,
  kF32,
  kF64,
  kBool,
  kBytes,  // any bytes, of any length
  kUtf8,   // text, of any length
};
std::string_view name(Dtype dtype);
// Of a name as shards have it.
std::optional<Dtype> dtype_of(std::string_view name);
// Of a name as people write it: "u16" or, as Python says, "uint16". Error{kInvalid}, naming the
// nearest, for another.
Dtype parse_dtype(std::string_view text);
std::size_t size_of(Dtype dtype);  // bytes of one element; 1 for bytes and text

struct Column {
  std::string name;
  Dtype dtype = Dtype::kBytes;
  // Elements in each dimension; the first may be kAny: as many as there are. Empty: one element, or
  // the bytes or the text.
  std::vector<std::int64_t> shape = {};

  bool operator==(const Column&) const = default;
};
constexpr std::int64_t kAny = -1;

// Where a column lies inside the bytes of every sample.
struct FixedPlace {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  Dtype dtype = Dtype::kBytes;
  std::vector<std::int64_t> shape = {};
};

class Schema {
 public:
  Schema() = default;
  // Error{kInvalid} for no or too many columns, empty, odd or repeated names, shapes that are
  // negative (but for kAny at the front) or too large.
  explicit Schema(std::vector<Column> columns);

  // As JSON: {"columns": [{"name": "tokens", "dtype": "u16", "shape": [2048]}, …]}. from_json()
  // throws Error{kCorrupt} for what is none.
  std::string to_json() const;
  static Schema from_json(std::string_view text);

  std::span<const Column> columns() const { return columns_; }
  bool operator==(const Schema& other) const { return columns_ == other.columns_; }

  using Values = std::vector<std::span<const std::byte>>;
  // Error{kInvalid} when a value has not the size that its column demands.
  void append(std::span<const std::span<const std::byte>> values, std::string& record) const;
  // Error{kCorrupt} for bytes that are no record of this schema. Views into `record`.
  void parse(std::span<const std::byte> record, Values& values) const;
  // nullopt for a column of variable length, one behind such a column, and an unknown name.
  std::optional<FixedPlace> fixed_place(std::string_view column) const;
  // Elements in each dimension of a value of so many bytes.
  static std::vector<std::int64_t> shape_of(const Column& column, std::size_t bytes);

 private:
  struct Layout {
    std::size_t align = 1;
    std::size_t unit = 1;  // bytes: of the whole column, or of what comes any number of times
    bool variable = false;
  };

  std::vector<Column> columns_;
  std::vector<Layout> layouts_;
  std::size_t variable_ = 0;  // columns
};

}  // namespace bedplate::data
