#include "os/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"

namespace bedplate::os {
namespace {

constexpr std::string_view kLockName = ".bedplate-tmp-lock";
constexpr Nanos kPause = 10 * kMillisecond;

bool is_refused(int error) { return error == EACCES || error == EPERM || error == EROFS; }

// "process 4711 on node-3": what the holder's file says of it.
std::string holder_text() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

}  // namespace

std::unique_ptr<FolderLock> FolderLock::take(const std::filesystem::path& folder,
                                             Deadline deadline) {
  std::unique_ptr<FolderLock> lock(new FolderLock(folder));
  for (;;) {
    switch (lock->attempt()) {
      case Attempt::kTaken:
        return lock;
      case Attempt::kNoLocks:
        return nullptr;
      case Attempt::kBusy:
        break;
    }
    // Even a killed process holds it until it has come to its end; remove_abandoned(), for a
    // moment.
    if (deadline.passed()) throw lock->busy();
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(kPause, deadline.left())));
  }
}

FolderLock::~FolderLock() {
  if (fd_ && pid_ != ::getpid()) return;
  if (fd_) ::unlink(file_.c_str());  // before it is let go: what lies there then is another's
  fd_.reset();
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) ::rmdir(folder->c_str());
}

FolderLock::Attempt FolderLock::attempt() {
  file_ = folder_ / kLockName;
  UniqueFd fd(::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd && errno == ENOENT) {
    if (!make_folders()) return Attempt::kNoLocks;
    fd = UniqueFd(::open(file_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
    // Whoever made the folder, too, has removed it, as it was empty.
    if (!fd && errno == ENOENT) return Attempt::kBusy;
  }
  // The file of another user: reading it is enough for a lock.
  if (!fd && is_refused(errno))
    fd = UniqueFd(::open(file_.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd && (is_refused(errno) || errno == ENOENT)) return Attempt::kNoLocks;
  if (!fd) throw errno_error(errno, "cannot lock folder " + to_utf8(folder_.native()));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Attempt::kBusy;
    ::unlink(file_.c_str());
    return Attempt::kNoLocks;
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || status.st_nlink == 0) return Attempt::kBusy;
  fd_ = std::move(fd);
  pid_ = ::getpid();
  // For messages of others only: a full disk does not matter.
  const std::string text = holder_text();
  if (::ftruncate(fd_.get(), 0) != 0 ||
      ::pwrite(fd_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    [[maybe_unused]] const int emptied = ::ftruncate(fd_.get(), 0);
  }
  return Attempt::kTaken;
}

bool FolderLock::make_folders() {
  std::vector<std::filesystem::path> missing;
  std::error_code error;
  std::filesystem::path at = folder_;
  if (!at.has_filename()) at = at.parent_path();  // "a/b/" is a/b
  for (; !at.empty() && !std::filesystem::exists(at, error); at = at.parent_path())
    missing.push_back(at);
  for (auto folder = missing.rbegin(); folder != missing.rend(); ++folder) {
    if (::mkdir(folder->c_str(), 0777) == 0) {
      made_.push_back(*folder);
    } else if (is_refused(errno)) {
      return false;
    } else if (errno == ENOENT && !std::filesystem::exists(folder->parent_path(), error)) {
      return true;  // removed again by others
    } else if (errno != EEXIST) {
      throw errno_error(errno, "cannot make folder " + to_utf8(folder->native()));
    }
  }
  return true;
}

Error FolderLock::busy() const {
  std::array<char, 512> text{};
  const UniqueFd fd(::open(file_.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  const ssize_t bytes = fd ? ::pread(fd.get(), text.data(), text.size(), 0) : 0;
  const std::string_view holder(text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  return {Code::kExists, "{} is being written to by {}: wait for its end, or end it",
          to_utf8(folder_.native()), holder.empty() ? "another process" : to_utf8(holder)};
}

}  // namespace bedplate::os
