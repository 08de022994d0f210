// Memory for what a loader's order mixes: blocks of remote shards are fetched whole, once for all
// processes of the machine that read in that order, and stay until their samples have been used.
//
//   const auto window = WindowMemory::open(source, KeepWindow::kAuto);   // nullptr: none
//   if (window) store = &window->over(store);
//
// Without it a shuffled sample of a remote shard is a request of its own. It is kept where that
// would be slow (samples below 1 MiB, behind HTTP or S3), where no cache was given, and where four
// times what it takes is free. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "data/loader.h"
#include "data/source.h"
#include "store/cache/cache.h"

namespace bedplate::data {

// Bytes that a window of the source's order takes at most, with what is read ahead of it; 0 where
// there is none: of a mix, and of samples that are objects of their own.
std::int64_t window_bytes(const Source& source);

class WindowMemory {
 public:
  static std::unique_ptr<WindowMemory> open(const Source& source, KeepWindow keep);

  // The same store, read through the memory. `store` is one of the source's.
  store::Store& over(store::Store& store) const { return *stores_.at(&store); }
  const std::shared_ptr<store::Cache>& cache() const { return cache_; }

 private:
  WindowMemory(const Source& source, std::int64_t bytes);

  std::shared_ptr<store::Cache> cache_;
  std::unordered_map<store::Store*, std::shared_ptr<store::Store>> stores_;
};

}  // namespace bedplate::data
