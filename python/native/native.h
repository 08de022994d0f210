// What the files of the extension module share.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <span>
#include <string_view>

#include "data/batch.h"
#include "data/dataset.h"
#include "data/shard_index.h"

namespace bedplate::python {

namespace nb = nanobind;

void bind_dataset(nb::module_& module);
void bind_import(nb::module_& module);
void bind_loader(nb::module_& module);
void bind_writer(nb::module_& module);

// Contiguous bytes of any object with a buffer.
class Bytes {
 public:
  explicit Bytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() { PyBuffer_Release(&view_); }

  std::span<const std::byte> get() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

// What Python gets arrays as.
enum class Arrays { kNumpy, kTorch };

// str of bytes that should be UTF-8; what is not comes back as it was by os.fsencode().
nb::object text_of(std::string_view bytes);
// A field of its own: bytes, str, or a NumPy array that holds a copy.
nb::object to_python(const data::Field& field);
// {name: value} of a sample; `key` as "__key__" when it has one.
nb::dict to_python(const data::Sample& sample);
// {name: column} of a batch. Columns of equal rows are views that keep the batch; the others are
// lists of bytes, str or arrays.
nb::dict to_python(std::shared_ptr<const data::Batch> batch, Arrays arrays);

}  // namespace bedplate::python
