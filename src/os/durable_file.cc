#include "os/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/text.h"
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

// Opening these names again would make a second offset into the file behind them, and renaming over
// them would replace the name itself.
std::optional<int> descriptor_named_by(const std::filesystem::path& path) {
  const std::string name = path.lexically_normal().string();
  if (name == "/dev/stdout") return STDOUT_FILENO;
  if (name == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!name.starts_with(folder)) continue;
    const auto number = to_int(std::string_view(name).substr(folder.size()));
    if (number && *number >= 0 && *number <= 1 << 20) return static_cast<int>(*number);
  }
  return std::nullopt;
}

using Produce = std::function<void(const WritePiece&)>;

void write_pieces(int fd, const Produce& produce, const std::string& what) {
  produce([&](std::string_view piece) { write_all(fd, piece, what); });
}

void replace_durably(const std::filesystem::path& path, const Produce& produce) {
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  static std::atomic<int> writes{0};
  const std::string temporary =
      (folder / fmt::format(".{}.{}.{}", path.filename().string(), ::getpid(), ++writes)).string();
  const std::string what = fmt::format("cannot write {}", path.string());
  UniqueFd fd(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd) throw errno_error(errno, what);
  try {
    write_pieces(fd.get(), produce, what);
    if (::fsync(fd.get()) != 0) throw errno_error(errno, what);
    if (::close(fd.release()) != 0) throw errno_error(errno, what);
    if (::rename(temporary.c_str(), path.c_str()) != 0) throw errno_error(errno, what);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  const UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0) {
    // EINVAL: some file systems have no fsync for folders; their renames are as durable as they
    // get.
    if (errno != EINVAL)
      throw errno_error(errno, fmt::format("cannot flush folder {}", folder.string()));
  }
}

}  // namespace

void write_durably(const std::filesystem::path& path, std::string_view bytes) {
  replace_durably(path, [&](const WritePiece& write) { write(bytes); });
}

void write_output(const std::filesystem::path& path, std::string_view bytes) {
  write_output(path, [&](const WritePiece& write) { write(bytes); });
}

void write_output(const std::filesystem::path& path, const Produce& produce) {
  const std::string what = fmt::format("cannot write {}", path.string());
  if (const auto fd = descriptor_named_by(path)) {
    write_pieces(*fd, produce, what);
    return;
  }
  std::error_code error;
  const auto target = std::filesystem::canonical(path, error);  // fails for what does not exist
  const auto status =
      error ? std::filesystem::symlink_status(path, error) : std::filesystem::status(target, error);
  if (!std::filesystem::exists(status)) {
    replace_durably(path, produce);
    return;
  }
  if (std::filesystem::is_regular_file(status)) {
    replace_durably(target, produce);
    return;
  }
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) throw errno_error(errno, what);
  write_pieces(fd.get(), produce, what);
}

}  // namespace bedplate::os
