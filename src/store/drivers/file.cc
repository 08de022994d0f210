// Files under a folder of this machine: a plain path, or file:///path. Also a mounted NFS or
// Lustre.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "os/durable_file.h"
#include "os/folder_lock.h"
#include "os/mapped_copy.h"
#include "store/driver.h"
#include "store/internal/direct_reads.h"
#include "store/internal/open_files.h"
#include "store/internal/read_engine.h"

namespace bedplate::store {
namespace {

namespace fs = std::filesystem;
using Direct = StoreOptions::Direct;

class FileWriter : public ObjectWriter {
 public:
  FileWriter(std::string key, const fs::path& path, IfExists if_exists)
      : key_(std::move(key)), if_exists_(if_exists), file_(path) {}

  void write(std::span<const std::byte> bytes) override {
    file_.write({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  ObjectInfo commit() override {
    struct stat status {};
    // Its inode, size and time stay what they are under the new name.
    if (::fstat(file_.fd(), &status) != 0) throw errno_error(errno, "cannot look at " + key_);
    file_.commit(if_exists_ == IfExists::kRefuse ? os::DurableFile::IfExists::kRefuse
                                                 : os::DurableFile::IfExists::kReplace);
    return {key_, status.st_size, version_of(status)};
  }

 private:
  std::string key_;
  IfExists if_exists_;
  os::DurableFile file_;
};

class FileClaim : public Claim {
 public:
  explicit FileClaim(std::unique_ptr<os::FolderLock> lock) : lock_(std::move(lock)) {}

 private:
  const std::unique_ptr<os::FolderLock> lock_;
};

// Files that the kernel makes as they are read: they have no size, and what is listed as empty is
// not.
bool is_made_by_the_kernel(const std::string& path) {
  struct statfs system {};
  if (::statfs(path.c_str(), &system) != 0) return false;
  constexpr std::array kSystems = {PROC_SUPER_MAGIC,    SYSFS_MAGIC,   CGROUP_SUPER_MAGIC,
                                   CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, TRACEFS_MAGIC,
                                   SECURITYFS_MAGIC};
  const auto type = static_cast<unsigned long>(system.f_type);
  return std::ranges::any_of(kSystems,
                             [&](auto magic) { return static_cast<unsigned long>(magic) == type; });
}

class FileStore : public Store {
 public:
  FileStore(fs::path folder, const StoreOptions& options)
      : folder_(std::move(folder)),
        below_((folder_ / "").string()),
        options_(options),
        files_(options.direct == Direct::kYes ? O_DIRECT : 0) {}

  std::string url() const override { return to_utf8(folder_.native()); }

  std::optional<ObjectInfo> find(std::string_view key, Deadline) override {
    const std::string path = path_of(key);
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0)
      return S_ISREG(status.st_mode) ? std::optional(info_of(std::string(key), path, status))
                                     : std::nullopt;
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw errno_error(errno, "cannot look at " + to_utf8(path));
  }

  void read(std::span<Read> reads, Deadline deadline) override;
  void list(std::string_view prefix, const Visit& visit, Deadline deadline) override;

  std::unique_ptr<ObjectWriter> create(std::string_view key, IfExists if_exists, Nanos) override {
    const fs::path path = path_of(key);
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error)
      throw errno_error(error.value(),
                        "cannot make folder " + to_utf8(path.parent_path().native()));
    if (if_exists == IfExists::kRefuse && fs::exists(path, error))
      throw Error(Code::kExists, "{} exists already", to_utf8(path.native()));
    return std::make_unique<FileWriter>(std::string(key), path, if_exists);
  }

  std::int64_t remove_abandoned(std::string_view folder, Deadline) override {
    return os::DurableFile::remove_abandoned(path_of_folder(folder));
  }

  std::unique_ptr<Claim> claim(std::string_view folder, Deadline deadline) override {
    auto lock = os::FolderLock::take(path_of_folder(folder), deadline);
    return lock ? std::make_unique<FileClaim>(std::move(lock)) : nullptr;
  }

  void remove(std::string_view key, Deadline) override {
    const std::string path = path_of(key);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR)
      throw errno_error(errno, "cannot remove " + to_utf8(path));
  }

