// A file that appears whole or not at all.
//
//   write_durably(dir / "report.json", text);   // after this the file survives a power cut
//
// Writes a temporary in the same folder, flushes and checks it, renames it over the old one and
// flushes the folder. Until it returns, readers see the previous file or none. Throws
// Error{kNoSpace | kIo | kPermission | kNotFound}; after a throw the previous file is as it was and
// no temporary is left. Two writers of one path race: the last rename wins.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace bedplate::os {

void write_durably(const std::filesystem::path& path, std::string_view bytes);

// What ordinary output wants (a report for a user, generated text): the same all-or-nothing, to a
// regular file or one that does not exist yet; a symbolic link stays and its target is replaced. To
// what is no regular file (a pipe, a terminal) the bytes are written straight, and to /dev/stdout,
// /dev/stderr and /dev/fd/N through that very descriptor: behind what was written there before.
void write_output(const std::filesystem::path& path, std::string_view bytes);

// The same for what is made piece by piece and need not fit into memory: `produce` is called once
// and hands its pieces to the function that it is given. An exception of `produce` passes through,
// as after a failure of ours.
using WritePiece = std::function<void(std::string_view)>;
void write_output(const std::filesystem::path& path,
                  const std::function<void(const WritePiece&)>& produce);

}  // namespace bedplate::os
