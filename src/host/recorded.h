// Opens the machine that a command was pointed at.
//
//   const os::HostRoot root = open_machine(options.from);   // "" is this machine
//
// `from` is a folder with proc/ or sys/ (hand-made or recorded), or one with snapshots t0000/,
// t0001/, … of which the first is taken. Throws Error{kNotFound} when there is no such folder,
// Error{kInvalid} when it holds no machine, Error{kUnsupported} for a packed one.
#pragma once

#include <string>

#include "os/host_root.h"

namespace bedplate::host {

os::HostRoot open_machine(const std::string& from);

}  // namespace bedplate::host
