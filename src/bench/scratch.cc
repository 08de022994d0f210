#include "bench/scratch.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "os/durable_file.h"

namespace bedplate::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = ".bedplate-bench-";
constexpr std::string_view kLock = "owner";
constexpr std::time_t kJustMade = 60;  // seconds in which a folder may lack its lock

std::string shown(const fs::path& path) { return to_utf8(path.native()); }

// The lock's descriptor; empty when it is somebody's, or there is none.
os::UniqueFd lock_of(const fs::path& folder, int flags) {
  os::UniqueFd fd(::open((folder / kLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
  if (fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd.reset();
  return fd;
}

bool is_nobodys(const fs::path& folder) {
  if (lock_of(folder, 0)) return true;
  struct stat status {};
  const bool has_lock = ::lstat((folder / kLock).c_str(), &status) == 0;
  if (has_lock || errno != ENOENT || ::lstat(folder.c_str(), &status) != 0) return false;
  return std::time(nullptr) - status.st_mtime > kJustMade;
}

}  // namespace

void check_room(const fs::path& folder, const Room& room) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0)
    throw errno_error(errno, "cannot measure in " + shown(folder));
  if (!S_ISDIR(status.st_mode))
    throw Error(Code::kInvalid, "{} is no folder; give one on the disk that is to be measured",
                shown(folder));
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw errno_error(errno, "cannot measure in " + shown(folder));
  struct statvfs space {};
  if (::statvfs(folder.c_str(), &space) != 0)
    throw errno_error(errno, "cannot get the free space of " + shown(folder));
  const double free = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
  if (free - static_cast<double>(room.bytes) < static_cast<double>(room.reserve)) {
    throw Error(Code::kNoSpace,
                "{} has {} free: {} of test files would leave less than the reserve of {}; measure "
                "with less, or give a smaller --reserve",
                shown(folder), human_bytes(free), human_bytes(static_cast<double>(room.bytes)),
                human_bytes(static_cast<double>(room.reserve)));
  }
  // Some file systems count no inodes.
  if (space.f_files > 0 && static_cast<double>(room.files) > static_cast<double>(space.f_favail)) {
    throw Error(Code::kNoSpace, "{} has room for {} more files, not for {}; give fewer --files",
                shown(folder), space.f_favail, room.files);
  }
}

std::string memory_file_system(const fs::path& folder) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) return {};
  if (status.f_type == TMPFS_MAGIC) return "tmpfs";
  if (status.f_type == RAMFS_MAGIC) return "ramfs";
  return {};
}

os::UniqueFd nameless_file(const fs::path& folder) {
  os::UniqueFd fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd) return fd;
  if (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT) {
    std::string name = (folder / fmt::format("{}XXXXXX", kPrefix)).string();
    fd.reset(::mkostemp(name.data(), O_CLOEXEC));
    if (fd && ::unlink(name.c_str()) == 0) return fd;
  }
  throw errno_error(errno, "cannot make a test file in " + shown(folder));
}

ScratchFolder::ScratchFolder(const fs::path& above) : leftovers_(remove_leftovers(above)) {
  const fs::path path = above / fmt::format("{}{:016x}", kPrefix, os::random_bits());
  if (::mkdir(path.c_str(), 0700) != 0)
    throw errno_error(errno, "cannot make a test folder in " + shown(above));
  path_ = path;
  lock_ = lock_of(path_, O_CREAT | O_EXCL);
  if (lock_) return;
  const int error = errno;
  ::rmdir(path_.c_str());
  throw errno_error(error, "cannot lock " + shown(path_ / kLock));
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;  // the next run in this place tries again
  fs::remove_all(path_, ignored);
}

int ScratchFolder::remove_leftovers(const fs::path& above) const {
  int removed = 0;
  std::error_code error;
  for (fs::directory_iterator at(above, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code vanished;
    if (!name.starts_with(kPrefix) || !fs::is_directory(at->symlink_status(vanished))) continue;
    if (!is_nobodys(at->path())) continue;
    fs::remove_all(at->path(), vanished);
    removed += vanished ? 0 : 1;
  }
  return removed;
}

}  // namespace bedplate::bench
