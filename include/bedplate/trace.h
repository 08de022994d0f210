// bedplate/trace.h: a C++ trainer tells `bedplate run` about its steps. One header, nothing to
// link.
//
//   #include <bedplate/trace.h>
//
//   bedplate::trace::rank(my_rank, world_size);
//   while (training) {
//     { bedplate::trace::Phase phase("forward"); forward(); }
//     optimizer_step();
//     bedplate::trace::step();
//   }
//
// Under `bedplate run` each call writes one 32-byte record into shared memory (about 0.1 us);
// anywhere else it is one load and one branch. Nothing blocks, allocates after the first use of a
// name, throws, or prints: when the shared memory cannot be used, the functions do nothing.
//
// Any thread may call. A fork child gets a slot of its own at its first call (a child made by a raw
// clone() system call must not call at all). A libc older than 2.34 needs -pthread. C++11; Linux
// only, elsewhere everything is a no-op. The format is trace protocol 1, shared with the Python
// hook.
#pragma once

#if defined(__linux__)

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

namespace bedplate {
namespace trace {
namespace detail {

enum : std::uint16_t { kPhase = 13, kUserStep = 14, kValidation = 18 };
enum : std::uint32_t { kFree = 0, kClaimed = 1 };
enum : std::uint32_t { kRoleRank = 1, kRoleOther = 3 };
enum : std::size_t {
  kSlotHeaderBytes = 128,
  kRecordBytes = 32,
  kMaxNames = 256,
  kMaxNameBytes = 200
};

// Offsets inside a slot's header.
enum : std::size_t {
  kState = 0,
  kPid = 4,
  kParentPid = 8,
  kRank = 12,
  kClaimTime = 16,
  kHead = 24,
  kTextUsed = 48,
  kTextLost = 52,
  kWorldSize = 56,
  kLocalRank = 60,
  kRole = 64,
};

inline std::uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000000u + static_cast<std::uint64_t>(t.tv_nsec);
}

// What BEDPLATE_TRACE points to says about itself, at byte 8.
struct Layout {
  std::uint32_t slots, slot_bytes, records, text_bytes, first_slot;

  bool sane() const {
    return slots && records && (records & (records - 1)) == 0 && first_slot >= 4096 &&
           ((slot_bytes | text_bytes | first_slot) & 7) == 0 &&
           slot_bytes >= kSlotHeaderBytes + text_bytes + std::uint64_t(records) * kRecordBytes;
  }
};

// One claimed slot. Never destroyed: the collector frees the slot of a dead process.
struct Writer {
  unsigned char* slot = nullptr;  // nullptr: off, every call returns at once
  void* mapping = nullptr;
  std::size_t mapping_bytes = 0;
  std::uint32_t text_bytes = 0;
  std::uint64_t mask = 0;
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> text_busy{false};
  std::atomic<const char*> name[kMaxNames] = {};

  template <class T>
  T* at(std::size_t offset) {
    return reinterpret_cast<T*>(slot + offset);
  }

