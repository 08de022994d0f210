#include "data/batch.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace bedplate::data {

// Whole pages of its own, so that a child after fork() shares them until one of the two writes.
Slab::Slab(std::size_t bytes) : size_(bytes) {
  void* const at = ::mmap(nullptr, std::max<std::size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    throw errno_error(errno, fmt::format("cannot get {} bytes for a batch", bytes));
  begin_ = static_cast<std::byte*>(at);
}

Slab::~Slab() { ::munmap(begin_, std::max<std::size_t>(size_, 1)); }

SlabPool::SlabPool(std::size_t bytes, std::size_t most_free)
    : bytes_(bytes), most_free_(most_free), free_(std::make_shared<Free>()) {}

std::shared_ptr<Slab> SlabPool::take() {
  std::unique_ptr<Slab> slab;
  {
    const std::lock_guard lock(free_->mutex);
    if (!free_->slabs.empty()) {
      slab = std::move(free_->slabs.back());
      free_->slabs.pop_back();
    } else {
      ++free_->made;
    }
  }
  try {
    if (!slab) slab = std::make_unique<Slab>(bytes_);
  } catch (...) {
    const std::lock_guard lock(free_->mutex);
    --free_->made;
    throw;
  }
  const auto give_back = [free = free_, most = most_free_](Slab* used) {
    std::unique_ptr<Slab> owned(used);
    const std::lock_guard lock(free->mutex);
    if (free->slabs.size() < most) {
      free->slabs.push_back(std::move(owned));
    } else {
      --free->made;
    }
  };
  return {slab.release(), give_back};
}

std::int64_t SlabPool::made() const {
  const std::lock_guard lock(free_->mutex);
  return free_->made;
}

}  // namespace bedplate::data