 private:
  static ObjectInfo info_of(std::string key, const std::string& path, const struct stat& status) {
    if (status.st_size == 0 && is_made_by_the_kernel(path))
      throw Error(
          Code::kUnsupported,
          "{} is made by the kernel while it is read, and has no size: copy it into a file, "
          "and give that",
          to_utf8(path));
    return {std::move(key), status.st_size, version_of(status)};
  }

  std::string path_of(std::string_view key) const {
    check_key(key);
    return below_ + std::string(key);
  }
  // `folder`: empty, or ends in a slash.
  fs::path path_of_folder(std::string_view folder) const {
    return folder.empty() ? folder_ : fs::path(path_of(folder.substr(0, folder.size() - 1)));
  }

  struct Listing {
    using Folder = std::pair<dev_t, ino_t>;
    std::string_view prefix;
    const Visit& visit;
    Deadline deadline;
    std::vector<Folder> above;  // from the root to the one that is looked at
  };
  // `folder`: empty, or a key with a slash at its end.
  void list_folder(const std::string& folder, Listing& listing);

  const fs::path folder_;
  const std::string below_;  // the same with a slash at its end
  const StoreOptions options_;
  OpenFiles files_;
};

Error read_error(int error, const Read& read, const std::string& url) {
  const std::string what = fmt::format("cannot read {} bytes from byte {} of {} in {}",
                                       read.into.size(), read.offset, to_utf8(read.key), url);
  if (error == kEndOfFile) return {Code::kCorrupt, "{}: the file ended before them", what};
  if (error == ETIMEDOUT) return {Code::kTimeout, "{}: it had not begun when time was up", what};
  return errno_error(error, what);
}

// The head of what is copied next comes on its way: rows of an epoch's order lie where no hardware
// prefetcher expects them. Costs nothing but the instructions where the bytes are not in memory.
void fetch_ahead(const MappedFile& map, std::int64_t size, const Read& next) {
  constexpr std::int64_t kLine = 64;
  constexpr std::int64_t kMost = 16 * kLine;
  if (next.offset < 0 || next.offset > size) return;
  const std::int64_t bytes = std::min({kMost, std::ssize(next.into), size - next.offset});
  for (std::int64_t at = 0; at < bytes; at += kLine)
    __builtin_prefetch(map.bytes() + next.offset + at);
}

void FileStore::read(std::span<Read> reads, Deadline deadline) {
  std::vector<RangeRead> ranges;
  std::vector<Read*> of_range;
  std::vector<std::shared_ptr<const OpenFile>> files;  // stay open while they are read
  const Read* last = nullptr;                          // that files.back() is the file of
  const bool may_copy = options_.direct == Direct::kNo && os::can_copy_mapped();
  bool copies = false;  // what is asked of the last file
  begin_reads(reads, [&](Read& one) {
    if (last == nullptr || last->key != one.key || last->version != one.version) {
      files.push_back(files_.open(path_of(one.key), one.version));
      last = &one;
      copies = may_copy && files.back()->map->is_cached();
    }
    const OpenFile& file = *files.back();
    check_read(one, file.identity.size, file.version, *this);
    if (one.into.empty()) return;
    if (copies) {
      const Read* const next = &one + 1;
      if (next < reads.data() + reads.size() && next->key == one.key)
        fetch_ahead(*file.map, file.identity.size, *next);
      if (os::copy_mapped(one.into.data(), file.map->bytes() + one.offset, one.into.size())) return;
    }
    ranges.push_back({file.fd.get(), one.offset, one.into});
    of_range.push_back(&one);
  });
  if (ranges.empty()) return;
  const ReadEngine& engine = best_read_engine();
  if (options_.direct == Direct::kYes) {
    read_directly(engine, ranges, options_.queue_depth, deadline);
  } else {
    engine.read(ranges, options_.queue_depth, deadline);
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].error != 0) of_range[i]->error = read_error(ranges[i].error, *of_range[i], url());
  }
}

