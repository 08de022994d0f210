// One tier of a cache: blocks in the file of one folder, on a disk or in /dev/shm.
//
//   BlockFile tier(CacheFile::open(folder, options), options);
//   tier.read(pieces, deadline);                  // those that are there are done
//   if (tier.try_claim(name)) { fetch …; tier.keep(fills, deadline); tier.release(name); }
//
// A piece is done only if its block was there from before it was read until after, and with its
// checksum: this process has checked each part of a block once. Belongs to one process;
// thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/deadline.h"
#include "store/cache/cache_counters.h"
#include "store/cache/internal/cache_file.h"
#include "store/cache/internal/change.h"
#include "store/cache/internal/claims.h"
#include "store/cache/internal/layout.h"
#include "store/internal/read_engine.h"

namespace bedplate::store::cache {

// A range within one block.
struct Piece {
  BlockName name;
  std::uint32_t offset = 0;
  std::span<std::byte> into;
  Use use = {};
  // Out:
  bool done = false;
  bool used_before = false;        // and not just now
  std::uint32_t block_length = 0;  // of the whole block
};

struct Fill {
  BlockName name;
  std::span<const std::byte> bytes;  // the whole block
  Use use;
};

class BlockFile {
 public:
  enum class Kind { kMemory, kDisk };
  // Gives the folder the cap of `options`, if there is one. Errors of Change.
  BlockFile(std::unique_ptr<CacheFile> file, const CacheOptions& options, Kind kind);

  const CacheFile& file() const { return *file_; }
  bool in_memory() const { return kind_ == Kind::kMemory; }
  std::int64_t block_bytes() const { return file_->header().block_bytes; }
  std::int64_t room() const { return room_.load(std::memory_order_relaxed); }  // of all blocks

  // Counts hits and bad checksums. Throws nothing: what cannot be read is not done.
  void read(std::span<Piece* const> pieces, Deadline deadline, CacheCounters& counters);
  bool has(const BlockName& name) const;
  // It is there no more, for any process. Where that cannot be written down: nothing happens.
  void drop(const BlockName& name, Deadline deadline);

  // Those that are worth their place. Errors of Change and of writing.
  void keep(std::span<const Fill> fills, Deadline deadline, CacheCounters& counters);
  // False for a while after one was not worth its place: there is none for what is not needed yet.
  bool keeps_all() const { return kept_since_refusal_ >= kManyKept; }

  // Whoever holds it fetches the block; a dead process holds nothing.
  bool try_claim(const BlockName& name);
  void release(const BlockName& name);
  // For so long, or until it is given back here; of other processes nothing is heard.
  void wait(const BlockName& name, Nanos most);

  void note_order(std::uint64_t order, std::int64_t position);
  void note_origin(std::uint64_t hash, const std::string& url);
  void add(const CacheCounters& counters, Deadline deadline);

 private:
  // What this process knows of a block.
  struct Known {
    std::uint64_t slot = 0;
    std::uint64_t generation = 0;
    std::uint32_t bytes = 0;
    std::uint32_t checked = 0;  // a bit a chunk
    std::uint64_t last_read = 0;
    Use use;
    std::array<std::uint32_t, kChunks> sums{};
  };
  struct NameHash {
    std::size_t operator()(const BlockName& name) const { return name.hash(); }
  };
  struct Shard {
    std::mutex mutex;
    std::unordered_map<BlockName, Known, NameHash> known;
  };
  struct Job;

  Shard& shard_of(const BlockName& name) { return shards_[name.hash() >> 8 & (kShards - 1)]; }
  std::optional<Known> know(const BlockName& name);
  void update(const BlockName& name, const Known& known);
  void forget(const BlockName& name);
  void read_some(std::span<Piece* const> pieces, Deadline deadline, CacheCounters& counters);
  std::optional<Job> prepare(Piece& piece);
  void finish(Job& job, Deadline deadline, CacheCounters& counters);
  bool checks_out(Job& job);
  void note_use(Job& job);
  void abandon(std::span<const Change::Place> places);

  static constexpr std::size_t kShards = 16;
  std::unique_ptr<CacheFile> file_;
  const Kind kind_;
  const std::uint32_t chunk_;
  LocalState local_;
  Claims fetching_;
  static constexpr int kManyKept = 256;
  std::atomic<int> kept_since_refusal_ = kManyKept;
  std::atomic<std::int64_t> room_{0};
  std::atomic<std::uint64_t> reads_{0};
  std::array<Shard, kShards> shards_;
};

}  // namespace bedplate::store::cache
