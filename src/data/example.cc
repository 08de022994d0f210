#include "data/example.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"

namespace bedplate::data {
namespace {

static_assert(std::endian::native == std::endian::little);

using Bytes = std::span<const std::byte>;

enum Wire : std::uint8_t { kVarint = 0, kLengthDelimited = 2, kFixed32 = 5 };

// One field of a message.
struct Piece {
  std::uint64_t number = 0;
  std::uint8_t wire = kVarint;
  std::uint64_t varint = 0;
  Bytes bytes;  // of the two other kinds
};

// The fields of a message, one after the other. Kinds that an Example has none of are failures.
class Message {
 public:
  explicit Message(Bytes bytes) : rest_(bytes) {}

  // nullopt at the end, and when what follows is no field: then failed().
  std::optional<Piece> next() {
    if (rest_.empty()) return std::nullopt;
    Piece piece;
    const auto tag = varint();
    if (!tag) return fail();
    piece.number = *tag >> 3;
    piece.wire = *tag & 7;
    if (piece.wire == kVarint) {
      const auto value = varint();
      if (!value) return fail();
      piece.varint = *value;
      return piece;
    }
    std::optional<std::uint64_t> length = sizeof(float);
    if (piece.wire == kLengthDelimited) length = varint();
    if (!length || *length > rest_.size() ||
        (piece.wire != kLengthDelimited && piece.wire != kFixed32))
      return fail();
    piece.bytes = rest_.first(*length);
    rest_ = rest_.subspan(*length);
    return piece;
  }
  bool failed() const { return failed_; }

  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = std::to_integer<std::uint64_t>(rest_.front());
      rest_ = rest_.subspan(1);
      if (shift == 63 && byte > 1) return std::nullopt;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::optional<Piece> fail() {
    failed_ = true;
    return std::nullopt;
  }

  Bytes rest_;
  bool failed_ = false;
};

// The values of one feature. Fields that come several times are joined, as protobuf does.
class Feature {
 public:
  bool parse(Bytes bytes) {
    Message feature(bytes);
    while (const auto piece = feature.next()) {
      if (piece->wire != kLengthDelimited || piece->number < 1 || piece->number > 3) return false;
      if (kind_ != piece->number) {  // a oneof: the last kind counts
        pieces_.clear();
        integers_.clear();
      }
      kind_ = piece->number;
      if (!take_list(piece->bytes)) return false;
    }
    return !feature.failed();
  }

  void append_to(std::string_view name, Sample& out) {
    if (kind_ == kIntegers) {
      append_numbers(name, Dtype::kI64, out.owned.emplace_back(std::move(integers_)), out);
    } else if (kind_ == kFloats && pieces_.size() == 1) {
      out.fields.push_back({std::string(name), Dtype::kF32, floats_in(pieces_[0]), pieces_[0]});
    } else if (kind_ == kFloats) {
      std::string& kept = out.owned.emplace_back();
      for (const Bytes piece : pieces_)
        kept.append(reinterpret_cast<const char*>(piece.data()), piece.size());
      append_numbers(name, Dtype::kF32, kept, out);
    } else if (pieces_.empty()) {
      out.fields.push_back({std::string(name), Dtype::kBytes, {0}, {}});
    } else {
      for (std::size_t i = 0; i < pieces_.size(); ++i) {
        const bool only = pieces_.size() == 1;
        out.fields.push_back({only ? std::string(name) : fmt::format("{}[{}]", name, i),
                              Dtype::kBytes,
                              {std::ssize(pieces_[i])},
                              pieces_[i]});
      }
    }
  }

 private:
  // The fields of a Feature.
  enum Kind : std::uint8_t { kNothing = 0, kByteStrings = 1, kFloats = 2, kIntegers = 3 };

  static std::vector<std::int64_t> floats_in(Bytes bytes) {
    return {std::ssize(bytes) / static_cast<std::int64_t>(sizeof(float))};
  }
  static void append_numbers(std::string_view name, Dtype dtype, const std::string& kept,
                             Sample& out) {
    const auto count = std::ssize(kept) / static_cast<std::int64_t>(size_of(dtype));
    out.fields.push_back({std::string(name), dtype, {count}, std::as_bytes(std::span(kept))});
  }

  // BytesList, FloatList or Int64List: `value` is their field 1, repeated, numbers packed or not.
  bool take_list(Bytes bytes) {
    Message list(bytes);
    while (const auto piece = list.next()) {
      if (piece->number != 1) return false;
      const bool packed = piece->wire == kLengthDelimited;
      if (kind_ == kIntegers) {
        if (packed ? !take_varints(piece->bytes) : piece->wire != kVarint) return false;
        if (!packed) take_integer(piece->varint);
        continue;
      }
      if (kind_ == kByteStrings && !packed) return false;
      if (kind_ == kFloats && (piece->wire == kVarint || piece->bytes.size() % sizeof(float) != 0))
        return false;
      pieces_.push_back(piece->bytes);
    }
    return !list.failed();
  }

  bool take_varints(Bytes bytes) {
    Message values(bytes);
    while (!values.at_end()) {
      const auto value = values.varint();
      if (!value) return false;
      take_integer(*value);
    }
    return true;
  }
  void take_integer(std::uint64_t value) {
    integers_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  std::uint64_t kind_ = kNothing;
  std::vector<Bytes> pieces_;  // of byte strings and floats
  std::string integers_;
};

// An entry of the map from names to features.
bool parse_entry(Bytes bytes, std::map<std::string_view, Bytes>& features) {
  std::string_view name;
  Bytes feature;
  Message entry(bytes);
  while (const auto piece = entry.next()) {
    if (piece->wire != kLengthDelimited) return false;
    if (piece->number == 1) {
      name = {reinterpret_cast<const char*>(piece->bytes.data()), piece->bytes.size()};
    } else if (piece->number == 2) {
      feature = piece->bytes;
    } else {
      return false;
    }
  }
  if (entry.failed() || name.empty() || to_utf8(name) != name) return false;
  features.insert_or_assign(name, feature);
  return true;
}

}  // namespace

bool unpack_example(Bytes record, Sample& out) {
  std::map<std::string_view, Bytes> entries;
  Message example(record);
  while (const auto piece = example.next()) {
    if (piece->number != 1 || piece->wire != kLengthDelimited) return false;
    Message features(piece->bytes);
    while (const auto entry = features.next()) {
      if (entry->number != 1 || entry->wire != kLengthDelimited ||
          !parse_entry(entry->bytes, entries))
        return false;
    }
    if (features.failed()) return false;
  }
  if (example.failed() || entries.empty()) return false;
  std::vector<std::pair<std::string_view, Feature>> parsed;
  for (const auto& [name, bytes] : entries) {
    Feature feature;
    if (!feature.parse(bytes)) return false;
    parsed.emplace_back(name, std::move(feature));
  }
  for (auto& [name, feature] : parsed) feature.append_to(name, out);
  return true;
}

}  // namespace bedplate::data
