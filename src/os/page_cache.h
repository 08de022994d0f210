// Files out of the page cache, so that their next read is one of the disk.
//
//   drop_from_page_cache("/data/000000.shard");
//
// What is dirty is written first, else it would stay. Pages that a process has mapped, or that lie
// on a file system in memory, stay all the same: what was really read from a disk, getrusage()
// tells. Thread-safe. Throws Error{kNotFound | kPermission | kIo}.
#pragma once

#include <filesystem>

namespace bedplate::os {

void drop_from_page_cache(const std::filesystem::path& file);
void drop_from_page_cache(int fd);

}  // namespace bedplate::os
