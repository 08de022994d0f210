#include "data/json_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "base/text.h"
#include "data/numbers.h"

namespace bedplate::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";  // RFC 4648

std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int have = 0;
  if (text.size() % 4 != 0) return std::nullopt;
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  for (const char c : text) {
    const std::size_t value = kBase64.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    bytes += static_cast<char>(bits >> have & 0xFF);
  }
  return bytes;
}

// --- to JSON --------------------------------------------------------------------------------

Json number_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Json element_json(Dtype dtype, const std::byte* at) {
  return with_type_of(dtype, [&](auto value) -> Json {
    std::memcpy(&value, at, sizeof value);
    if (dtype == Dtype::kF16) return number_json(from_f16(static_cast<std::uint16_t>(value)));
    if (dtype == Dtype::kBf16) return number_json(from_bf16(static_cast<std::uint16_t>(value)));
    if constexpr (std::is_floating_point_v<decltype(value)>) return number_json(value);
    return value;
  });
}

Json array_json(const Field& field, std::span<const std::int64_t> shape, const std::byte*& at) {
  if (shape.empty()) {
    Json one = element_json(field.dtype, at);
    at += size_of(field.dtype);
    return one;
  }
  Json list = Json::array();
  for (std::int64_t i = 0; i < shape.front(); ++i)
    list.push_back(array_json(field, shape.subspan(1), at));
  return list;
}

Json field_json(const Field& field) {
  if (field.dtype == Dtype::kBytes || field.dtype == Dtype::kUtf8) {
    const std::string_view text(reinterpret_cast<const char*>(field.bytes.data()),
                                field.bytes.size());
    if (is_utf8(text)) return text;
    return {{"base64", to_base64(text)}};
  }
  const std::byte* at = field.bytes.data();
  return array_json(field, field.shape, at);
}

// --- from JSON ------------------------------------------------------------------------------

Error unfit(const Column& column, const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr std::size_t kMost = 60;
  if (text.size() > kMost) text = to_utf8(text.substr(0, kMost)) + "…";
  return {Code::kInvalid, "column {} of {} cannot hold {}", column.name, name(column.dtype), text};
}

double double_of(const Json& value, const Column& column) {
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  throw unfit(column, value);
}

// Rounded, as floating point numbers are; what would become infinite is not held.
float f32_of(const Json& value, const Column& column) {
  const double exact = double_of(value, column);
  const auto number = static_cast<float>(exact);
  if (std::isinf(number) && !std::isinf(exact)) throw unfit(column, value);
  return number;
}

// `from`, `to`: of a type of two bytes.
template <typename T>
T half_of(const Json& value, const Column& column, std::uint16_t (*to)(float),
          float (*from)(std::uint16_t)) {
  const float number = f32_of(value, column);
  const std::uint16_t half = to(number);
  if (std::isinf(from(half)) && !std::isinf(number)) throw unfit(column, value);
  return static_cast<T>(half);
}

template <typename T>
T integer_of(const Json& value, const Column& column) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    if (number <= static_cast<std::uint64_t>(std::numeric_limits<T>::max()))
      return static_cast<T>(number);
  } else if (value.is_number_integer()) {
    const auto number = value.get<std::int64_t>();
    if (std::is_signed_v<T> && number >= static_cast<std::int64_t>(std::numeric_limits<T>::min()))
      return static_cast<T>(number);
  }
  throw unfit(column, value);
}

void append_element(const Json& value, const Column& column, std::string& out) {
  with_type_of(column.dtype, [&](auto element) {
    using T = decltype(element);
    if (column.dtype == Dtype::kF16) {
      element = half_of<T>(value, column, to_f16, from_f16);
    } else if (column.dtype == Dtype::kBf16) {
      element = half_of<T>(value, column, to_bf16, from_bf16);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_boolean()) throw unfit(column, value);
      element = value.get<bool>();
    } else if constexpr (std::is_same_v<T, float>) {
      element = f32_of(value, column);
    } else if constexpr (std::is_same_v<T, double>) {
      element = double_of(value, column);
    } else {
      element = integer_of<T>(value, column);
    }
    out.append(reinterpret_cast<const char*>(&element), sizeof element);
  });
}

