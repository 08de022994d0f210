// A file that appears whole or not at all.
//
//   write_durably(dir / "report.json", text);   // after this the file survives a power cut
//
// Writes a temporary in the same folder, flushes and checks it, renames it over the old one and
// flushes the folder. Until it returns, readers see the previous file or none. Throws
// Error{kNoSpace | kIo | kPermission | kNotFound}; after a throw the previous file is as it was and
// no temporary is left. Two writers of one path race: the last rename wins.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "os/unique_fd.h"

namespace bedplate::os {

// The same for what is written bit by bit by somebody who decides at the end:
//
//   DurableFile file(folder / "000.shard");
//   while (…) file.write(piece);
//   file.commit(DurableFile::IfExists::kRefuse);   // Error{kExists} when another one is there
//
// Its temporary ".bedplate-tmp-…" is removed by the destructor unless commit() was called; kill -9
// leaves it behind, under a name that no file of a user has, and unlocked: what is being written is
// locked (flock) until it lies under its name. One thread. After fork() the file stays the
// parent's: what the child does with its copy is Error{kInvalid}, and its end removes nothing.
class DurableFile {
 public:
  enum class IfExists { kReplace, kRefuse };

  explicit DurableFile(std::filesystem::path path);
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;
  ~DurableFile();

  void write(std::string_view bytes);
  int fd() const { return fd_.get(); }  // for pwrite(), fallocate(), fstat(); -1 after commit()
  void commit(IfExists if_exists = IfExists::kReplace);

  static bool is_temporary(std::string_view file_name);
  // Removes the temporaries in `folder` whose writers are no more and gives their number; those of
  // living writers stay. On file systems without locks nothing is removed. A folder that is not
  // there has none.
  static std::int64_t remove_abandoned(const std::filesystem::path& folder);

 private:
  std::string what() const;
  void check_owner() const;
  void make_temporary();
  void put_in_place(IfExists if_exists);

  std::filesystem::path path_;
  std::filesystem::path folder_;
  std::string temporary_;  // empty once it is in place
  UniqueFd fd_;
  pid_t owner_ = 0;
};

// 64 bits of the kernel's, for names and numbers that no other process or machine has.
std::uint64_t random_bits();

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
