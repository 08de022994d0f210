#include "os/page_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/text.h"
#include "os/unique_fd.h"

namespace bedplate::os {

void drop_from_page_cache(int fd) {
  ::fsync(fd);  // what is dirty stays
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

void drop_from_page_cache(const std::filesystem::path& file) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw errno_error(errno, "cannot open " + to_utf8(file.native()));
  drop_from_page_cache(fd.get());
}

}  // namespace bedplate::os
