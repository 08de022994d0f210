// Handing a command over to the Python package, for what the C++ core does not do.
//
//   become_python({.module = "bedplate.data.parquet", .what = "Parquet"}, arguments);
//
// The process becomes `python3 -m MODULE ARGUMENTS…`: its output, signals and exit code are the
// module's. The interpreter is $BEDPLATE_PYTHON, or the python3 beside this program (as in a
// virtual environment), or that of PATH. One that has no such module says so and exits with 3.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace bedplate::cli {

struct PythonModule {
  std::string_view name;  // with a function main(arguments) → exit code
  std::string_view what;  // it is needed for, for messages: "Parquet"
};

// Error{kNotFound | kPermission} when there is no Python.
[[noreturn]] void become_python(const PythonModule& module, std::span<const std::string> arguments);

}  // namespace bedplate::cli
