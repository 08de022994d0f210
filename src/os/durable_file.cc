#include "os/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "os/unique_fd.h"

namespace bedplate::os {
namespace {

void write_all(int fd, std::string_view bytes, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw errno_error(errno, what);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

void write_durably(const std::filesystem::path& path, std::string_view bytes) {
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  static std::atomic<int> writes{0};
  const std::string temporary =
      (folder / fmt::format(".{}.{}.{}", path.filename().string(), ::getpid(), ++writes)).string();
  const std::string what = fmt::format("cannot write {}", path.string());
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) throw errno_error(errno, what);
  try {
    write_all(fd.get(), bytes, what);
    if (::fsync(fd.get()) != 0) throw errno_error(errno, what);
    if (::close(fd.release()) != 0) throw errno_error(errno, what);
    if (::rename(temporary.c_str(), path.c_str()) != 0) throw errno_error(errno, what);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  const UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0) {
    // EINVAL: some file systems have no fsync for folders; their renames are as durable as they get.
    if (errno != EINVAL) throw errno_error(errno, fmt::format("cannot flush folder {}", folder.string()));
  }
}

void write_output(const std::filesystem::path& path, std::string_view bytes) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) {
    write_durably(path, bytes);
    return;
  }
  const std::string what = fmt::format("cannot write {}", path.string());
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) throw errno_error(errno, what);
  write_all(fd.get(), bytes, what);
}

}  // namespace bedplate::os
