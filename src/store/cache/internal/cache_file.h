// The one file of a cache's folder: made whole or not at all, opened once a process, with locks
// that end with the process that holds them, whatever ends it.
//
//   const auto file = CacheFile::open(folder, {.cap_bytes = 200'000'000'000});
//   if (file->try_lock(kChangeLock)) { …; file->unlock(kChangeLock); }
//
// The locks are POSIX record locks, fcntl(2): the kernel gives them back when a process dies, no
// child inherits them, and they are the process's: threads must agree among themselves. A process
// loses all of them when it closes any descriptor of the file, hence the one descriptor.
//
// Thread-safe. Reads and writes throw errno_error(), and Error{kCorrupt} when the file is shorter
// than it was made (somebody cut it off).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "store/cache/cache_options.h"
#include "store/cache/internal/layout.h"

namespace bedplate::store::cache {

// Places of locks; each is of one byte that need not exist.
constexpr std::uint64_t kChangeLock = std::uint64_t{1} << 62;
constexpr std::uint64_t slot_lock(std::uint64_t slot) { return (std::uint64_t{1} << 61) + slot; }
constexpr std::uint64_t fetch_lock(std::uint64_t block_hash) { return block_hash >> 3; }

class CacheFile {
 public:
  // Opens the cache of `folder`; when there is none, makes the folder (its parent must exist) and
  // the file. Error{kNotFound | kPermission | kNoSpace | kIo | kCorrupt}.
  static std::unique_ptr<CacheFile> open(const std::filesystem::path& folder,
                                         const CacheOptions& options);
  // The same, but nullptr when there is none.
  static std::unique_ptr<CacheFile> find(const std::filesystem::path& folder);
  // A file that lives as long as any process has it open, the one of this name among this user's
  // processes (memory_meeting.h); made when there is none. `options.cap_bytes` is above 0.
  static std::unique_ptr<CacheFile> in_memory(const std::string& name, const CacheOptions& options);
  CacheFile(const CacheFile&) = delete;
  CacheFile& operator=(const CacheFile&) = delete;
  ~CacheFile();

  const Header& header() const { return header_; }
  const std::filesystem::path& path() const { return path_; }
  int fd() const { return fd_; }
  std::int64_t disk_bytes() const;  // of the whole file, as the file system counts
  std::int64_t made_for() const;    // the cap when the file was made

  void read(std::uint64_t at, std::span<std::byte> into) const;
  void write(std::uint64_t at, std::span<const std::byte> bytes) const;
  // Gives the room back; false where the file system cannot.
  bool punch(std::uint64_t at, std::uint64_t bytes) const;

  template <typename T>
  T get(std::uint64_t at) const {
    T value{};
    read(at, raw_writable(value));
    return value;
  }
  template <typename T>
  void put(std::uint64_t at, const T& value) const {
    write(at, raw(value));
  }

  bool try_lock(std::uint64_t at) const;
  void unlock(std::uint64_t at) const;
  bool locked_by_another_process(std::uint64_t at) const;

  std::uint64_t policy_at(std::uint64_t slot) const {
    return header_.policies_at + slot * sizeof(Policy);
  }
  std::uint64_t entry_at(std::uint64_t slot) const {
    return header_.entries_at + slot * sizeof(Entry);
  }
  std::uint64_t block_at(std::uint64_t slot) const {
    return header_.blocks_at + slot * header_.block_bytes;
  }

 private:
  CacheFile(std::filesystem::path path, int fd);
  void read_header();

  std::filesystem::path path_;
  std::string memory_name_;  // of in_memory()
  int fd_;
  Header header_{};
};

}  // namespace bedplate::store::cache
