// bedplate._native: what bedplate.data stands on. Not for users: names and arguments may change.
#include <nanobind/nanobind.h>

#include <cerrno>

#include "base/error.h"
#include "native.h"

namespace bedplate::python {
namespace {

PyObject* corrupt_error = nullptr;

// Python's own classes where it has one, so that a script needs none of ours to catch them.
PyObject* class_of(Code code) {
  switch (code) {
    case Code::kInvalid:
      return PyExc_ValueError;
    case Code::kNotFound:
      return PyExc_FileNotFoundError;
    case Code::kExists:
      return PyExc_FileExistsError;
    case Code::kPermission:
      return PyExc_PermissionError;
    case Code::kUnsupported:
      return PyExc_NotImplementedError;
    case Code::kNoSpace:
    case Code::kIo:
      return PyExc_OSError;
    case Code::kCorrupt:
      return corrupt_error;
    case Code::kTimeout:
      return PyExc_TimeoutError;
    case Code::kUnavailable:
      return PyExc_ConnectionError;
    case Code::kInternal:
      break;
  }
  return PyExc_RuntimeError;
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    PyErr_SetString(class_of(error.code()), error.what());
  }
}

}  // namespace
}  // namespace bedplate::python

NB_MODULE(_native, module) {
  using namespace bedplate::python;
  nb::set_leak_warnings(false);  // what is left at the interpreter's end is left on purpose
  corrupt_error = PyErr_NewExceptionWithDoc(
      "bedplate.data.CorruptError", "Data is not what it must be: cut off, damaged, or changed.",
      PyExc_ValueError, nullptr);
  module.attr("CorruptError") = nb::handle(corrupt_error);
  nb::register_exception_translator(translate);
  bind_dataset(module);
  bind_import(module);
  bind_loader(module);
  bind_writer(module);
}
