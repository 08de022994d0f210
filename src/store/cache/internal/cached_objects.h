// What a process knows of the objects that it reads through a cache: their sizes and versions, and
// the names of their blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "store/cache/internal/layout.h"
#include "store/store.h"

namespace bedplate::store::cache {

struct CachedObject {
  std::int64_t size = 0;
  std::string version;
  BlockName name = {};      // of block 0
  Hash128 named_with = {};  // the key
};

// Thread-safe.
class CachedObjects {
 public:
  std::optional<CachedObject> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto at = objects_.find(key);
    if (at == objects_.end()) return std::nullopt;
    return at->second;
  }
  void note(const std::string& key, CachedObject object) {
    const std::lock_guard lock(mutex_);
    if (objects_.size() >= kMost) objects_.clear();
    objects_.insert_or_assign(key, std::move(object));
  }
  void forget(const std::string& key) {
    const std::lock_guard lock(mutex_);
    objects_.erase(key);
  }

 private:
  static constexpr std::size_t kMost = 1 << 18;
  std::mutex mutex_;
  std::unordered_map<std::string, CachedObject> objects_;
};

}  // namespace bedplate::store::cache