// What a name in a folder leads to; nullopt when it was removed meanwhile. A link that leads
// nowhere, and what cannot be looked at, is no reason to go on without: a set that is short by a
// shard would be read as if it were whole.
std::optional<struct stat> look_at(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return status;  // links are followed, as reads do
  const int error = errno;
  struct stat link {};
  const bool is_link = ::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode);
  if ((error == ENOENT || error == ENOTDIR) && !is_link) return std::nullopt;
  std::error_code ignored;
  const std::string target =
      is_link ? fmt::format(", a link to {}", to_utf8(fs::read_symlink(path, ignored).native()))
              : "";
  throw errno_error(error, fmt::format("cannot look at {}{}", to_utf8(path), target));
}

// Those names in a folder whose keys may begin with what is listed, in the order that the keys
// below have: "a-b" before "a/…" before "a0". The names of folders end in a slash. `wanted`: how
// the names begin, or the folders above what is listed.
std::vector<std::string> names_in(const fs::path& folder, std::string_view wanted) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    std::string name = at->path().filename().string();
    if (os::DurableFile::is_temporary(name)) continue;
    if (!name.starts_with(wanted) && !wanted.starts_with(name + "/")) continue;
    std::error_code unknown;
    const bool is_link = at->is_symlink(unknown);
    bool is_folder = !is_link && at->is_directory(unknown);
    if (is_link || unknown) {
      const auto status = look_at(at->path().native());
      if (!status) continue;
      is_folder = S_ISDIR(status->st_mode);
    }
    if (is_folder) name += '/';
    names.push_back(std::move(name));
  }
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory)
    return {};
  if (error) throw errno_error(error.value(), "cannot list " + to_utf8(folder.native()));
  std::ranges::sort(names);
  return names;
}

void FileStore::list_folder(const std::string& folder, Listing& listing) {
  if (listing.deadline.passed())
    throw Error(Code::kTimeout, "listing {} did not end in time, it was at {}", url(),
                to_utf8(folder));
  const auto status = look_at((folder_ / folder).native());
  if (!status || !S_ISDIR(status->st_mode)) return;
  const Listing::Folder self{status->st_dev, status->st_ino};
  if (std::ranges::find(listing.above, self) != listing.above.end())
    throw Error(Code::kInvalid, "{} in {} is a link to a folder that it lies in", to_utf8(folder),
                url());
  listing.above.push_back(self);
  const std::string_view wanted =
      listing.prefix.substr(std::min(folder.size(), listing.prefix.size()));
  for (const std::string& name : names_in(folder_ / folder, wanted)) {
    const std::string key = folder + name;
    if (key.ends_with('/')) {
      list_folder(key, listing);
    } else if (key.starts_with(listing.prefix)) {
      const std::string path = below_ + key;
      const auto file = look_at(path);
      if (file && S_ISREG(file->st_mode)) listing.visit(info_of(key, path, *file));
    }
  }
  listing.above.pop_back();
}

void FileStore::list(std::string_view prefix, const Visit& visit, Deadline deadline) {
  Listing listing{prefix, visit, deadline, {}};
  list_folder("", listing);
}

// A URL names a file, a folder, or what is to be made; the store's root is the folder above, or the
// folder itself.
Driver::Opened open_file(const Url& url, const StoreOptions& options) {
  std::error_code error;
  const fs::path path = fs::absolute(url.path, error).lexically_normal();
  if (error) throw errno_error(error.value(), "no absolute path of " + to_utf8(url.path));
  if (fs::is_directory(path, error) || !path.has_filename())
    return {std::make_shared<FileStore>(path, options), ""};
  return {std::make_shared<FileStore>(path.parent_path(), options), path.filename().string()};
}

constexpr std::string_view kSchemes[] = {"file"};

}  // namespace

extern const Driver kFile = {
    .name = "file",
    .schemes = kSchemes,
    .summary = "files of this machine and of what is mounted on it",
    .open = open_file,
};

}  // namespace bedplate::store
