#include "probe/internal/thread_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "probe/internal/sampling.h"

namespace bedplate::probe {

ThreadFolder::ThreadFolder(const os::HostRoot& host, int pid)
    : folder_(host.open(fmt::format("/proc/{}/task", pid))) {
  if (!folder_) return;
  // fdopendir() takes its descriptor over, and this one is still needed.
  const int copy = ::fcntl(folder_.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return;
  DIR* listing = ::fdopendir(copy);
  if (listing == nullptr) {
    ::close(copy);
    return;
  }
  while (const dirent* entry = ::readdir(listing)) {
    const auto tid = natural(entry->d_name);
    if (tid && *tid <= std::numeric_limits<int>::max()) threads_.push_back(static_cast<int>(*tid));
  }
  ::closedir(listing);
  std::sort(threads_.begin(), threads_.end());
}

std::optional<std::string_view> ThreadFolder::read(int tid, const char* name,
                                                   std::string& buffer) const {
  char path[64];
  *fmt::format_to_n(path, sizeof path - 1, "{}/{}", tid, name).out = '\0';
  const os::UniqueFd file(::openat(folder_.get(), path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return std::nullopt;
  return os::reread(file.get(), buffer);
}

std::optional<SchedStat> parse_schedstat(std::string_view text) {
  Words words(text);
  const auto run = natural(words.next());
  const auto delay = natural(words.next());
  if (!run || !delay) return std::nullopt;
  return SchedStat{*run, *delay};
}

}  // namespace bedplate::probe
