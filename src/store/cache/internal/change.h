// A change of a cache's index, by one process at a time.
//
//   Change change(file, local, deadline);        // has the lock; mends what a dead one left behind
//   if (const auto place = change.reserve(name, bytes, use)) …
//   change.commit();                             // without: the next who comes mends the index
//
// Errors: Error{kTimeout} when another process keeps the lock; those of CacheFile.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/patient_mutex.h"
#include "store/cache/internal/cache_file.h"
#include "store/cache/internal/claims.h"
#include "store/cache/internal/layout.h"
#include "store/cache/internal/victims.h"

namespace bedplate::store::cache {

struct Found {
  std::uint64_t slot = 0;
  Entry entry;
};
// Needs no lock: an entry that is being changed is not found.
std::optional<Found> look_up(const CacheFile& file, const BlockName& name);

// When a block is used next, as far as anybody knows.
struct Use {
  std::uint64_t order = 0;
  std::int64_t next = 0;
};

// What a process needs to change the index, beside the file.
struct LocalState {
  PatientMutex mutex;  // the process's threads among themselves
  Claims filling;      // slots
  Victims victims;

  LocalState() {
    victims.filled_here = [this](std::uint64_t slot) { return filling.held(slot); };
  }
};

class Change {
 public:
  Change(const CacheFile& file, LocalState& local, Deadline deadline);
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  ~Change();

  const State& state() const { return state_; }
  // What this change evicted and filled, for the caller to count.
  const CacheCounters& made() const { return made_; }
  void add(const CacheCounters& counters) { state_.counters += counters; }

  // Room for a block, taken from others if it must be; nullopt when there is none or when they are
  // worth more. The slot is ours until publish() or give_back().
  struct Place {
    std::uint64_t slot = 0;
    std::uint64_t generation = 0;
  };
  std::optional<Place> reserve(const BlockName& name, std::uint32_t bytes, const Use& use);
  // The block's bytes are there. Its generation; 0 when another one has brought it.
  std::uint64_t publish(const Place& place, const Entry& filled, const Use& use);
  void give_back(const Place& place);

  // Takes a block out, if it is still of this generation.
  void forget(std::uint64_t slot, std::uint64_t generation);
  void set_cap(std::int64_t bytes);
  void note_order(std::uint64_t order, std::int64_t position);
  void note_origin(std::uint64_t hash, const std::string& url);

  void commit();

 private:
  enum class Room { kKeep, kGiveBack };

  void begin();
  void mend();
  // After a power cut what lies in a free slot is not known.
  enum class After { kCrash, kPowerCut };
  void collect_blocks(After after);
  bool boot_is_ours() const;
  void release(std::uint64_t slot, Room room);
  void add_cell(const BlockName& name, std::uint64_t slot);
  void remove_cell(const BlockName& name, std::uint64_t slot);
  bool was_here(const BlockName& name) const;
  void remember(const BlockName& name);
  std::int64_t budget() const {
    return state_.cap_bytes - static_cast<std::int64_t>(file_.header().blocks_at);
  }

  const CacheFile& file_;
  LocalState& local_;
  std::unique_lock<PatientMutex> threads_;
  State state_{};
  CacheCounters made_;
  bool begun_ = false;
  std::optional<LiveOrders> orders_;
};

const std::string& boot_of_this_machine();
// Error{kCorrupt} when it is damaged (or being written, to one who has no lock).
State state_of(const CacheFile& file);

}  // namespace bedplate::store::cache
