// Where processes of one user find a file in memory (memfd) that one of them made.
//
//   MemoryMeeting meeting(name);                    // for others the place is locked meanwhile
//   if (const auto path = meeting.offered()) …      // "/proc/4711/fd/12": open it
//   else meeting.offer(fd);                         // for as long as this process keeps it open
//
// The memory is nobody's but theirs who have it open: the kernel frees it with the last of them,
// whatever ends it. What may be left of a killed process is the place, a file of a few bytes in
// /dev/shm, which the next one of that name uses. Where there is no /dev/shm, or the place is kept
// locked for a second, nobody is met, and each process has memory of its own. Throws nothing.
// Belongs to one thread, for a moment.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "os/unique_fd.h"

namespace bedplate::store::cache {

class MemoryMeeting {
 public:
  explicit MemoryMeeting(std::string_view name);

  std::optional<std::filesystem::path> offered() const;
  void offer(int fd);
  // Removes the place when nothing is offered there any more.
  void tidy();

 private:
  bool lock();

  std::filesystem::path place_;
  os::UniqueFd fd_;  // none: nobody is met
};

}  // namespace bedplate::store::cache
