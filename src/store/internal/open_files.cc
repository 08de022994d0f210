#include "store/internal/open_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/error.h"
#include "base/units.h"

namespace bedplate::store {

namespace {

FileIdentity identity_of(const struct stat& status) {
  return {status.st_ino, status.st_size, status.st_mtim.tv_sec * kSecond + status.st_mtim.tv_nsec};
}

}  // namespace

std::string version_of(const struct stat& status) {
  const FileIdentity identity = identity_of(status);
  return fmt::format("{:x}-{:x}-{:x}", identity.inode, identity.size, identity.changed);
}

std::shared_ptr<const OpenFile> OpenFiles::Table::find(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto at = by_path_.find(path);
  if (at == by_path_.end()) return nullptr;
  order_.splice(order_.begin(), order_, at->second);
  return at->second->second;
}

void OpenFiles::Table::keep(const std::string& path, std::shared_ptr<const OpenFile> file,
                            std::size_t most) {
  const std::lock_guard lock(mutex_);
  if (const auto at = by_path_.find(path); at != by_path_.end()) {
    const auto old = at->second;
    by_path_.erase(at);
    order_.erase(old);
  }
  order_.emplace_front(path, std::move(file));
  by_path_.emplace(order_.front().first, order_.begin());
  while (order_.size() > most) {
    by_path_.erase(order_.back().first);
    order_.pop_back();
  }
}

std::shared_ptr<const OpenFile> OpenFiles::open(const std::string& path,
                                                const std::string& version) {
  Table& table = table_.get();
  struct stat status {};
  if (auto file = table.find(path); file && (version.empty() || version == file->version)) {
    const int failed =
        version.empty() ? ::stat(path.c_str(), &status) : ::fstat(file->fd.get(), &status);
    if (failed == 0 && identity_of(status) == file->identity) return file;
  }
  os::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags_));
  const std::string what = "cannot read " + path;
  if (!fd || ::fstat(fd.get(), &status) != 0) throw errno_error(errno, what);
  if (S_ISDIR(status.st_mode)) throw Error(Code::kNotFound, "{} is a folder, no file", path);
  if (!S_ISREG(status.st_mode))
    throw Error(Code::kUnsupported, "{} is no regular file; a device is read by block://", path);
  auto map = std::make_unique<MappedFile>(fd.get(), status.st_size);
  auto file = std::make_shared<const OpenFile>(
      OpenFile{std::move(fd), identity_of(status), version_of(status), std::move(map)});
  table.keep(path, file, most_);
  return file;
}

}  // namespace bedplate::store
