#include "data/collate.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "data/decode/npy.h"

namespace bedplate::data {
namespace {

constexpr std::size_t kColumnAlign = 64;

std::size_t rounded(std::size_t bytes) {
  return (bytes + kColumnAlign - 1) / kColumnAlign * kColumnAlign;
}

constexpr std::size_t kMostBytes = std::size_t{1} << 46;  // of a batch

// Error{kInvalid} when nobody has so much memory.
std::size_t times(std::size_t bytes, std::int64_t n) {
  if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(n), &bytes) || bytes > kMostBytes)
    throw Error(Code::kInvalid, "a batch would take more than 2^46 bytes");
  return bytes;
}

std::size_t bytes_of_row(Dtype dtype, const std::vector<std::int64_t>& shape) {
  std::size_t bytes = size_of(dtype);
  for (const std::int64_t n : shape) bytes = times(bytes, n);
  return bytes;
}

bool is_variable_type(Dtype dtype) { return dtype == Dtype::kBytes || dtype == Dtype::kUtf8; }

std::vector<std::int64_t> shape_of(const ImageSpec& image) {
  output_bytes(image);  // refuses what cannot be
  if (image.layout == ImageLayout::kChw) return {image.channels, image.height, image.width};
  return {image.height, image.width, image.channels};
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

const Field* find(const Sample& sample, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto at = std::ranges::find(sample.fields, name, &Field::name);
    if (at != sample.fields.end()) return &*at;
  }
  return nullptr;
}

const Field& need(const Sample& sample, const std::vector<std::string>& names, Code code) {
  if (const Field* field = find(sample, names)) return *field;
  std::vector<std::string> has;
  for (const Field& field : sample.fields) has.push_back(to_utf8(field.name));
  throw Error(code, "there is no field {}; the sample has {}", fmt::join(names, " or "),
              has.empty() ? "none" : fmt::format("{}", fmt::join(has, ", ")));
}

// --- numbers --------------------------------------------------------------------------------

// Calls `with(T())` for the C++ type of a dtype that has one.
template <typename With>
void with_type(Dtype dtype, std::string_view name, const With& with) {
  switch (dtype) {
    case Dtype::kI8:
      return with(std::int8_t());
    case Dtype::kU8:
      return with(std::uint8_t());
    case Dtype::kI16:
      return with(std::int16_t());
    case Dtype::kU16:
      return with(std::uint16_t());
    case Dtype::kI32:
      return with(std::int32_t());
    case Dtype::kU32:
      return with(std::uint32_t());
    case Dtype::kI64:
      return with(std::int64_t());
    case Dtype::kU64:
      return with(std::uint64_t());
    case Dtype::kF32:
      return with(float());
    case Dtype::kF64:
      return with(double());
    case Dtype::kBool:
      return with(std::uint8_t());
    default:
      throw Error(Code::kInvalid, "field {}: no conversion from or to {}", name,
                  bedplate::data::name(dtype));
  }
}

template <typename To, typename From>
bool fits(From value) {
  if constexpr (std::is_floating_point_v<To>) {  // rounded, but never made infinite
    const auto wide = static_cast<double>(value);
    return !std::isfinite(wide) || std::isfinite(static_cast<To>(wide));
  } else if constexpr (std::is_floating_point_v<From>) {
    return std::nearbyint(value) == value &&
           static_cast<double>(value) >= static_cast<double>(std::numeric_limits<To>::min()) &&
           static_cast<double>(value) < std::ldexp(1.0, std::numeric_limits<To>::digits);
  } else {
    return std::in_range<To>(value);
  }
}

template <typename To>
To parsed(std::string_view text, std::string_view name) {
  const std::string_view number = trim(text);
  To value{};
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size()) {
    throw Error(Code::kCorrupt, "field {}: \"{}\" is no {}", name, to_utf8(number.substr(0, 40)),
                error == std::errc::result_out_of_range ? "number of this type's range" : "number");
  }
  return value;
}

