// An object that is read once from begin to end, with large reads.
//
//   ScanWindow window(store, info, deadline);
//   window.at(offset, 512)                     // valid until the next call
//
// One thread. Throws what the store throws.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "store/store.h"

namespace bedplate::data {

class ScanWindow {
 public:
  static constexpr std::int64_t kBytes = 8 * kMiB;

  ScanWindow(store::Store& store, const store::ObjectInfo& info, Deadline deadline)
      : store_(store), info_(info), deadline_(deadline) {}

  // Bytes that lie in the object.
  std::span<const std::byte> at(std::int64_t offset, std::int64_t size) {
    return at(offset, size, offset, kBytes);
  }
  // The same; when it has to be read, from byte `begin` <= offset on, and `ahead` bytes at once.
  std::span<const std::byte> at(std::int64_t offset, std::int64_t size, std::int64_t begin,
                                std::int64_t ahead) {
    if (offset < begin_ || offset + size > begin_ + std::ssize(bytes_)) {
      const std::int64_t wanted = std::max(ahead, offset + size - begin);
      bytes_.resize(static_cast<std::size_t>(std::min(wanted, info_.size - begin)));
      begin_ = begin;
      store::read_exactly(
          store_, {.key = info_.key, .offset = begin, .into = bytes_, .version = info_.version},
          deadline_);
    }
    return std::span<const std::byte>(bytes_).subspan(static_cast<std::size_t>(offset - begin_),
                                                      static_cast<std::size_t>(size));
  }

 private:
  store::Store& store_;
  const store::ObjectInfo& info_;
  Deadline deadline_;
  std::vector<std::byte> bytes_;
  std::int64_t begin_ = 0;
};

}  // namespace bedplate::data