void append_array(const Json& value, const Column& column, std::size_t dimension,
                  std::string& out) {
  if (dimension == column.shape.size()) return append_element(value, column, out);
  const std::int64_t wanted = column.shape[dimension];
  if (!value.is_array() || (wanted != kAny && static_cast<std::int64_t>(value.size()) != wanted))
    throw unfit(column, value);
  for (const Json& one : value) append_array(one, column, dimension + 1, out);
}

void append_bytes(const Json& value, const Column& column, std::string& out) {
  if (value.is_string()) {
    out += value.get_ref<const std::string&>();
  } else if (column.dtype == Dtype::kUtf8 && (value.is_object() || value.is_array())) {
    out += value.dump();
  } else if (value.is_object() && value.size() == 1 && value.contains("base64") &&
             value["base64"].is_string()) {
    const auto bytes = from_base64(value["base64"].get_ref<const std::string&>());
    if (!bytes) throw unfit(column, value);
    out += *bytes;
  } else {
    throw unfit(column, value);
  }
}

constexpr std::int64_t kExactInF64 = std::int64_t{1} << 53;

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    const std::size_t have = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (j < have ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) out += j <= have ? kBase64[bits >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

void append_json(const Sample& sample, std::string& line) {
  Json object = Json::object();
  if (!sample.key.empty())
    object["__key__"] =
        is_utf8(sample.key) ? Json(sample.key) : Json{{"base64", to_base64(sample.key)}};
  for (const Field& field : sample.fields) object[to_utf8(field.name)] = field_json(field);
  line += object.dump();
}

// --- typing ---------------------------------------------------------------------------------

std::string_view JsonTyping::name_of(Kind kind) {
  constexpr std::string_view kNames[] = {
      "true or false",     "a number",        "text",
      "a list of numbers", "rows of numbers", "an object or a list"};
  return kNames[static_cast<std::size_t>(kind)];
}

void JsonTyping::look_at_number(const Json& value, Seen& seen) {
  if (value.is_number_float()) {
    seen.floats = true;
  } else if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    seen.beyond_i64 |=
        number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    seen.beyond_f64 |= number > static_cast<std::uint64_t>(kExactInF64);
  } else {
    const auto number = value.get<std::int64_t>();
    seen.negative |= number < 0;
    seen.beyond_f64 |= number < -kExactInF64 || number > kExactInF64;
  }
}

JsonTyping::Seen JsonTyping::look_at(const Json& value, const std::string& name,
                                     const std::string& place) {
  Seen seen{.place = place};
  const auto all_numbers = [](const Json& list) {
    return std::ranges::all_of(list, [](const Json& one) { return one.is_number(); });
  };
  if (value.is_null()) {
    throw Error(Code::kInvalid,
                "{}: {} is null, which no column holds; --fill '{}=VALUE' says what stands for it, "
                "or pack the lines as they are (--format webdataset)",
                place, to_utf8(name), to_utf8(name));
  }
  if (value.is_boolean()) {
    seen.kind = Kind::kBool;
  } else if (value.is_number()) {
    seen.kind = Kind::kNumber;
    look_at_number(value, seen);
  } else if (value.is_string()) {
    seen.kind = Kind::kText;
  } else if (value.is_array() && all_numbers(value)) {
    seen.kind = Kind::kList;
    seen.shortest = seen.longest = static_cast<std::int64_t>(value.size());
    for (const Json& one : value) look_at_number(one, seen);
  } else if (value.is_array() && std::ranges::all_of(value, [&](const Json& row) {
               return row.is_array() && row.size() == value.front().size() && all_numbers(row);
             })) {
    seen.kind = Kind::kTable;
    seen.shortest = seen.longest = static_cast<std::int64_t>(value.size());
    seen.inner = static_cast<std::int64_t>(value.front().size());
    for (const Json& row : value) {
      for (const Json& one : row) look_at_number(one, seen);
    }
  }
  return seen;
}

