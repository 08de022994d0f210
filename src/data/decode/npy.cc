#include "data/decode/npy.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::data {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMagic = "\x93NUMPY"sv;
constexpr std::size_t kMostDimensions = 64;  // NumPy's

[[noreturn]] void corrupt(std::string_view what) {
  throw Error(Code::kCorrupt, "a damaged .npy file: {}", what);
}

constexpr std::pair<std::string_view, Dtype> kDtypes[] = {
    {"b1", Dtype::kBool}, {"i1", Dtype::kI8},  {"u1", Dtype::kU8},  {"i2", Dtype::kI16},
    {"u2", Dtype::kU16},  {"i4", Dtype::kI32}, {"u4", Dtype::kU32}, {"i8", Dtype::kI64},
    {"u8", Dtype::kU64},  {"f2", Dtype::kF16}, {"f4", Dtype::kF32}, {"f8", Dtype::kF64}};

// Reads the dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class Head {
 public:
  explicit Head(std::string_view text) : rest_(text) {}

  void parse() {
    take('{');
    while (!take_if('}')) {
      const std::string_view key = quoted();
      take(':');
      if (key == "descr" && !dtype_) {
        take_dtype();
      } else if (key == "fortran_order" && !fortran_) {
        fortran_ = truth();
      } else if (key == "shape" && !shape_) {
        take_shape();
      } else {
        corrupt(fmt::format("its head has {} twice, or nobody knows it", to_utf8(key)));
      }
      if (take_if(',')) continue;
      take('}');
      break;
    }
    skip_space();
    if (!rest_.empty()) corrupt("its head goes on behind its end");
    if (!dtype_ || !fortran_ || !shape_) corrupt("its head lacks descr, fortran_order or shape");
  }

  Dtype dtype() const { return *dtype_; }
  bool fortran() const { return *fortran_; }
  const std::vector<std::int64_t>& shape() const { return *shape_; }

 private:
  void skip_space() {
    while (!rest_.empty() && " \t\r\n"sv.find(rest_.front()) != rest_.npos) rest_.remove_prefix(1);
  }
  bool take_if(char wanted) {
    skip_space();
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void take(char wanted) {
    if (!take_if(wanted)) corrupt(fmt::format("its head lacks a {}", wanted));
  }
  std::string_view quoted() {
    skip_space();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    if (quote != '\'' && quote != '"') corrupt("its head lacks a text");
    const std::size_t end = rest_.find(quote, 1);
    if (end == rest_.npos) corrupt("a text in its head does not end");
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool truth() {
    skip_space();
    for (const auto& [word, value] : {std::pair{"True"sv, true}, std::pair{"False"sv, false}}) {
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return value;
    }
    corrupt("its fortran_order is neither True nor False");
  }
  std::int64_t number() {
    skip_space();
    const std::size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    const auto value = to_int(rest_.substr(0, digits));
    if (!value) corrupt("its shape has no number where one must be");
    rest_.remove_prefix(digits);
    if (rest_.starts_with('L')) rest_.remove_prefix(1);  // Python 2 wrote long integers so
    return *value;
  }
  void take_shape() {
    shape_.emplace();
    take('(');
    while (!take_if(')')) {
      shape_->push_back(number());
      if (shape_->size() > kMostDimensions) corrupt("its shape has more than 64 dimensions");
      if (take_if(',')) continue;
      // "(3)" is a number to Python, not a shape.
      if (shape_->size() == 1) corrupt("its shape lacks a comma");
      take(')');
      break;
    }
  }
  void take_dtype() {
    skip_space();
    if (rest_.starts_with('['))
      throw Error(Code::kUnsupported,
                  "a .npy file of a structured dtype is not read: save each field as an array");
    const std::string_view descr = quoted();
    const char order = descr.empty() ? '\0' : descr.front();
    const std::string_view type = descr.substr(std::min<std::size_t>(1, descr.size()));
    for (const auto& [name, dtype] : kDtypes) {
      if (type != name) continue;
      const bool one_byte = type.back() == '1';
      if (order == '<' || (one_byte && (order == '|' || order == '>' || order == '='))) {
        dtype_ = dtype;
        return;
      }
      if (order == '>')
        throw Error(Code::kUnsupported,
                    "a .npy file of big-endian {} is not read: save a.astype('<{}')", type, type);
    }
    if (type.starts_with('O'))
      throw Error(Code::kUnsupported,
                  "a .npy file of pickled objects is not read: unpickling runs whatever code is "
                  "in it; save an array of numbers");
    throw Error(Code::kUnsupported,
                "a .npy file of dtype '{}' is not read: booleans, integers and floats of 2, 4 and "
                "8 bytes are",
                to_utf8(descr));
  }

  std::string_view rest_;
  std::optional<Dtype> dtype_;
  std::optional<bool> fortran_;
  std::optional<std::vector<std::int64_t>> shape_;
};

std::size_t little_endian(std::string_view bytes) {
  std::size_t value = 0;
  for (auto it = bytes.rbegin(); it != bytes.rend(); ++it)
    value = value << 8 | static_cast<unsigned char>(*it);
  return value;
}

}  // namespace

