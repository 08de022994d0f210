#include "store/internal/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/units.h"

namespace bedplate::store {
namespace {

constexpr std::int64_t kSmallest = 4 * kMiB;
constexpr Nanos kBetween = 500 * kMillisecond;
constexpr Nanos kTimesCost = 100;
constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kPagesAtOnce = 64 * 1024;

bool kernel_tells(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return false;
  const uid_t user = ::geteuid();
  return user == 0 || user == status.st_uid;
}

}  // namespace

MappedFile::~MappedFile() {
  if (const std::byte* const at = begin_.load())
    ::munmap(const_cast<std::byte*>(at), static_cast<std::size_t>(size_));
}

bool MappedFile::is_cached() {
  if (size_ < kSmallest) return false;
  if (real_clock().now() < ask_again_at_.load(std::memory_order_relaxed))
    return cached_.load(std::memory_order_acquire);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || impossible_) return cached_.load(std::memory_order_acquire);
  const Nanos began = real_clock().now();
  cached_.store(map() && ask_kernel(), std::memory_order_release);
  const Nanos ended = real_clock().now();
  ask_again_at_.store(ended + std::max(kBetween, kTimesCost * (ended - began)),
                      std::memory_order_relaxed);
  return cached_.load(std::memory_order_relaxed);
}

bool MappedFile::map() {
  if (bytes() != nullptr) return true;
  void* const at = kernel_tells(fd_) ? ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ,
                                              MAP_SHARED, fd_, 0)
                                     : MAP_FAILED;
  if (at == MAP_FAILED) {
    impossible_ = true;
    return false;
  }
  // Should a page be gone after all, it alone is read, and not what lies around it.
  ::madvise(at, static_cast<std::size_t>(size_), MADV_RANDOM);
  begin_.store(static_cast<const std::byte*>(at), std::memory_order_release);
  return true;
}

bool MappedFile::ask_kernel() const {
  const std::int64_t pages = (size_ + kPage - 1) / kPage;
  const std::int64_t may_miss = pages / 200;
  std::int64_t missing = 0;
  std::vector<unsigned char> there(static_cast<std::size_t>(std::min(pages, kPagesAtOnce)));
  for (std::int64_t at = 0; at < pages; at += kPagesAtOnce) {
    const std::int64_t count = std::min(kPagesAtOnce, pages - at);
    const std::int64_t length = std::min(count * kPage, size_ - at * kPage);
    if (::mincore(const_cast<std::byte*>(bytes()) + at * kPage, static_cast<std::size_t>(length),
                  there.data()) != 0)
      return false;
    missing += std::count_if(there.begin(), there.begin() + count,
                             [](unsigned char page) { return (page & 1) == 0; });
    if (missing > may_miss) return false;
  }
  return true;
}

}  // namespace bedplate::store
