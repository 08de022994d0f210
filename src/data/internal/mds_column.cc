#include "data/internal/mds_column.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::data {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Number {
  std::string_view name;
  Dtype dtype;
  int code;  // in arrays whose dtype is in the value
};
constexpr std::array<Number, 11> kNumbers = {{{"uint8", Dtype::kU8, 8},
                                              {"int8", Dtype::kI8, 9},
                                              {"uint16", Dtype::kU16, 16},
                                              {"int16", Dtype::kI16, 17},
                                              {"float16", Dtype::kF16, 18},
                                              {"uint32", Dtype::kU32, 32},
                                              {"int32", Dtype::kI32, 33},
                                              {"float32", Dtype::kF32, 34},
                                              {"uint64", Dtype::kU64, 64},
                                              {"int64", Dtype::kI64, 65},
                                              {"float64", Dtype::kF64, 66}}};

struct Text {
  std::string_view name;
  Dtype dtype;
  std::string_view told;
};
constexpr std::array<Text, 9> kTexts = {{{"bytes", Dtype::kBytes, ""},
                                         {"str", Dtype::kUtf8, ""},
                                         {"str_int", Dtype::kUtf8, "str_int"},
                                         {"str_float", Dtype::kUtf8, "str_float"},
                                         {"str_decimal", Dtype::kUtf8, "str_decimal"},
                                         {"json", Dtype::kUtf8, "json"},
                                         {"jpeg", Dtype::kBytes, "jpeg"},
                                         {"png", Dtype::kBytes, "png"},
                                         {"pil", Dtype::kBytes, "pil"}}};
constexpr std::string_view kArray = "ndarray";
constexpr std::int64_t kMostBytes = UINT32_MAX;  // of a value: MDS's own sizes are u32

// Bytes of so many elements; nullopt when they are more than a value can have.
std::optional<std::int64_t> bytes_of(std::span<const std::int64_t> shape, Dtype dtype) {
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  for (const std::int64_t n : shape) {
    if (n < 0 || (n > 0 && bytes > kMostBytes / n)) return std::nullopt;
    bytes *= n;
  }
  return bytes;
}

}  // namespace

MdsColumn::MdsColumn(std::string name, std::string_view encoding) : name_(std::move(name)) {
  const std::string_view base = encoding.substr(0, encoding.find(':'));
  const auto text = std::ranges::find(kTexts, encoding, &Text::name);
  const auto number = std::ranges::find(kNumbers, encoding, &Number::name);
  if (text != kTexts.end()) {
    kind_ = Kind::kText;
    dtype_ = text->dtype;
    told_ = text->told;
  } else if (number != kNumbers.end()) {
    dtype_ = number->dtype;
  } else if (encoding == "int") {
    dtype_ = Dtype::kI64;
  } else if (base == kArray) {
    kind_ = Kind::kArray;
    parse_array(encoding.substr(std::min(encoding.size(), base.size() + 1)));
  } else {
    throw Error(Code::kUnsupported, "column {} has the encoding {}, which is not read{}",
                to_utf8(name_), to_utf8(encoding),
                base == "pkl" ? ": a pickle is a program, and would be run" : "");
  }
}

// "", "DTYPE" or "DTYPE:N,M,…".
void MdsColumn::parse_array(std::string_view arguments) {
  const auto refuse = [&] {
    throw Error(Code::kCorrupt, "column {} has an impossible encoding ndarray:{}", to_utf8(name_),
                to_utf8(arguments));
  };
  dtype_in_value_ = arguments.empty();
  const std::size_t colon = arguments.find(':');
  shape_in_value_ = colon == std::string_view::npos;
  if (!dtype_in_value_) {
    const auto number = std::ranges::find(kNumbers, arguments.substr(0, colon), &Number::name);
    if (number == kNumbers.end()) refuse();
    dtype_ = number->dtype;
  }
  if (shape_in_value_) return;
  for (const std::string_view one : split(arguments.substr(colon + 1), ',')) {
    shape_.push_back(to_int(one).value_or(0));
    if (shape_.back() < 1) refuse();
  }
  if (!bytes_of(shape_, dtype_)) refuse();
}

std::optional<std::int64_t> MdsColumn::size() const {
  if (kind_ == Kind::kText || dtype_in_value_ || shape_in_value_) return std::nullopt;
  return bytes_of(shape_, dtype_);
}

Field MdsColumn::field(std::span<const std::byte> bytes) const {
  if (kind_ == Kind::kArray) return array(bytes);
  if (kind_ == Kind::kText) return {name_, dtype_, {std::ssize(bytes)}, bytes, told_};
  if (bytes.size() != size_of(dtype_))
    throw Error(Code::kCorrupt, "column {} has {} bytes in place of {}", name_, bytes.size(),
                size_of(dtype_));
  return {name_, dtype_, {}, bytes};
}

// [u8 code of the dtype] [u8 dimensions << 2 | log2 of a size's bytes] [sizes] values.
Field MdsColumn::array(std::span<const std::byte> bytes) const {
  const auto refuse = [&] {
    throw Error(Code::kCorrupt, "column {} holds {} bytes that are no array", name_, bytes.size());
  };
  std::size_t at = 0;
  const auto byte = [&] {
    if (at == bytes.size()) refuse();
    return std::to_integer<int>(bytes[at++]);
  };
  Field out{name_, dtype_, shape_};
  if (dtype_in_value_) {
    const auto number = std::ranges::find(kNumbers, byte(), &Number::code);
    if (number == kNumbers.end()) refuse();
    out.dtype = number->dtype;
  }
  if (shape_in_value_) {
    const int head = byte();
    const std::size_t each = std::size_t{1} << (head & 3);
    for (int i = 0; i < head >> 2; ++i) {
      if (bytes.size() - at < each) refuse();
      std::uint64_t n = 0;
      std::memcpy(&n, bytes.data() + at, each);
      at += each;
      if (n > static_cast<std::uint64_t>(kMostBytes)) refuse();
      out.shape.push_back(static_cast<std::int64_t>(n));
    }
  }
  out.bytes = bytes.subspan(at);
  if (bytes_of(out.shape, out.dtype) != std::ssize(out.bytes)) refuse();
  return out;
}

}  // namespace bedplate::data
