// A file of the page cache, read without a system call.
//
//   MappedFile map(fd, size);
//   if (map.is_cached()) os::copy_mapped(into, map.bytes() + offset, n);
//
// Copying out of a mapping is the fastest way to bytes that are in memory, and the slowest to those
// that are not: each page is then waited for by itself. So a file is mapped only when nearly all of
// it is in the page cache, which the kernel is asked now and then. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/clock.h"

namespace bedplate::store {

class MappedFile {
 public:
  // `fd` must stay open as long as this lives.
  MappedFile(int fd, std::int64_t size) : fd_(fd), size_(size) {}
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  // As of the last time the kernel was asked; at most a hundredth of the time goes into asking.
  // False for small files, where opening costs more, and where the kernel does not tell this user:
  // it tells owners and those who may write (mm/mincore.c, can_do_mincore).
  bool is_cached();
  // Only after is_cached() said yes.
  const std::byte* bytes() const { return begin_.load(std::memory_order_acquire); }

 private:
  bool map();
  bool ask_kernel() const;

  const int fd_;
  const std::int64_t size_;
  std::atomic<const std::byte*> begin_ = nullptr;
  std::atomic<bool> cached_ = false;
  std::atomic<Nanos> ask_again_at_ = 0;
  std::mutex mutex_;  // of whoever asks the kernel
  bool impossible_ = false;
};

}  // namespace bedplate::store
