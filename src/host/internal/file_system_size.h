// How full file systems are, without ever hanging on a dead server or FUSE daemon.
//
//   const auto answers = sizes_with_deadline({"/mnt/nfs", "/mnt/s3"}, kSecond);
//
// Each path is asked by a process of its own, all at once. What has not answered by the deadline is
// given up: its process ends itself soon after, or as late as the kernel lets go of it, and holds
// none of our descriptors meanwhile.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"

namespace bedplate::host {

struct FileSystemSize {
  std::optional<std::int64_t> bytes;
  std::optional<std::int64_t> available_bytes;
  std::optional<std::int64_t> inodes;  // absent where they are not counted
  std::optional<std::int64_t> available_inodes;
};

struct SizeAnswer {
  std::optional<FileSystemSize> size;
  std::string why;  // when there is none
};

SizeAnswer size_of(const std::string& path);  // may block: for local file systems

std::vector<SizeAnswer> sizes_with_deadline(std::span<const std::string> paths, Nanos deadline);

}  // namespace bedplate::host
