// Columns and fields as Python's objects: views where they can be, copies where they must.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "native.h"

namespace bedplate::python {
namespace {

using data::BatchColumn;
using data::Dtype;

// NumPy has no bfloat16: it gets the bits as uint16.
nb::dlpack::dtype dlpack_of(Dtype dtype, Arrays arrays) {
  using Code = nb::dlpack::dtype_code;
  const auto of = [](Code code, int bits) {
    return nb::dlpack::dtype{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits), 1};
  };
  switch (dtype) {
    case Dtype::kI8:
      return of(Code::Int, 8);
    case Dtype::kI16:
      return of(Code::Int, 16);
    case Dtype::kI32:
      return of(Code::Int, 32);
    case Dtype::kI64:
      return of(Code::Int, 64);
    case Dtype::kU16:
      return of(Code::UInt, 16);
    case Dtype::kU32:
      return of(Code::UInt, 32);
    case Dtype::kU64:
      return of(Code::UInt, 64);
    case Dtype::kF16:
      return of(Code::Float, 16);
    case Dtype::kBf16:
      return arrays == Arrays::kTorch ? of(Code::Bfloat, 16) : of(Code::UInt, 16);
    case Dtype::kF32:
      return of(Code::Float, 32);
    case Dtype::kF64:
      return of(Code::Float, 64);
    case Dtype::kBool:
      return of(Code::Bool, 8);
    case Dtype::kU8:
    case Dtype::kBytes:
    case Dtype::kUtf8:
      break;
  }
  return of(Code::UInt, 8);
}

nb::object array_of(void* at, const std::vector<std::int64_t>& shape, Dtype dtype, nb::handle owner,
                    Arrays arrays) {
  const std::vector<std::size_t> dimensions(shape.begin(), shape.end());
  const nb::dlpack::dtype type = dlpack_of(dtype, arrays);
  if (arrays == Arrays::kTorch) {
    return nb::cast(
        nb::ndarray<nb::pytorch>(at, dimensions.size(), dimensions.data(), owner, nullptr, type));
  }
  return nb::cast(
      nb::ndarray<nb::numpy>(at, dimensions.size(), dimensions.data(), owner, nullptr, type));
}

nb::object bytes_or_text(Dtype dtype, std::span<const std::byte> bytes) {
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  if (dtype != Dtype::kUtf8) return nb::bytes(begin, bytes.size());
  return text_of({begin, bytes.size()});
}

bool is_text_or_bytes(Dtype dtype) { return dtype == Dtype::kBytes || dtype == Dtype::kUtf8; }

// An array with a copy of the bytes.
nb::object copied(std::span<const std::byte> bytes, const std::vector<std::int64_t>& shape,
                  Dtype dtype, Arrays arrays) {
  auto owned = std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end());
  std::byte* const at = owned->data();
  const nb::capsule owner(owned.release(), [](void* held) noexcept {
    delete static_cast<std::vector<std::byte>*>(held);
  });
  return array_of(at, shape, dtype, owner, arrays);
}

// Rows of different length, as a list.
nb::object rows_of(const BatchColumn& column, std::int64_t count, Arrays arrays) {
  nb::list out;
  std::size_t unit = data::size_of(column.dtype);
  for (std::size_t i = 1; i < column.shape.size(); ++i)
    unit *= static_cast<std::size_t>(column.shape[i]);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::span<const std::byte> row = column.row(i);
    if (is_text_or_bytes(column.dtype)) {
      out.append(bytes_or_text(column.dtype, row));
    } else {
      std::vector<std::int64_t> shape = column.shape;
      shape.front() = unit > 0 ? static_cast<std::int64_t>(row.size() / unit) : 0;
      out.append(copied(row, shape, column.dtype, arrays));
    }
  }
  return out;
}

}  // namespace

nb::object text_of(std::string_view bytes) {
  return nb::steal(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "surrogateescape"));
}

nb::object to_python(const data::Field& field) {
  if (is_text_or_bytes(field.dtype)) return bytes_or_text(field.dtype, field.bytes);
  return copied(field.bytes, field.shape, field.dtype, Arrays::kNumpy);
}

nb::dict to_python(const data::Sample& sample) {
  nb::dict out;
  if (!sample.key.empty()) out["__key__"] = to_utf8(sample.key);
  for (const data::Field& field : sample.fields)
    out[nb::cast(to_utf8(field.name))] = to_python(field);
  return out;
}

nb::dict to_python(std::shared_ptr<const data::Batch> batch, Arrays arrays) {
  auto held = std::make_unique<std::shared_ptr<const data::Batch>>(batch);
  const nb::capsule owner(held.release(), [](void* one) noexcept {
    delete static_cast<std::shared_ptr<const data::Batch>*>(one);
  });
  nb::dict out;
  if (!batch->sources.empty()) {
    out["__source__"] =
        copied(std::as_bytes(std::span(batch->sources)), {batch->count}, Dtype::kI64, arrays);
  }
  for (const BatchColumn& column : batch->columns) {
    const nb::str name = nb::cast<nb::str>(nb::cast(to_utf8(column.name)));
    if (column.variable()) {
      out[name] = rows_of(column, batch->count, arrays);
    } else {
      std::vector<std::int64_t> shape = {batch->count};
      shape.insert(shape.end(), column.shape.begin(), column.shape.end());
      out[name] = array_of(column.data.data(), shape, column.dtype, owner, arrays);
    }
  }
  return out;
}

}  // namespace bedplate::python