void put_number(const Field& field, Dtype dtype, std::byte* into) {
  with_type(dtype, field.name, [&]<typename To>(To) {
    To out{};
    if (is_variable_type(field.dtype)) {
      out = parsed<To>({reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size()},
                       field.name);
    } else {
      if (field.bytes.size() != size_of(field.dtype))
        throw Error(Code::kInvalid, "field {} has the shape {}, it is not one number", field.name,
                    shape_text(field.shape));
      with_type(field.dtype, field.name, [&]<typename From>(From) {
        From value{};
        std::memcpy(&value, field.bytes.data(), sizeof value);
        if (!fits<To>(value))
          throw Error(Code::kCorrupt, "field {}: {} does not fit {}", field.name, value,
                      name(dtype));
        out = static_cast<To>(value);
      });
    }
    std::memcpy(into, &out, sizeof out);
  });
}

void put_cast(const Field& field, Dtype dtype, std::span<std::byte> into) {
  with_type(dtype, field.name, [&]<typename To>(To) {
    with_type(field.dtype, field.name, [&]<typename From>(From) {
      for (std::size_t i = 0; i < into.size() / sizeof(To); ++i) {
        From value{};
        std::memcpy(&value, field.bytes.data() + i * sizeof value, sizeof value);
        if (!fits<To>(value))
          throw Error(Code::kCorrupt, "field {}: {} does not fit {}", field.name, value,
                      name(dtype));
        const auto out = static_cast<To>(value);
        std::memcpy(into.data() + i * sizeof out, &out, sizeof out);
      }
    });
  });
}

// A thread's own, for each way of decoding.
ImageDecoder& decoder_of(const ImageDecoderOptions& options) {
  thread_local std::vector<std::pair<ImageDecoderOptions, ImageDecoder>> decoders;
  for (auto& [of, decoder] : decoders) {
    if (of == options) return decoder;
  }
  return decoders.emplace_back(options, ImageDecoder(options)).second;
}

// The bytes of one filler element.
std::string filler(Dtype dtype, double fill, std::string_view name) {
  std::string bytes(size_of(dtype), '\0');
  if (fill == 0) return bytes;
  with_type(dtype, name, [&]<typename T>(T) {
    if (!fits<T>(fill))
      throw Error(Code::kInvalid, "field {}: no {} is {}", name, bedplate::data::name(dtype), fill);
    const auto value = static_cast<T>(fill);
    std::memcpy(bytes.data(), &value, sizeof value);
  });
  return bytes;
}

}  // namespace

struct Collator::Column {
  FieldSpec spec;
  std::vector<std::string> names;  // of fields
  std::string name;                // of the column
  Dtype dtype = Dtype::kBytes;
  std::vector<std::int64_t> shape = {};
  std::size_t row_bytes = 0;  // 0: rows differ in length
  bool variable = false;
  bool of_key = false;  // the sample's name
  std::string fill = {};

  Column(FieldSpec given, const Sample& example);
  void put(const Sample& sample, std::span<std::byte> into, std::uint64_t seed) const;
  void append(const Sample& sample, BatchColumn& column) const;

 private:
  void take_shape(const Field& field);
  [[noreturn]] void refuse(const Field& field) const;
};

Collator::Column::Column(FieldSpec given, const Sample& example) : spec(std::move(given)) {
  for (const std::string_view one : split(spec.name, '|')) names.emplace_back(one);
  name = spec.as.empty() ? names.front() : spec.as;
  of_key = names.front() == "__key__" && find(example, names) == nullptr && !example.key.empty();
  if (of_key && spec.kind != FieldKind::kAsIs)
    throw Error(Code::kInvalid, "field __key__ is text; it can only be taken as it is");
  const Field key{.name = "__key__", .dtype = Dtype::kUtf8};
  take_shape(of_key ? key : need(example, names, Code::kInvalid));
  if (!variable) row_bytes = bytes_of_row(dtype, shape);
}

