// Files that are read again and again, kept open.
//
//   const auto file = files.open(path);      // shared: stays open for whoever reads, if dropped
//   here file->version
//
// Thread-safe. A child after fork() begins with none of its own and leaves the parent's alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "os/unique_fd.h"

struct stat;

namespace bedplate::store {

// What a version of a file is made of: inode, size and time of last change of the content.
std::string version_of(const struct stat& status);

struct OpenFile {
  os::UniqueFd fd;
  std::int64_t size = 0;
  std::string version;
};

class OpenFiles {
 public:
  // `flags` for open(2), O_RDONLY | O_CLOEXEC given. Throws errno_error(); kNotFound for a folder.
  explicit OpenFiles(int flags, std::size_t most = 512) : flags_(flags), most_(most) {}
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;
  ~OpenFiles();

  // The file that has this name now, or an older one that is still open and is of `version`.
  std::shared_ptr<const OpenFile> open(const std::string& path, const std::string& version);

 private:
  struct Table;
  Table& table();

  const int flags_;
  const std::size_t most_;
  std::atomic<Table*> table_{nullptr};
};

}  // namespace bedplate::store
