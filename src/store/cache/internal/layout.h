// The bytes of a cache's one file, as docs/cache.md tells them. All numbers little-endian.
//
//   Header | State | orders | origins | policies | entries | buckets | ghosts | blocks
//
// Slot i has a Policy, an Entry and `block_bytes` of room, and is sparse where it is not used. What
// a process finds here may be another user's, or torn by a power cut: entries and blocks carry
// checksums, and every number is checked before it is used.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/crc32c.h"
#include "store/cache/cache_counters.h"
#include "store/cache/internal/siphash.h"

namespace bedplate::store::cache {

static_assert(std::endian::native == std::endian::little);

constexpr char kFileName[] = "bedplate-cache-1";  // another layout has another name
constexpr char kMagic[8] = {'B', 'P', 'C', 'A', 'C', 'H', 'E', '1'};

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kStateAt = 4096;
constexpr std::uint64_t kOrdersAt = 2 * 4096;
constexpr std::uint64_t kOriginsAt = 3 * 4096;
constexpr int kOrders = 16;
constexpr int kOrigins = 64;
constexpr int kChunks = 16;  // checksums of a block
constexpr int kBucketCells = 16;
constexpr int kBucketsLooked = 3;  // a full bucket's blocks go into the next ones
constexpr int kGhostWays = 4;

// Written once.
struct Header {
  char magic[8];
  std::uint32_t layout;  // 1
  std::uint32_t block_bytes;
  std::uint64_t slots;  // at most
  std::uint64_t buckets;
  Hash128 key;  // of all hashes
  std::uint64_t policies_at;
  std::uint64_t entries_at;
  std::uint64_t buckets_at;
  std::uint64_t ghosts_at;
  std::uint64_t blocks_at;
  std::uint32_t zero;
  std::uint32_t crc;  // of what is before
};
static_assert(sizeof(Header) == 96);

// Changed only by who holds the lock.
struct State {
  std::uint64_t changing;  // not 0: whoever held the lock has died; the index is made anew
  std::int64_t cap_bytes;
  std::int64_t used_bytes;   // on disk, of all slots
  std::int64_t small_bytes;  // of them: of S3-FIFO's small queue
  std::uint64_t high_water;  // slots from here on were never used
  std::uint64_t free_slots;  // below it
  std::uint64_t sequence;    // of the last change of an entry or a queue
  std::uint64_t ghosts;      // how many blocks were ever remembered there
  char boot[40];             // of the machine: after a power cut the index is made anew
  CacheCounters counters;    // of all processes
  std::uint32_t zero;
  std::uint32_t crc;  // of what is before
};
static_assert(sizeof(State) <= 512);

struct Order {
  std::uint64_t id;       // 0: unused
  std::int64_t position;  // what was told last
  std::int64_t seen;      // CLOCK_REALTIME
};

struct Origin {
  std::uint64_t hash;
  std::uint32_t length;
  std::uint32_t crc;  // of the text
  char url[496];
};
static_assert(sizeof(Origin) == 512);

enum class Queue : std::uint8_t { kFree = 0, kFilling = 1, kSmall = 2, kMain = 3 };

struct Policy {
  // Changed by readers, without the lock: a lost change costs a better guess, no more.
  std::int64_t next_use;  // a position in `order`
  std::uint64_t order;    // 0: not known
  std::uint8_t uses;      // S3-FIFO's frequency, 0 to 3
  // Under the lock.
  Queue queue;
  std::uint16_t zero;
  std::uint32_t disk_bytes;
  std::uint64_t since;  // State::sequence when it entered its queue
};
static_assert(sizeof(Policy) == 32 && offsetof(Policy, uses) == 16);

struct BlockName {
  Hash128 object = {};       // of the origin's URL, key and version
  std::uint64_t origin = 0;  // of the URL
  std::uint64_t key = 0;     // of the URL and key
  std::uint32_t number = 0;  // of the block in the object
  std::uint32_t zero = 0;

  auto operator<=>(const BlockName&) const = default;
  std::uint64_t hash() const {
    std::uint64_t h = object[0] ^ (number + 1) * 0x9e3779b97f4a7c15U;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93U;
    return h ^ h >> 32;
  }
};
static_assert(sizeof(BlockName) == 40);

struct Entry {
  BlockName name;
  std::uint64_t generation;  // State::sequence when it was written; no two are the same
  std::uint32_t whole;       // 1: there is a block
  std::uint32_t bytes;
  std::array<std::uint32_t, kChunks> sums;  // of each block_bytes / kChunks
  std::uint32_t zero;
  std::uint32_t crc;  // of what is before
};
static_assert(sizeof(Entry) == 128);

struct Cell {
  std::uint32_t slot;  // + 1; 0: empty
  std::uint32_t tag;
};
using Bucket = std::array<Cell, kBucketCells>;

struct Ghost {
  std::uint32_t tag;
  std::uint32_t number;  // State::ghosts when it left, its lower bits
};
using GhostSet = std::array<Ghost, kGhostWays>;

template <typename T>
std::span<const std::byte> raw(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
std::span<std::byte> raw_writable(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}
// Of a structure that ends in its own checksum.
template <typename T>
std::uint32_t crc_of(const T& value) {
  return crc32c(raw(value).first(sizeof value - sizeof(std::uint32_t)));
}
constexpr std::uint64_t rounded_up(std::uint64_t at, std::uint64_t to) {
  return (at + to - 1) / to * to;
}

}  // namespace bedplate::store::cache
