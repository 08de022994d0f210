// The shared-memory trace between the processes of a job and the collector, as numbers.
//
// `bedplate run` makes one memfd and hands its path to the job in BEDPLATE_TRACE. A process that
// wants to tell something claims a slot and writes fixed records into the slot's ring; it never
// waits, a slow reader loses events and counts them. The memfd vanishes with its last user, so
// nothing is left behind whoever is killed. Little endian; times are nanoseconds of
// CLOCK_MONOTONIC. Writers: python/bedplate/hook, include/bedplate/trace.h. Reader:
// probe/trace_ring.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bedplate::probe {

constexpr char kTraceMagic[8] = {'B', 'E', 'D', 'P', 'T', 'R', 'C', '1'};

struct TraceHeader {  // at offset 0, padded to kTraceHeaderBytes
  char magic[8];
  std::uint32_t slot_count;
  std::uint32_t slot_bytes;
  std::uint32_t records_per_slot;  // a power of two
  std::uint32_t text_bytes;
  std::uint32_t first_slot_offset;
  std::uint32_t reserved;
  std::uint32_t next_hint;  // where the search for a free slot starts
};
constexpr std::size_t kTraceHeaderBytes = 4096;

enum class SlotState : std::uint32_t { kFree = 0, kClaimed = 1, kClosed = 2 };
enum class SlotRole : std::uint32_t { kMain = 1, kWorker = 2, kOther = 3 };

struct SlotHeader {  // 128 bytes, then text_bytes of text, then the records
  std::uint32_t state;
  std::uint32_t pid;  // as its owner sees it
  std::uint32_t ppid;
  std::int32_t rank;  // -1: unknown
  std::uint64_t claim_ns;
  std::uint64_t head;  // records ever written; published after the record
  std::uint64_t open_since_ns;
  std::uint32_t open_kind;  // what the owner is inside right now; 0: nothing that may block
  std::uint32_t open_arg;
  std::uint32_t text_used;  // published after the text
  std::uint32_t text_lost;
  std::int32_t world_size;
  std::int32_t local_rank;
  std::uint32_t role;
  std::uint32_t reserved;
  std::uint32_t stack_signal;  // a signal that makes the owner write its stacks to
                               // <run>/stacks/<pid>.txt; 0: none
  std::uint32_t padding[13];
};
static_assert(sizeof(SlotHeader) == 128);

struct TraceRecord {
  std::uint64_t t0_ns;
  std::uint64_t duration_ns;
  std::uint16_t kind;
  std::uint16_t sequence;  // low 16 bits of the record's number: tells a torn or stale record
  std::uint32_t tid;
  std::uint64_t arg;
};
static_assert(sizeof(TraceRecord) == 32);

enum class EventKind : std::uint16_t {
  kStep = 1,  // optimizer step done; arg: ordinal of the optimizer
  kOptimizer = 2,
  kInputWait = 3,  // arg bit 0: gradients off; bits 8…31: loader
  kBackward = 4,
  kCollective = 5,  // arg: op | async << 8 | sequence number << 16
  kDdpComm = 6,  // exposed communication inside the last backward; arg: all its communication, ns
  kCheckpoint = 7,  // arg: bytes, 0 unknown
  kGc = 8,          // arg: generation | collected << 8
  kFetch = 9,       // one batch made; arg: user µs | system µs << 32 of its thread
  kFiles = 10,      // arg: files opened since the last one
  kH2d = 11,
  kDeviceSync = 12,
  kUserPhase = 13,  // arg: phase id, its name is a note
  kUserStep = 14,   // bedplate.step(); takes precedence over kStep
  kBytes = 15,      // bytes of the preceding collective of the same thread
  kLoad = 16,       // torch.load
  kFsync = 17,
  kValidation = 18,
  kGpuPhase = 19,  // device time from polled CUDA events; arg: kind | ns << 8
  kData = 20,  // a counter of bedplate.data grew; arg: which of kDataCounters << 56 | by how much
};

// What bedplate.data counts, by the number in kData's argument. Of its loaders: bytes and samples
// that were read, time of making batches, of that of waiting for stores, processor time of checking
// and decoding, time in which the threads waited for the loop and the loop for them. Of its caches:
// ranges found and their bytes, of those from memory; blocks fetched and their bytes, blocks
// evicted, reads past the cache, waits for another's fetch. Of remote stores: reads, the sum of
// their latencies, bytes, attempts beyond the first, reads that failed.
constexpr std::string_view kDataCounters[] = {
    "trace.data_bytes",         "trace.data_samples",        "trace.data_make_ns",
    "trace.data_read_ns",       "trace.data_decode_ns",      "trace.data_idle_ns",
    "trace.data_wait_ns",       "trace.cache_hits",          "trace.cache_hit_bytes",
    "trace.cache_memory_bytes", "trace.cache_misses",        "trace.cache_origin_bytes",
    "trace.cache_evictions",    "trace.cache_pass_throughs", "trace.cache_waits",
    "trace.remote_reads",       "trace.remote_ns",           "trace.remote_bytes",
    "trace.remote_retries",     "trace.remote_failures"};

constexpr std::uint32_t kTraceSlots = 512;
constexpr std::uint32_t kTraceRecords = 8192;
constexpr std::uint32_t kTraceTextBytes = 16 * 1024;

}  // namespace bedplate::probe
