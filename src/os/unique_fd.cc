#include "os/unique_fd.h"

#include <unistd.h>

namespace bedplate::os {

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

}  // namespace bedplate::os
