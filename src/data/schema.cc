#include "data/schema.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "data/json_text.h"

namespace bedplate::data {
namespace {

constexpr std::size_t kMostDimensions = 32;  // NumPy 1 has no more

struct DtypeText {
  std::string_view name;
  std::size_t size;
};
// In the order of Dtype.
constexpr std::array<DtypeText, 15> kDtypes = {{{"i8", 1},
                                                {"u8", 1},
                                                {"i16", 2},
                                                {"u16", 2},
                                                {"i32", 4},
                                                {"u32", 4},
                                                {"i64", 8},
                                                {"u64", 8},
                                                {"f16", 2},
                                                {"bf16", 2},
                                                {"f32", 4},
                                                {"f64", 8},
                                                {"bool", 1},
                                                {"bytes", 1},
                                                {"utf8", 1}}};
struct OtherName {
  std::string_view theirs;
  std::string_view ours;
};
// As NumPy, PyTorch and ShardWriter have them.
constexpr std::array<OtherName, 13> kOtherNames = {{{"int8", "i8"},
                                                    {"uint8", "u8"},
                                                    {"int16", "i16"},
                                                    {"uint16", "u16"},
                                                    {"int32", "i32"},
                                                    {"uint32", "u32"},
                                                    {"int64", "i64"},
                                                    {"uint64", "u64"},
                                                    {"float16", "f16"},
                                                    {"bfloat16", "bf16"},
                                                    {"float32", "f32"},
                                                    {"float64", "f64"},
                                                    {"str", "utf8"}}};
constexpr std::size_t kMostColumns = 256;
constexpr std::size_t kLongestName = 255;
constexpr std::size_t kMostBytes = UINT32_MAX;  // of a value

bool is_bytes(Dtype dtype) { return dtype == Dtype::kBytes || dtype == Dtype::kUtf8; }

std::size_t rounded(std::size_t at, std::size_t align) { return (at + align - 1) / align * align; }

void check_name(const std::string& name, std::set<std::string>& names) {
  const bool printable = std::ranges::all_of(name, [](unsigned char c) { return c >= ' '; });
  if (name.empty() || name.size() > kLongestName || !printable || name != to_utf8(name))
    throw Error(Code::kInvalid, "'{}' is no name of a column", to_utf8(name));
  if (!names.insert(name).second) throw Error(Code::kInvalid, "two columns are named {}", name);
}

// Bytes of a value, or of what a column of any length repeats.
std::size_t unit_of(const Column& column) {
  std::size_t bytes = size_of(column.dtype);
  if (column.shape.size() > kMostDimensions)
    throw Error(Code::kInvalid, "column {} has {} dimensions; {} are the most that arrays have",
                column.name, column.shape.size(), kMostDimensions);
  for (std::size_t i = 0; i < column.shape.size(); ++i) {
    const std::int64_t n = column.shape[i];
    if (i == 0 && n == kAny) continue;
    if (n < 0 || (n > 0 && bytes > kMostBytes / static_cast<std::size_t>(n)) ||
        is_bytes(column.dtype)) {
      throw Error(Code::kInvalid, "column {} cannot have the shape [{}]", column.name,
                  fmt::join(column.shape, ", "));
    }
    bytes *= static_cast<std::size_t>(n);
  }
  return bytes;
}

bool is_variable(const Column& column) {
  return is_bytes(column.dtype) || (!column.shape.empty() && column.shape.front() == kAny);
}

}  // namespace

std::string_view name(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].name; }

std::optional<Dtype> dtype_of(std::string_view name) {
  const auto known = std::ranges::find(kDtypes, name, &DtypeText::name);
  if (known == kDtypes.end()) return std::nullopt;
  return static_cast<Dtype>(known - kDtypes.begin());
}

Dtype parse_dtype(std::string_view text) {
  const auto other = std::ranges::find(kOtherNames, text, &OtherName::theirs);
  if (const auto dtype = dtype_of(other == kOtherNames.end() ? text : other->ours)) return *dtype;
  std::vector<std::string_view> names;
  for (const DtypeText& known : kDtypes) names.push_back(known.name);
  const std::string list = fmt::format("{}", fmt::join(names, ", "));
  for (const OtherName& known : kOtherNames) names.push_back(known.theirs);
  const std::string_view nearest = nearest_name(text, names);
  throw Error(
      Code::kInvalid, "there is no dtype '{}'{}; there are {}, and Python's names of them (uint16)",
      to_utf8(text), nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest), list);
}

std::size_t size_of(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].size; }

Schema::Schema(std::vector<Column> columns) : columns_(std::move(columns)) {
  if (columns_.empty() || columns_.size() > kMostColumns)
    throw Error(Code::kInvalid, "a sample has 1 to {} columns, not {}", kMostColumns,
                columns_.size());
  std::set<std::string> names;
  for (const Column& column : columns_) {
    check_name(column.name, names);
    layouts_.push_back({size_of(column.dtype), unit_of(column), is_variable(column)});
    variable_ += layouts_.back().variable ? 1 : 0;
  }
}

