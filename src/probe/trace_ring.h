// The collector's end of the shared-memory trace (format: probe/trace_format.h).
//
//   TraceRing ring;                                     // makes the memfd; nothing of it is left when its last user is gone
//   environment["BEDPLATE_TRACE"] = ring.path();
//   ring.drain(visitor, started);                       // several times a second
//
// The memory is written by other programs and is taken for hostile: every field is checked against its range, nothing loops on
// what it reads, and a record that was torn or overwritten meanwhile is counted as lost and not delivered. A slot whose owner closed it
// or died is drained once more and given to the next claimer.
//
// Not thread-safe: one thread drains. Throws Error{kNoSpace | kUnsupported} at construction only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/unique_fd.h"
#include "probe/run_data.h"
#include "probe/trace_format.h"

namespace bedplate::probe {

struct TraceRingSizes {
  std::uint32_t slots = kTraceSlots;
  std::uint32_t records = kTraceRecords;  // a power of two
  std::uint32_t text_bytes = kTraceTextBytes;
};

// Whoever claimed a slot, as it says.
struct TraceOwner {
  int pid = 0;
  int ppid = 0;
  int rank = -1;
  int local_rank = -1;
  int world_size = 0;
  SlotRole role = SlotRole::kOther;
  int stack_signal = 0;  // 0: it writes no stacks on request
};

class TraceVisitor {
 public:
  virtual ~TraceVisitor() = default;
  virtual void events(const TraceOwner& owner, std::span<const Event> events) = 0;  // times are run time
  virtual void text(const TraceOwner& owner, std::string_view key, std::string_view value) = 0;
  virtual void gone(const TraceOwner& owner) = 0;  // closed or dead; nothing more comes from it
};

class TraceRing {
 public:
  explicit TraceRing(TraceRingSizes sizes = {});
  TraceRing(const TraceRing&) = delete;
  TraceRing& operator=(const TraceRing&) = delete;
  ~TraceRing();

  std::string path() const;  // "/proc/<our pid>/fd/<n>"

  // Hands out all that came since the last call. `started`: CLOCK_MONOTONIC of run time 0; `now` the same clock.
  void drain(TraceVisitor& visitor, Nanos started, Nanos now);

  std::int64_t received() const { return received_; }
  std::int64_t lost() const { return lost_; }

  // The fullest ring of the last drain, as a share of its records: above a half, drain more often.
  double fullness() const { return fullness_; }

  struct Inside {
    TraceOwner owner;
    EventKind kind;
    std::uint32_t arg;
    Nanos since;  // run time
  };
  // What each owner is inside of right now, only kinds that may block.
  std::vector<Inside> inside(Nanos started) const;

 private:
  struct Slot {
    bool claimed = false;
    TraceOwner owner;
    std::uint64_t claim_ns = 0;
    std::uint64_t next = 0;            // the first record not yet read
    std::uint32_t text_read = 0;
    std::int64_t process_start = -1;   // field 22 of /proc/PID/stat when first seen; -1: not seen there
    Nanos quiet_since = 0;             // CLOCK_MONOTONIC of the last sign of life
    Nanos looked = 0;                  // when its /proc entry was last looked at
  };

  void drain_slot(std::uint32_t number, TraceVisitor& visitor, Nanos started, Nanos now);
  bool read_records(Slot& slot, SlotHeader& header, std::vector<Event>& events, Nanos started);
  bool read_text(Slot& slot, SlotHeader& header, TraceVisitor& visitor);
  bool is_dead(Slot& slot, Nanos now) const;
  void lose(std::uint64_t count);

  SlotHeader& header(std::uint32_t number) const;

  TraceRingSizes sizes_;
  os::UniqueFd fd_;
  unsigned char* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t slot_bytes_ = 0;
  std::vector<Slot> slots_;
  std::int64_t received_ = 0;
  std::int64_t lost_ = 0;
  double fullness_ = 0;
};

}  // namespace bedplate::probe
