// A folder that one process at a time works in.
//
//   const auto lock = FolderLock::take(folder, deadline);   // Error{kExists} when another has it
//
// The lock is a file ".bedplate-tmp-lock" in the folder (a name that DurableFile knows, so that
// DurableFile::remove_abandoned() takes away what kill -9 leaves of it), held by flock(): it ends
// with its process, however that ends. Folders that are missing are made, and removed again if
// nothing was put into them. After fork() the lock stays the parent's.
//
// The processes may be on several machines where flock() reaches as far (NFS since version 4,
// Lustre with -o flock, …).
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "os/unique_fd.h"

namespace bedplate::os {

class FolderLock {
 public:
  // Waits for it until the deadline, then Error{kExists} that names the process that has it; other
  // errors are those of the file system. nullptr where there are no locks, or nothing can be
  // written.
  static std::unique_ptr<FolderLock> take(const std::filesystem::path& folder, Deadline deadline);

  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  enum class Attempt { kTaken, kBusy, kNoLocks };
  explicit FolderLock(std::filesystem::path folder) : folder_(std::move(folder)) {}
  bool make_folders();  // false when that is not permitted
  Attempt attempt();
  Error busy() const;

  const std::filesystem::path folder_;
  std::filesystem::path file_;
  std::vector<std::filesystem::path> made_;  // folders, the outermost first
  UniqueFd fd_;                              // none: not taken
  pid_t pid_ = 0;                            // that took it
};

}  // namespace bedplate::os