std::string Schema::to_json() const {
  nlohmann::ordered_json columns = nlohmann::ordered_json::array();
  for (const Column& column : columns_) {
    nlohmann::ordered_json one = {{"name", column.name}, {"dtype", name(column.dtype)}};
    if (!column.shape.empty()) one["shape"] = column.shape;
    columns.push_back(std::move(one));
  }
  return nlohmann::ordered_json{{"columns", columns}}.dump();
}

Schema Schema::from_json(std::string_view text) {
  try {
    std::vector<Column> columns;
    const auto document = parse_json(text, "the schema is no schema: it", Code::kCorrupt);
    for (const auto& one : document.at("columns")) {
      Column column{.name = one.at("name").get<std::string>()};
      const auto text_of_dtype = one.at("dtype").get<std::string>();
      const auto dtype = dtype_of(text_of_dtype);
      if (!dtype)
        throw Error(Code::kCorrupt, "the schema has a dtype {} that is not known",
                    to_utf8(text_of_dtype));
      column.dtype = *dtype;
      if (one.contains("shape")) column.shape = one["shape"].get<std::vector<std::int64_t>>();
      columns.push_back(std::move(column));
    }
    return Schema(std::move(columns));
  } catch (const nlohmann::ordered_json::exception& error) {
    throw Error(Code::kCorrupt, "the schema is no schema: {}", to_utf8(error.what()));
  }
}

void Schema::append(std::span<const std::span<const std::byte>> values, std::string& record) const {
  if (values.size() != columns_.size())
    throw Error(Code::kInvalid, "a sample has {} columns, {} values were given", columns_.size(),
                values.size());
  const std::size_t begin = record.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Layout& layout = layouts_[i];
    const std::size_t bytes = values[i].size();
    const bool fits =
        layout.variable
            ? bytes <= kMostBytes && (layout.unit == 0 ? bytes == 0 : bytes % layout.unit == 0)
            : bytes == layout.unit;
    if (!fits) {
      throw Error(Code::kInvalid, "column {} takes {}{} bytes, {} were given", columns_[i].name,
                  layout.variable ? "a multiple of " : "", layout.unit, bytes);
    }
    if (!layout.variable) continue;
    const auto length = static_cast<std::uint32_t>(bytes);
    record.append(reinterpret_cast<const char*>(&length), sizeof length);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    record.resize(begin + rounded(record.size() - begin, layouts_[i].align), '\0');
    record.append(reinterpret_cast<const char*>(values[i].data()), values[i].size());
  }
}

void Schema::parse(std::span<const std::byte> record, Values& values) const {
  values.clear();
  std::size_t at = variable_ * sizeof(std::uint32_t);
  std::size_t next_length = 0;
  const auto refuse = [&](std::size_t i) {
    throw Error(Code::kCorrupt, "a record of {} bytes has no room for its column {}", record.size(),
                columns_[i].name);
  };
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Layout& layout = layouts_[i];
    std::size_t bytes = layout.unit;
    if (layout.variable) {
      if (record.size() < variable_ * sizeof(std::uint32_t)) refuse(i);
      std::uint32_t length = 0;
      std::memcpy(&length, record.data() + next_length, sizeof length);
      next_length += sizeof length;
      bytes = length;
      if (layout.unit == 0 ? bytes != 0 : bytes % layout.unit != 0) refuse(i);
    }
    at = rounded(at, layout.align);
    if (at > record.size() || bytes > record.size() - at) refuse(i);
    values.push_back(record.subspan(at, bytes));
    at += bytes;
  }
  if (at != record.size())
    throw Error(Code::kCorrupt, "a record has {} bytes where its columns have {}", record.size(),
                at);
}

std::optional<FixedPlace> Schema::fixed_place(std::string_view column) const {
  std::size_t at = variable_ * sizeof(std::uint32_t);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (layouts_[i].variable) return std::nullopt;
    at = rounded(at, layouts_[i].align);
    if (columns_[i].name == column) {
      return FixedPlace{static_cast<std::int64_t>(at), static_cast<std::int64_t>(layouts_[i].unit),
                        columns_[i].dtype, columns_[i].shape};
    }
    at += layouts_[i].unit;
  }
  return std::nullopt;
}

std::vector<std::int64_t> Schema::shape_of(const Column& column, std::size_t bytes) {
  if (is_bytes(column.dtype)) return {static_cast<std::int64_t>(bytes)};
  std::vector<std::int64_t> shape = column.shape;
  if (!shape.empty() && shape.front() == kAny) {
    const std::size_t unit = unit_of(column);
    shape.front() = unit > 0 ? static_cast<std::int64_t>(bytes / unit) : 0;
  }
  return shape;
}

}  // namespace bedplate::data