  void emit(std::uint16_t kind, std::uint64_t t0, std::uint64_t duration, std::uint32_t thread,
            std::uint64_t arg) {
    const std::uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
    std::uint64_t* record =
        at<std::uint64_t>(kSlotHeaderBytes + text_bytes + (number & mask) * kRecordBytes);
    __atomic_store_n(record, t0, __ATOMIC_RELAXED);
    __atomic_store_n(record + 1, duration, __ATOMIC_RELAXED);
    __atomic_store_n(record + 3, arg, __ATOMIC_RELAXED);
    // The word with the sequence goes last: a reader that finds it finds the rest.
    const std::uint64_t label = kind | (number & 0xffff) << 16 | std::uint64_t(thread) << 32;
    __atomic_store_n(record + 2, label, __ATOMIC_RELEASE);
    // Threads may finish out of order; the head only moves forward.
    std::uint64_t* head = at<std::uint64_t>(kHead);
    std::uint64_t seen = __atomic_load_n(head, __ATOMIC_RELAXED);
    while (seen < number + 1 && !__atomic_compare_exchange_n(head, &seen, number + 1, true,
                                                             __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
  }

  // Appends "key\tvalue\n"; the caller has escaped the value. Called with text_busy held.
  void append_text(const char* key, const char* value) {
    const std::size_t key_bytes = std::strlen(key), value_bytes = std::strlen(value);
    const std::size_t bytes = key_bytes + value_bytes + 2;
    const std::uint32_t used = *at<std::uint32_t>(kTextUsed);
    if (used + bytes > text_bytes) {
      __atomic_fetch_add(at<std::uint32_t>(kTextLost), 1, __ATOMIC_RELAXED);
      return;
    }
    char* out = at<char>(kSlotHeaderBytes + used);
    std::memcpy(out, key, key_bytes);
    out[key_bytes] = '\t';
    std::memcpy(out + key_bytes + 1, value, value_bytes);
    out[bytes - 1] = '\n';
    __atomic_store_n(at<std::uint32_t>(kTextUsed), used + static_cast<std::uint32_t>(bytes),
                     __ATOMIC_RELEASE);
  }

  // The number of a phase's name, from 1, announced at first use; 0 when there are too many.
  std::uint32_t name_number(const char* wanted);
  void announce(std::uint32_t number, const char* text);
};

struct Process {
  std::atomic<Writer*> writer;            // nullptr: not tried yet
  std::atomic<std::uint32_t> generation;  // counts forks, so that cached thread ids are renewed
};

inline Process& process() {
  static Process it{{nullptr}, {1}};
  return it;
}

// The writer that does nothing, for "tried and failed" and "another thread is claiming".
inline Writer* off() {
  static Writer it;
  return &it;
}

inline std::uint32_t thread_id() {
  static thread_local std::uint32_t cached = 0, cached_generation = 0;
  const std::uint32_t generation = process().generation.load(std::memory_order_relaxed);
  if (cached_generation != generation) {
    cached = static_cast<std::uint32_t>(syscall(SYS_gettid));
    cached_generation = generation;
  }
  return cached;
}

inline void forget_in_fork_child() {
  // The slot is the parent's. The Writer itself is leaked: another thread of the parent may have
  // been in the middle of it.
  Writer* old = process().writer.exchange(nullptr);
  if (old && old->mapping) munmap(old->mapping, old->mapping_bytes);
  process().generation.fetch_add(1);
}

inline int number_from_environment(const char* const* names) {
  for (; *names; ++names) {
    const char* text = std::getenv(*names);
    if (!text || !*text || std::strlen(text) > 9) continue;
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end == '\0' && value >= 0) return static_cast<int>(value);
  }
  return -1;
}

// Sets or releases the POSIX lock on byte 0 under which slots are claimed; 50 ms of patience.
inline bool lock_first_byte(int file, short type) {
  struct flock lock;
  std::memset(&lock, 0, sizeof lock);
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_len = 1;
  for (int attempt = 0; attempt < 50; ++attempt) {
    if (fcntl(file, F_SETLK, &lock) == 0) return true;
    const timespec pause = {0, 1000000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

// Finds a free slot and fills in its header; its offset, or 0.
inline off_t take_free_slot(int file, const Layout& layout) {
  static const char* const kRanks[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                       nullptr};
  static const char* const kWorlds[] = {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE",
                                        "PMI_SIZE", nullptr};
  static const char* const kLocals[] = {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "MPI_LOCALRANKID", nullptr};
  std::uint32_t hint = 0;
  if (pread(file, &hint, sizeof hint, 32) != sizeof hint) return 0;
  for (std::uint32_t step = 0; step < layout.slots; ++step) {
    const std::uint32_t index = (hint % layout.slots + step) % layout.slots;
    const off_t offset = static_cast<off_t>(layout.first_slot) + off_t(index) * layout.slot_bytes;
    std::uint32_t state = kClaimed;
    if (pread(file, &state, sizeof state, offset) != sizeof state || state != kFree) continue;

    unsigned char header[kSlotHeaderBytes] = {};
    const auto put32 = [&](std::size_t where, std::int32_t value) {
      std::memcpy(header + where, &value, 4);
    };
    const std::uint64_t time = now();
    put32(kPid, getpid());
    put32(kParentPid, getppid());
    put32(kRank, number_from_environment(kRanks));
    std::memcpy(header + kClaimTime, &time, sizeof time);
    put32(kWorldSize, number_from_environment(kWorlds));
    put32(kLocalRank, number_from_environment(kLocals));
    put32(kRole, kRoleOther);
    const std::uint32_t next = (index + 1) % layout.slots, claimed = kClaimed;
    if (pwrite(file, header, sizeof header, offset) != static_cast<ssize_t>(sizeof header) ||
        pwrite(file, &next, sizeof next, 32) != static_cast<ssize_t>(sizeof next) ||
        pwrite(file, &claimed, sizeof claimed, offset) != static_cast<ssize_t>(sizeof claimed)) {
      return 0;
    }
    return offset;
  }
  return 0;
}

inline Writer* map_slot(int file, off_t offset, const Layout& layout) {
  const off_t page = sysconf(_SC_PAGESIZE);
  const off_t start = offset - offset % page;
  const std::size_t bytes = static_cast<std::size_t>(offset - start) + layout.slot_bytes;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, start);
  if (memory == MAP_FAILED) return nullptr;
  Writer* writer = new (std::nothrow) Writer;
  if (!writer) return nullptr;
  writer->mapping = memory;
  writer->mapping_bytes = bytes;
  writer->slot = static_cast<unsigned char*>(memory) + (offset - start);
  writer->text_bytes = layout.text_bytes;
  writer->mask = layout.records - 1;
  writer->append_text("hooks", "trace.h");
  return writer;
}

inline Writer* claim_slot(const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  Writer* writer = nullptr;
  char magic[8];
  Layout layout;
  if (pread(file, magic, sizeof magic, 0) == sizeof magic &&
      std::memcmp(magic, "BEDPTRC1", 8) == 0 &&
      pread(file, &layout, sizeof layout, 8) == static_cast<ssize_t>(sizeof layout) &&
      layout.sane() && lock_first_byte(file, F_WRLCK)) {
    const off_t offset = take_free_slot(file, layout);
    lock_first_byte(file, F_UNLCK);
    if (offset) writer = map_slot(file, offset, layout);
  }
  close(file);
  return writer;
}

// The writer of this process; the first caller claims, and whoever comes meanwhile is not kept
// waiting.
inline Writer* writer() {
  std::atomic<Writer*>& known = process().writer;
  Writer* it = known.load(std::memory_order_acquire);
  if (it) return it;
  if (!known.compare_exchange_strong(it, off())) return it;
  const char* path = std::getenv("BEDPLATE_TRACE");
  it = path && *path ? claim_slot(path) : nullptr;
  if (!it) return off();
  static const int registered = pthread_atfork(nullptr, nullptr, forget_in_fork_child);
  if (registered != 0) return off();  // a fork would write into our slot: rather no events at all
  known.store(it, std::memory_order_release);
  return it;
}

inline std::uint32_t Writer::name_number(const char* wanted) {
  for (std::uint32_t i = 0; i < kMaxNames; ++i) {
    const char* known = name[i].load(std::memory_order_acquire);
    if (!known) {
      const char* copy = strdup(wanted);
      if (!copy) return 0;
      if (name[i].compare_exchange_strong(known, copy, std::memory_order_acq_rel)) {
        announce(i + 1, copy);
        return i + 1;
      }
      std::free(const_cast<char*>(copy));  // another thread was first, perhaps with the same name
    }
    if (std::strcmp(known, wanted) == 0) return i + 1;
  }
  return 0;
}

inline void Writer::announce(std::uint32_t number, const char* text) {
  // {"id":N,"name":"..."} with what JSON and the text lines would stumble over left out.
  char line[kMaxNameBytes + 48];
  int used =
      std::snprintf(line, sizeof line, "{\"id\":%u,\"name\":\"", static_cast<unsigned>(number));
  for (std::size_t i = 0; text[i] && i < kMaxNameBytes; ++i) {
    const unsigned char letter = static_cast<unsigned char>(text[i]);
    const bool plain = letter >= 0x20 && letter < 0x7f && letter != '"' && letter != '\\';
    line[used++] = plain ? text[i] : '?';
  }
  std::memcpy(line + used, "\"}", 3);
  // One writer of text at a time. Whoever holds it is done in a microsecond, unless it is
  // preempted: then this one line is given up rather than waited for.
  for (int attempt = 0; attempt < 200; ++attempt) {
    if (!text_busy.exchange(true, std::memory_order_acquire)) {
      append_text("phase_name", line);
      text_busy.store(false, std::memory_order_release);
      return;
    }
    sched_yield();
  }
  __atomic_fetch_add(at<std::uint32_t>(kTextLost), 1, __ATOMIC_RELAXED);
}

}  // namespace detail

// True when events of this process are being recorded.
inline bool active() { return detail::writer()->slot != nullptr; }

// Ends a step. It takes precedence over optimizer steps that the Python hook sees in the same
// process.
inline void step() {
  detail::Writer* writer = detail::writer();
  if (!writer->slot) return;
  __atomic_store_n(writer->at<std::uint32_t>(detail::kRole), detail::kRoleRank, __ATOMIC_RELAXED);
  writer->emit(detail::kUserStep, detail::now(), 0, detail::thread_id(), 0);
}

// Says which rank this process is. Not needed where RANK, SLURM_PROCID or OMPI_COMM_WORLD_RANK is
// set.
inline void rank(int rank, int world_size = -1, int local_rank = -1) {
  detail::Writer* writer = detail::writer();
  if (!writer->slot) return;
  __atomic_store_n(writer->at<std::int32_t>(detail::kRank), rank, __ATOMIC_RELAXED);
  if (world_size >= 0) {
    __atomic_store_n(writer->at<std::int32_t>(detail::kWorldSize), world_size, __ATOMIC_RELAXED);
  }
  if (local_rank >= 0) {
    __atomic_store_n(writer->at<std::int32_t>(detail::kLocalRank), local_rank, __ATOMIC_RELAXED);
  }
  __atomic_store_n(writer->at<std::uint32_t>(detail::kRole), detail::kRoleRank, __ATOMIC_RELAXED);
}

// Times the scope it lives in. `name` must outlive the object; at most 256 different names a
// process, non-ASCII letters show as '?'. "validation" and "eval" are known to the report as
// evaluation.
class Phase {
 public:
  explicit Phase(const char* name) : name_(name), began_(active() ? detail::now() : 0) {}
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;
  ~Phase() {
    if (!began_) return;
    detail::Writer* writer = detail::writer();
    if (!writer->slot) return;
    const bool validation =
        std::strcmp(name_, "validation") == 0 || std::strcmp(name_, "eval") == 0;
    const std::uint64_t ended = detail::now();
    writer->emit(validation ? detail::kValidation : detail::kPhase, began_, ended - began_,
                 detail::thread_id(), writer->name_number(name_));
  }

 private:
  const char* name_;
  std::uint64_t began_;
};

}  // namespace trace
}  // namespace bedplate

#else  // not Linux: the same names, no effect

namespace bedplate {
namespace trace {

inline bool active() { return false; }
inline void step() {}
inline void rank(int, int = -1, int = -1) {}

class Phase {
 public:
  explicit Phase(const char*) {}
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;
  ~Phase() {}
};

}  // namespace trace
}  // namespace bedplate

#endif
