// Room on the file system that is to be measured, which is given back whatever happens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "os/unique_fd.h"

namespace bedplate::bench {

// Throws Error{kNotFound | kPermission} when `folder` is none or cannot be written to,
// Error{kNoSpace} when `bytes` (and `files` of them) in it would leave its file system with less
// than `reserve` bytes.
struct Room {
  std::int64_t bytes = 0;
  std::int64_t files = 0;
  std::int64_t reserve = 0;
};
void check_room(const std::filesystem::path& folder, const Room& room);

// The file system under `folder`: what it is called where that matters to a figure ("tmpfs": it is
// memory), else empty.
std::string memory_file_system(const std::filesystem::path& folder);

// A file without a name: the kernel frees it with its last descriptor, also after kill -9.
// Throws Error{kPermission | kNoSpace | kIo}.
os::UniqueFd nameless_file(const std::filesystem::path& folder);

// A folder ".bedplate-bench-…", removed with all in it by the destructor. One that a killed process
// has left is recognised by nobody's holding its lock, and removed by the next constructor in the
// same place.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::filesystem::path& above);
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();

  const std::filesystem::path& path() const { return path_; }
  int leftovers() const { return leftovers_; }  // folders of others that were removed

 private:
  int remove_leftovers(const std::filesystem::path& above) const;

  std::filesystem::path path_;
  os::UniqueFd lock_;
  int leftovers_ = 0;
};

}  // namespace bedplate::bench
