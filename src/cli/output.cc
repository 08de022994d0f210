#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::cli {
namespace {

namespace fs = std::filesystem;

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

// Also of what does not exist yet.
fs::path resolved(const fs::path& file) {
  std::error_code error;
  return fs::weakly_canonical(fs::absolute(file, error), error);
}

bool is_recording(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  constexpr std::string_view kMagic("SQLite format 3\0", 16);
  std::string head(kMagic.size(), ' ');
  std::ifstream(file, std::ios::binary)
      .read(head.data(), static_cast<std::streamsize>(head.size()));
  return head == kMagic;
}

}  // namespace

void check_report_files(std::span<const std::string> files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    const fs::path file(files[i]);
    if (file.empty() || file == "-") continue;
    if (is_recording(file)) {
      throw Error(Code::kInvalid, "{} is the recording of a run; give the report another file",
                  to_utf8(file.native()));
    }
    for (std::size_t j = 0; j < i; ++j) {
      std::error_code error;
      const bool a_file = !fs::exists(file, error) || fs::is_regular_file(file, error);
      if (a_file && resolved(file) == resolved(files[j])) {
        throw Error(Code::kInvalid, "two reports cannot be written to one file: {}",
                    to_utf8(file.native()));
      }
    }
  }
}

void print(std::string_view text) {
  if (const int error = write_all(STDOUT_FILENO, text)) {
    throw errno_error(error, "cannot write to standard output");
  }
}

void say(std::string_view text) { tell(fmt::format("bedplate: {}\n", text)); }

void tell(std::string_view text) { write_all(STDERR_FILENO, text); }

}  // namespace bedplate::cli