void JsonTyping::join(Seen& into, const Seen& later, const std::string& name) {
  const auto is_list = [](const Seen& seen) { return seen.kind >= Kind::kList; };
  // An empty list may be one of anything.
  const auto is_empty = [](const Seen& seen) {
    return seen.kind == Kind::kList && seen.longest == 0;
  };
  Kind kind = into.kind;
  if (into.kind != later.kind) {
    if (!is_list(into) || !is_list(later)) {
      throw Error(Code::kInvalid,
                  "{}: {} is {}, in {} it is {}: a column has one type; mend the lines, or pack "
                  "them as they are (--format webdataset)",
                  later.place, to_utf8(name), name_of(later.kind), into.place, name_of(into.kind));
    }
    kind = is_empty(into) ? later.kind : is_empty(later) ? into.kind : Kind::kJson;
  }
  if (kind == Kind::kTable) {
    const std::int64_t inner = into.kind == Kind::kTable ? into.inner : later.inner;
    if (later.kind == Kind::kTable && later.inner != inner) kind = Kind::kJson;
    into.inner = inner;
  }
  into.kind = kind;
  into.floats |= later.floats;
  into.negative |= later.negative;
  into.beyond_i64 |= later.beyond_i64;
  into.beyond_f64 |= later.beyond_f64;
  into.shortest = std::min(into.shortest, later.shortest);
  into.longest = std::max(into.longest, later.longest);
}

void JsonTyping::add(const Json& object, const std::string& place) {
  if (!object.is_object())
    throw Error(Code::kInvalid, "{} is no object of names and values", place);
  JsonTyping one;
  one.first_place_ = place;
  for (const auto& [name, value] : object.items()) {
    one.names_.push_back(name);
    one.seen_.emplace(name, look_at(value, name, place));
  }
  merge(one);
}

void JsonTyping::merge(const JsonTyping& later) {
  if (later.first_place_.empty()) return;
  if (first_place_.empty()) {
    *this = later;
    return;
  }
  const auto missing = [](const std::string& name, const std::string& where,
                          const std::string& there) {
    return Error(Code::kInvalid,
                 "{} has no {}, which {} has: all samples of packed shards have the same columns; "
                 "--fill '{}=VALUE' says what stands for it, or pack the lines as they are "
                 "(--format webdataset)",
                 where, to_utf8(name), there, to_utf8(name));
  };
  for (const std::string& name : names_) {
    if (!later.seen_.contains(name)) throw missing(name, later.first_place_, first_place_);
  }
  for (const std::string& name : later.names_) {
    if (!seen_.contains(name)) throw missing(name, first_place_, later.first_place_);
    join(seen_.find(name)->second, later.seen_.find(name)->second, name);
  }
}

Schema JsonTyping::schema() const {
  std::vector<Column> columns;
  for (const std::string& name : names_) {
    const Seen& seen = seen_.find(name)->second;
    Column column{.name = name, .dtype = Dtype::kUtf8};
    if (seen.kind == Kind::kBool) column.dtype = Dtype::kBool;
    const bool numbers =
        seen.kind == Kind::kNumber || seen.kind == Kind::kList || seen.kind == Kind::kTable;
    if (numbers) {
      const bool no_common = (seen.floats && seen.beyond_f64) || (seen.negative && seen.beyond_i64);
      if (no_common) {
        throw Error(Code::kInvalid,
                    "{} has integers that are too large for the type that all of its numbers need; "
                    "name a type with --schema",
                    to_utf8(name));
      }
      column.dtype = seen.floats ? Dtype::kF64 : seen.beyond_i64 ? Dtype::kU64 : Dtype::kI64;
    }
    if (seen.kind == Kind::kList || seen.kind == Kind::kTable)
      column.shape.push_back(seen.shortest == seen.longest ? seen.longest : kAny);
    if (seen.kind == Kind::kTable) column.shape.push_back(seen.inner);
    columns.push_back(std::move(column));
  }
  return Schema(std::move(columns));
}

void encode_object(const Json& object, const Schema& schema, std::vector<std::string>& columns) {
  if (!object.is_object()) throw Error(Code::kInvalid, "it is no object of names and values");
  columns.resize(schema.columns().size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Column& column = schema.columns()[i];
    columns[i].clear();
    const auto value = object.find(column.name);
    if (value == object.end()) throw Error(Code::kInvalid, "it has no {}", column.name);
    if (column.dtype == Dtype::kBytes || column.dtype == Dtype::kUtf8) {
      append_bytes(*value, column, columns[i]);
    } else {
      append_array(*value, column, 0, columns[i]);
    }
  }
  if (object.size() == columns.size()) return;
  for (const auto& [name, value] : object.items()) {
    if (std::ranges::find(schema.columns(), name, &Column::name) == schema.columns().end())
      throw Error(Code::kInvalid, "it has a {}, for which there is no column", to_utf8(name));
  }
}

}  // namespace bedplate::data
