// The one way to /proc, /sys and the outputs of vendor tools, so that a recorded machine replays
// exactly.
//
//   HostRoot live;                             // this machine
//   HostRoot recorded("tests/hosts/dgx-h100"); // a folder with proc/, sys/, tools/ (see `bedplate
//   capture`) if (auto text = live.read("/proc/loadavg")) …
//
// Absent hardware is a value: what is not there reads as nullopt, never as an error and never as 0.
// Links inside a recorded machine that start with "/" stay inside it. Thread-safe: it keeps no
// state but its path.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/unique_fd.h"

namespace bedplate::os {

class HostRoot {
 public:
  explicit HostRoot(std::filesystem::path root = "/");

  bool live() const { return live_; }
  const std::filesystem::path& root() const { return root_; }

  // Where `absolute` ("/sys/…") really lies.
  std::filesystem::path resolve(std::string_view absolute) const;

  // The file's bytes, at most 64 MiB; nullopt when it is absent, unreadable or its read fails
  // (sysfs answers EIO or EINVAL for what a device does not have).
  std::optional<std::string> read(std::string_view absolute) const;

  // The same without white space at the ends; as a number; nullopt also when it is not one.
  std::optional<std::string> read_line(std::string_view absolute) const;
  std::optional<std::int64_t> read_int(std::string_view absolute) const;

  bool exists(std::string_view absolute) const;
  bool readable(std::string_view absolute) const;

  // Names in a folder, sorted; empty when it is absent.
  std::vector<std::string> list(std::string_view absolute) const;

  // The target text of a symbolic link; nullopt when there is none. link_name is its last
  // component.
  std::optional<std::string> link(std::string_view absolute) const;
  std::optional<std::string> link_name(std::string_view absolute) const;

  // For files that are read many times a second: opened once. An absent file gives an empty
  // descriptor.
  UniqueFd open(std::string_view absolute) const;

 private:
  std::filesystem::path root_;
  bool live_;
};

// Reads a /proc or /sys file from its start through an open descriptor into `buffer` (grown as
// needed, reused between calls). The view lies in `buffer`. nullopt when the read fails, as for a
// process that has ended.
std::optional<std::string_view> reread(int fd, std::string& buffer);

}  // namespace bedplate::os