void Collator::Column::take_shape(const Field& field) {
  dtype = field.dtype;
  shape = field.shape;
  const bool numbers = !is_variable_type(field.dtype);
  switch (spec.kind) {
    case FieldKind::kAsIs:
      variable = !numbers;
      break;
    case FieldKind::kNumber:
      dtype = spec.dtype;
      shape = {};
      with_type(dtype, name, [](auto) {});
      break;
    case FieldKind::kCast:
      if (!numbers)
        throw Error(Code::kInvalid, "field {} is {}, no numbers", name,
                    bedplate::data::name(field.dtype));
      dtype = spec.dtype;
      for (const Dtype one : {dtype, field.dtype}) with_type(one, name, [](auto) {});
      break;
    case FieldKind::kPadded:
    case FieldKind::kRagged:
      if (!numbers || shape.empty())
        throw Error(Code::kInvalid, "field {} is {}, no row of numbers", name,
                    bedplate::data::name(field.dtype));
      variable = spec.kind == FieldKind::kRagged;
      shape.front() = variable ? kAny : spec.length;
      if (!variable && spec.length < 0)
        throw Error(Code::kInvalid, "field {} cannot be padded to {} elements", name, spec.length);
      if (!variable) fill = filler(dtype, spec.fill, name);
      break;
    case FieldKind::kImage:
      dtype = Dtype::kU8;
      shape = shape_of(spec.image);
      break;
    case FieldKind::kNpy: {
      const NpyArray array = parse_npy(field.bytes);
      dtype = array.dtype;
      shape = array.shape;
      break;
    }
  }
  if (variable && is_variable_type(dtype)) shape = {kAny};
}

void Collator::Column::refuse(const Field& field) const {
  throw Error(Code::kInvalid,
              "field {} is {} {} here, {} {} in the first sample: samples of different length need "
              "pad() or ragged()",
              field.name, bedplate::data::name(field.dtype), shape_text(field.shape),
              bedplate::data::name(dtype), shape_text(shape));
}

void Collator::Column::put(const Sample& sample, std::span<std::byte> into,
                           std::uint64_t seed) const {
  const Field& field = need(sample, names, Code::kCorrupt);
  switch (spec.kind) {
    case FieldKind::kNumber:
      return put_number(field, dtype, into.data());
    case FieldKind::kImage:
      return decoder_of(spec.decoder).decode(field.bytes, spec.image, seed, into);
    case FieldKind::kCast:
      if (field.shape != shape || is_variable_type(field.dtype)) refuse(field);
      return put_cast(field, dtype, into);
    case FieldKind::kNpy: {
      const NpyArray array = parse_npy(field.bytes);
      if (array.dtype != dtype || array.shape != shape)
        refuse({field.name, array.dtype, array.shape, {}});
      std::ranges::copy(array.bytes, into.begin());
      return;
    }
    case FieldKind::kPadded: {
      const bool same = field.dtype == dtype && field.shape.size() == shape.size() &&
                        std::equal(shape.begin() + 1, shape.end(), field.shape.begin() + 1);
      if (!same) refuse(field);
      const std::size_t taken = std::min(into.size(), field.bytes.size());
      std::memcpy(into.data(), field.bytes.data(), taken);
      for (std::size_t at = taken; at < into.size(); at += fill.size())
        std::memcpy(into.data() + at, fill.data(), fill.size());
      return;
    }
    case FieldKind::kAsIs:
    case FieldKind::kRagged:
      break;
  }
  if (field.dtype != dtype || field.bytes.size() != into.size() || field.shape != shape)
    refuse(field);
  std::memcpy(into.data(), field.bytes.data(), into.size());
}

void Collator::Column::append(const Sample& sample, BatchColumn& column) const {
  if (of_key) {
    const auto key = std::as_bytes(std::span(sample.key));
    column.owned.insert(column.owned.end(), key.begin(), key.end());
    column.offsets.push_back(std::ssize(column.owned));
    return;
  }
  const Field& field = need(sample, names, Code::kCorrupt);
  const bool same = field.dtype == dtype && field.shape.size() == shape.size() &&
                    std::equal(shape.begin() + 1, shape.end(), field.shape.begin() + 1);
  if (!same) refuse(field);
  column.owned.insert(column.owned.end(), field.bytes.begin(), field.bytes.end());
  column.offsets.push_back(std::ssize(column.owned));
}

Collator::Collator(std::vector<FieldSpec> specs, const Sample& example) {
  if (specs.empty()) {
    for (const Field& field : example.fields) specs.push_back({.name = field.name});
  }
  if (specs.empty()) throw Error(Code::kInvalid, "the first sample has no fields");
  for (FieldSpec& spec : specs) {
    columns_.emplace_back(std::move(spec), example);
    for (std::size_t i = 0; i + 1 < columns_.size(); ++i) {
      if (columns_[i].name == columns_.back().name)
        throw Error(Code::kInvalid, "two fields would both be called {}", columns_[i].name);
    }
  }
}

