#include "store/internal/open_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <list>
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "base/units.h"

namespace bedplate::store {

std::string version_of(const struct stat& status) {
  return fmt::format("{:x}-{:x}-{:x}", status.st_ino, status.st_size,
                     status.st_mtim.tv_sec * kSecond + status.st_mtim.tv_nsec);
}

// The most recently used first.
struct OpenFiles::Table {
  using Entry = std::pair<std::string, std::shared_ptr<const OpenFile>>;

  pid_t process = ::getpid();
  std::mutex mutex;
  std::list<Entry> order;
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_path;  // views into `order`

  std::shared_ptr<const OpenFile> find(const std::string& path) {
    const std::lock_guard lock(mutex);
    const auto at = by_path.find(path);
    if (at == by_path.end()) return nullptr;
    order.splice(order.begin(), order, at->second);
    return at->second->second;
  }

  void keep(const std::string& path, std::shared_ptr<const OpenFile> file, std::size_t most) {
    const std::lock_guard lock(mutex);
    if (const auto at = by_path.find(path); at != by_path.end()) {
      const auto old = at->second;
      by_path.erase(at);
      order.erase(old);
    }
    order.emplace_front(path, std::move(file));
    by_path.emplace(order.front().first, order.begin());
    while (order.size() > most) {
      by_path.erase(order.back().first);
      order.pop_back();
    }
  }
};

OpenFiles::~OpenFiles() { delete table_.load(); }

// The parent's table may be locked for ever in a child, by a thread that is not there: it is left
// as it is, never freed.
OpenFiles::Table& OpenFiles::table() {
  Table* known = table_.load();
  while (known == nullptr || known->process != ::getpid()) {
    auto fresh = std::make_unique<Table>();
    if (table_.compare_exchange_weak(known, fresh.get())) return *fresh.release();
  }
  return *known;
}

std::shared_ptr<const OpenFile> OpenFiles::open(const std::string& path,
                                                const std::string& version) {
  Table& table = this->table();
  struct stat status {};
  if (auto file = table.find(path); file && (version.empty() || version == file->version)) {
    const int failed =
        version.empty() ? ::stat(path.c_str(), &status) : ::fstat(file->fd.get(), &status);
    if (failed == 0 && version_of(status) == file->version) return file;
  }
  os::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags_));
  const std::string what = "cannot read " + path;
  if (!fd || ::fstat(fd.get(), &status) != 0) throw errno_error(errno, what);
  if (S_ISDIR(status.st_mode)) throw Error(Code::kNotFound, "{} is a folder, no file", path);
  if (!S_ISREG(status.st_mode))
    throw Error(Code::kUnsupported, "{} is no regular file; a device is read by block://", path);
  auto file =
      std::make_shared<const OpenFile>(OpenFile{std::move(fd), status.st_size, version_of(status)});
  table.keep(path, file, most_);
  return file;
}

}  // namespace bedplate::store
