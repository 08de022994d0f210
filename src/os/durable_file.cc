#include "os/durable_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

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
  DurableFile file(path);
  produce([&](std::string_view piece) { file.write(piece); });
  file.commit();
}

constexpr std::string_view kTemporary = ".bedplate-tmp-";

// Of this process and machine only: folders are shared by several machines.
std::string temporary_name() { return fmt::format("{}{:016x}", kTemporary, random_bits()); }

void sync_folder(const std::filesystem::path& folder) {
  const UniqueFd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory && ::fsync(directory.get()) == 0) return;
  // EINVAL: some file systems have no fsync for folders; their renames are as durable as they get.
  if (errno != EINVAL)
    throw errno_error(errno, fmt::format("cannot flush folder {}", folder.string()));
}

// 0 or an errno; EEXIST when `to` is there.
int rename_to_new(const char* from, const char* to) {
  if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  // A file system that has no such rename (NFS): a second name cannot be made over an old one.
  if (::link(from, to) != 0) return errno;
  ::unlink(from);
  return 0;
}

}  // namespace

std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits))
    throw errno_error(errno, "cannot get random bits from the kernel");
  return bits;
}

DurableFile::DurableFile(std::filesystem::path path)
    : path_(std::move(path)),
      folder_(path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".")),
      owner_(::getpid()) {
  make_temporary();
}

// The lock says that its writer lives. Between open() and flock() somebody who removes what is
// abandoned may take it away: then another one is made.
void DurableFile::make_temporary() {
  constexpr int kAttempts = 16;
  for (int i = 0; i < kAttempts; ++i) {
    const std::string name = (folder_ / temporary_name()).string();
    fd_ = UniqueFd(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!fd_) throw errno_error(errno, what());
    temporary_ = name;
    if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) {
      struct stat status {};
      if (::fstat(fd_.get(), &status) == 0 && status.st_nlink > 0) return;
    } else if (errno != EWOULDBLOCK) {
      return;  // a file system without locks
    }
    ::unlink(name.c_str());
    temporary_.clear();
  }
  throw Error(Code::kIo, "{}: its temporary was removed by others {} times", what(), kAttempts);
}

DurableFile::~DurableFile() {
  if (!temporary_.empty() && owner_ == ::getpid()) ::unlink(temporary_.c_str());
}

void DurableFile::check_owner() const {
  if (owner_ == ::getpid()) return;
  throw Error(Code::kInvalid,
              "{}: process {} has begun it, of which this one is a child: only that one can go on",
              what(), owner_);
}

void DurableFile::write(std::string_view bytes) {
  check_owner();
  write_all(fd_.get(), bytes, what());
}

void DurableFile::commit(IfExists if_exists) {
  check_owner();
  if (::fsync(fd_.get()) != 0) throw errno_error(errno, what());
  // With the lock: without it, what is not under its name yet passes for abandoned.
  put_in_place(if_exists);
  temporary_.clear();
  // All was flushed: there is nothing that close() could fail to write.
  fd_.reset();
  sync_folder(folder_);
}

void DurableFile::put_in_place(IfExists if_exists) {
  if (if_exists == IfExists::kReplace) {
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw errno_error(errno, what());
    return;
  }
  if (const int error = rename_to_new(temporary_.c_str(), path_.c_str()))
    throw errno_error(error, what());
}

bool DurableFile::is_temporary(std::string_view file_name) {
  return file_name.starts_with(kTemporary);
}

std::int64_t DurableFile::remove_abandoned(const std::filesystem::path& folder) {
  std::int64_t removed = 0;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    if (!is_temporary(at->path().filename().string())) continue;
    const UniqueFd fd(::open(at->path().c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (::unlink(at->path().c_str()) == 0) ++removed;
  }
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw errno_error(error.value(), fmt::format("cannot look into folder {}", folder.string()));
  return removed;
}

std::string DurableFile::what() const { return fmt::format("cannot write {}", path_.string()); }

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