NpyHead parse_npy_head(std::span<const std::byte> begin_of_file) {
  const std::string_view text(reinterpret_cast<const char*>(begin_of_file.data()),
                              begin_of_file.size());
  if (!text.starts_with(kMagic))
    throw Error(Code::kCorrupt, "no .npy file: {}",
                kMagic.starts_with(text) ? "it is cut off" : "it begins otherwise");
  if (text.size() < kMagic.size() + 2) corrupt("it is cut off in its head");
  const int version = static_cast<unsigned char>(text[kMagic.size()]);
  if (version < 1 || version > 3 || text[kMagic.size() + 1] != 0)
    throw Error(Code::kUnsupported, "a .npy file of version {}.{} is not read: 1.0 to 3.0 are",
                version, static_cast<unsigned char>(text[kMagic.size() + 1]));
  const std::size_t width = version == 1 ? 2 : 4;  // of the head's length
  const std::size_t begin = kMagic.size() + 2 + width;
  if (text.size() < begin) corrupt("it is cut off in its head");
  const std::size_t head_bytes = little_endian(text.substr(begin - width, width));
  if (text.size() - begin < head_bytes) corrupt("it is cut off in its head");
  Head head(text.substr(begin, head_bytes));
  head.parse();

  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  std::size_t bytes = size_of(head.dtype());
  const bool empty = std::ranges::find(head.shape(), 0) != head.shape().end();
  for (const std::int64_t elements : head.shape()) {
    const auto n = static_cast<std::size_t>(elements);
    if (!empty && n > kMost / bytes) corrupt("its shape is larger than any memory");
    bytes = empty ? 0 : bytes * n;
  }
  // One element or one long dimension is the same in both orders.
  const auto long_dimensions =
      std::ranges::count_if(head.shape(), [](std::int64_t n) { return n > 1; });
  if (head.fortran() && long_dimensions > 1 && !empty)
    throw Error(Code::kUnsupported,
                "a .npy file in Fortran order is not read: save np.ascontiguousarray(a)");
  return {.dtype = head.dtype(),
          .shape = head.shape(),
          .head_bytes = static_cast<std::int64_t>(begin + head_bytes),
          .data_bytes = static_cast<std::int64_t>(bytes)};
}

NpyArray parse_npy(std::span<const std::byte> file) {
  NpyHead head = parse_npy_head(file);
  const auto bytes = static_cast<std::size_t>(head.data_bytes);
  const std::span<const std::byte> data = file.subspan(static_cast<std::size_t>(head.head_bytes));
  if (data.size() < bytes)
    corrupt(fmt::format("it is cut off: of {} bytes of numbers {} are missing", bytes,
                        bytes - data.size()));
  if (data.size() > bytes)
    corrupt(fmt::format("{} bytes lie behind its array", data.size() - bytes));
  return {.dtype = head.dtype, .shape = std::move(head.shape), .bytes = data};
}

std::optional<std::string> make_npy_head(Dtype dtype, std::span<const std::int64_t> shape) {
  const auto known = std::ranges::find(kDtypes, dtype, &std::pair<std::string_view, Dtype>::second);
  if (known == std::end(kDtypes)) return std::nullopt;
  std::string dictionary =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}",
                  size_of(dtype) == 1 ? '|' : '<', known->first, fmt::join(shape, ", "),
                  shape.size() == 1 ? "," : "");
  constexpr std::size_t kAlign = 64;
  constexpr std::size_t kBefore = 10;  // magic, version and length
  const std::size_t whole = (kBefore + dictionary.size() + kAlign) / kAlign * kAlign;
  dictionary.resize(whole - kBefore - 1, ' ');
  dictionary += '\n';
  std::string out(kMagic);
  out += "\x01\0"sv;
  out += static_cast<char>(dictionary.size() & 0xFF);
  out += static_cast<char>(dictionary.size() >> 8);
  return out + dictionary;
}

}  // namespace bedplate::data
