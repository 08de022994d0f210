#include "cli/python_module.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::cli {
namespace {

// The folder of the caller is no place to import from. {0}: the module, {1}: what for.
constexpr std::string_view kStart = R"(
import sys
if sys.path and sys.path[0] == "":
    del sys.path[0]
try:
    from {0} import main
except ImportError as problem:
    sys.stderr.write(
        "bedplate: {1} is read by Bedplate's Python package, which %s does not have (%s): install it there with "
        "pip, or name another interpreter by BEDPLATE_PYTHON\n" % (sys.executable, problem))
    sys.exit(3)
sys.exit(main(sys.argv[1:]))
)";

std::string interpreter() {
  if (const char* given = std::getenv("BEDPLATE_PYTHON"); given && *given) return given;
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string beside = (program.parent_path() / "python3").string();
  return !error && ::access(beside.c_str(), X_OK) == 0 ? beside : "python3";
}

}  // namespace

void become_python(const PythonModule& module, std::span<const std::string> arguments) {
  std::vector<std::string> words = {interpreter(), "-c",
                                    fmt::format(fmt::runtime(kStart), module.name, module.what)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  throw errno_error(errno, fmt::format("{} is read by Python, but {} cannot be started",
                                       module.what, to_utf8(words[0])));
}

}  // namespace bedplate::cli
