#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"

namespace bedplate::cli {
namespace {

// errno of the first failure, 0 when all was written.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

}  // namespace

void print(std::string_view text) {
  if (const int error = write_all(STDOUT_FILENO, text)) {
    throw errno_error(error, "cannot write to standard output");
  }
}

void say(std::string_view text) { tell(fmt::format("bedplate: {}\n", text)); }

void tell(std::string_view text) { write_all(STDERR_FILENO, text); }

}  // namespace bedplate::cli
