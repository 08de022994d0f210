// Files that are read again and again, kept open.
//
//   const auto file = files.open(path);      // shared: stays open for whoever reads, if dropped
//   here file->version
//
// Thread-safe. A child after fork() begins with none of its own and leaves the parent's alone.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "os/per_process.h"
#include "os/unique_fd.h"
#include "store/internal/mapped_file.h"

struct stat;

namespace bedplate::store {

// What a version of a file is made of: inode, size and time of last change of the content.
std::string version_of(const struct stat& status);

// The same three as numbers, to be compared for each read.
struct FileIdentity {
  std::uint64_t inode = 0;
  std::int64_t size = 0;
  Nanos changed = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

struct OpenFile {
  os::UniqueFd fd;
  FileIdentity identity;
  std::string version;
  std::unique_ptr<MappedFile> map;
};

class OpenFiles {
 public:
  // `flags` for open(2), O_RDONLY | O_CLOEXEC given. Throws errno_error(); kNotFound for a folder.
  explicit OpenFiles(int flags, std::size_t most = 512) : flags_(flags), most_(most) {}

  // The file that has this name now, or an older one that is still open and is of `version`.
  std::shared_ptr<const OpenFile> open(const std::string& path, const std::string& version);

 private:
  // The most recently used first.
  class Table {
   public:
    std::shared_ptr<const OpenFile> find(const std::string& path);
    void keep(const std::string& path, std::shared_ptr<const OpenFile> file, std::size_t most);

   private:
    using Entry = std::pair<std::string, std::shared_ptr<const OpenFile>>;
    std::mutex mutex_;
    std::list<Entry> order_;
    std::unordered_map<std::string_view, std::list<Entry>::iterator> by_path_;  // views into order_
  };

  const int flags_;
  const std::size_t most_;
  os::PerProcess<Table> table_;
};

}  // namespace bedplate::store
