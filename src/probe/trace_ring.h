// The collector's end of the shared-memory trace (format: probe/trace_format.h).
//
//   TraceRing ring;                          // makes the memfd, gone with its last user
//   environment["BEDPLATE_TRACE"] = ring.path();
//   ring.drain(visitor, started, now);       // several times a second
//
// The memory is written by other programs and is taken for hostile: it is only ever copied out (by
// pread, so that nothing of it counts as ours and no page of it is made by looking), every field is
// checked, nothing loops on what it reads. A record that was torn, overwritten meanwhile, or whose
// times cannot be is counted as lost. A slot whose owner closed it or died is drained once more,
// wiped and free for the next claimer; its memory goes back to the system.
//
// Not thread-safe: one thread drains. Throws Error{kNoSpace | kUnsupported} at construction only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/host_root.h"
#include "os/unique_fd.h"
#include "probe/run_data.h"
#include "probe/trace_format.h"

namespace bedplate::probe {

struct TraceRingSizes {
  std::uint32_t slots = kTraceSlots;      // fewer when the file size limit (ulimit -f) says so
  std::uint32_t records = kTraceRecords;  // a power of two
  std::uint32_t text_bytes = kTraceTextBytes;
};

// Whoever claimed a slot, as it says.
struct TraceOwner {
  int pid = 0;        // as /proc numbers it here, where that could be found out
  bool here = false;  // it could
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
  // Times are run time; no event ends later than now, none is longer than a month.
  virtual void events(const TraceOwner& owner, std::span<const Event> events) = 0;
  virtual void text(const TraceOwner& owner, std::string_view key, std::string_view value) = 0;
  // Closed or dead: nothing more comes from it.
  virtual void gone(const TraceOwner& owner) = 0;
};

// A process of the job by its number in its own PID namespace.
struct PidAnswer {
  enum class Kind {
    kFound,    // `pid` is its number here
    kUnknown,  // not known, and some of the job's processes live in other namespaces
    kOurs,     // not known, and none does: the number means here what it means there
  };
  Kind kind = Kind::kOurs;
  int pid = 0;
};
using PidFinder = std::function<PidAnswer(int pid, int ppid)>;

class TraceRing {
 public:
  explicit TraceRing(TraceRingSizes sizes = {}, PidFinder find_pid = {});
  TraceRing(const TraceRing&) = delete;
  TraceRing& operator=(const TraceRing&) = delete;

  std::string path() const;  // "/proc/<our pid>/fd/<n>"

  // Hands out all that came since the last call. `started`: CLOCK_MONOTONIC of run time 0; `now`
  // the same clock.
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
  // What each owner is inside of right now, only kinds that may block; longest first.
  std::vector<Inside> inside(Nanos started) const;

 private:
  struct Slot {
    TraceOwner owner;
    bool claimed = false;
    bool resolved = false;  // owner.pid is a process of ours, started at process_start
    int pid_inside = 0;
    std::uint64_t claim_ns = 0;
    std::uint64_t next = 0;        // the first record not yet read
    std::uint64_t waited_for = 0;  // records before this one had their second chance
    std::uint32_t text_read = 0;
    std::int64_t process_start = -1;  // field 22 of /proc/PID/stat
    int looks = 0;                    // at /proc, without finding it
    Nanos looked = 0;
    Nanos quiet_since = 0;  // CLOCK_MONOTONIC of the last sign of life
  };
  enum class Last { kNo, kYes };

  void scan_for_claims(Nanos now);
  void look_at(std::uint32_t number, Nanos now);
  void drain_slot(std::uint32_t number, TraceVisitor& visitor, Nanos started, Nanos now);
  bool read_records(std::uint32_t number, std::uint64_t head, Last last, Nanos started, Nanos now);
  bool read_text(std::uint32_t number, std::uint32_t used, TraceVisitor& visitor);
  void resolve(Slot& slot);
  bool is_dead(Slot& slot, Nanos now);
  void free_slot(std::uint32_t number);
  void lose(std::uint64_t count);

  bool read(void* out, std::size_t bytes, std::uint64_t offset) const;
  std::uint64_t offset_of(std::uint32_t number) const;

  TraceRingSizes sizes_;
  PidFinder find_pid_;
  os::HostRoot host_;
  os::UniqueFd fd_;
  std::uint64_t slot_bytes_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> claimed_;  // numbers of slots in use
  std::uint32_t hint_ = 0;
  int drains_ = 0;
  std::int64_t received_ = 0;
  std::int64_t lost_ = 0;
  double fullness_ = 0;
  std::vector<TraceRecord> copy_;
  std::vector<Event> events_;
  std::string text_;
};

}  // namespace bedplate::probe