Collator::~Collator() = default;

std::size_t Collator::slab_bytes(std::int64_t rows) const {
  std::size_t bytes = 0;
  for (const Column& column : columns_) bytes += rounded(times(column.row_bytes, rows));
  return bytes;
}

void Collator::lay_out(std::int64_t rows, std::shared_ptr<Slab> slab, Batch& batch) const {
  batch.slab = std::move(slab);
  batch.count = rows;
  batch.columns.clear();
  std::size_t at = 0;
  for (const Column& column : columns_) {
    BatchColumn& out = batch.columns.emplace_back();
    out.name = column.name;
    out.dtype = column.dtype;
    out.shape = column.shape;
    if (column.variable) {
      out.offsets.reserve(static_cast<std::size_t>(rows) + 1);
      out.offsets.push_back(0);
      continue;
    }
    const std::size_t bytes = column.row_bytes * static_cast<std::size_t>(rows);
    out.data = batch.slab->bytes().subspan(at, bytes);
    at += rounded(bytes);
  }
}

void Collator::put(const Sample& sample, std::int64_t row, std::uint64_t seed, Batch& batch) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    BatchColumn& out = batch.columns[i];
    if (column.variable) {
      // A row that failed half-way is begun anew.
      out.offsets.resize(static_cast<std::size_t>(row) + 1);
      out.owned.resize(static_cast<std::size_t>(out.offsets.back()));
      column.append(sample, out);
    } else {
      column.put(
          sample,
          out.data.subspan(static_cast<std::size_t>(row) * column.row_bytes, column.row_bytes),
          seed);
    }
  }
}

void Collator::repeat(std::int64_t from, std::int64_t to, Batch& batch) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    BatchColumn& out = batch.columns[i];
    if (columns_[i].variable) {
      out.offsets.resize(static_cast<std::size_t>(to) + 1);
      const auto begin = static_cast<std::size_t>(out.offsets[static_cast<std::size_t>(from)]);
      const auto end = static_cast<std::size_t>(out.offsets[static_cast<std::size_t>(from) + 1]);
      out.owned.resize(static_cast<std::size_t>(out.offsets.back()));
      const std::vector<std::byte> row(out.owned.begin() + static_cast<std::ptrdiff_t>(begin),
                                       out.owned.begin() + static_cast<std::ptrdiff_t>(end));
      out.owned.insert(out.owned.end(), row.begin(), row.end());
      out.offsets.push_back(std::ssize(out.owned));
    } else {
      const std::size_t bytes = columns_[i].row_bytes;
      std::memcpy(out.data.data() + static_cast<std::size_t>(to) * bytes,
                  out.data.data() + static_cast<std::size_t>(from) * bytes, bytes);
    }
  }
}

void Collator::finish(Batch& batch) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (columns_[i].variable) batch.columns[i].data = batch.columns[i].owned;
  }
}

std::size_t Collator::row_bytes(std::size_t column) const { return columns_[column].row_bytes; }

std::string Collator::names() const {
  std::vector<std::string> names;
  for (const Column& column : columns_) names.push_back(to_utf8(column.name));
  return fmt::format("{}", fmt::join(names, ", "));
}

bool Collator::same_columns(const Collator& other) const {
  return std::ranges::equal(columns_, other.columns_, [](const Column& a, const Column& b) {
    return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.variable == b.variable;
  });
}

bool Collator::whole_record(const ShardIndex& index) const {
  if (columns_.size() != 1 || columns_[0].spec.kind != FieldKind::kAsIs || columns_[0].variable)
    return false;
  const Column& column = columns_[0];
  const auto place = index.fixed_place(column.names.front());
  return place && place->offset == 0 && place->dtype == column.dtype &&
         place->shape == column.shape && index.samples() > 0 &&
         index.extent(0).bytes == place->bytes &&
         static_cast<std::size_t>(place->bytes) == column.row_bytes;
}

}  // namespace bedplate::data
