// Many ranges of open files at once.
//
//   RangeRead reads[] = {{fd, 0, first}, {fd, 4096, second}};
//   best_read_engine().read(reads, depth, deadline);
//   if (reads[0].error != 0) throw errno_error(reads[0].error, …);
//
// Thread-safe; each thread has queues of its own, and a child after fork() makes new ones. A read
// that the kernel has accepted is waited for however long it takes, because its memory belongs to
// the kernel until then: a hard-mounted NFS whose server is gone ends no read, and no deadline of
// ours can change that. What had not begun by the deadline fails with ETIMEDOUT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/deadline.h"

namespace bedplate::store {

struct RangeRead {
  int fd = -1;
  std::int64_t offset = 0;
  std::span<std::byte> into;
  int error = 0;        // out: 0, an errno, or kEndOfFile
  std::size_t got = 0;  // out: bytes that were read, fewer than asked for only with an error
};
constexpr int kEndOfFile = -1;  // the file ended before `into` was full

struct ReadEngine {
  std::string_view name;
  bool (*works)();  // on this kernel and for this user; the answer is remembered
  // At most `depth` are in flight at once.
  void (*read)(std::span<RangeRead> reads, int depth, Deadline deadline);
};

// Best first.
std::span<const ReadEngine* const> all_read_engines();
// The first that works; BEDPLATE_READ_ENGINE names another one (Error{kInvalid} when it does not
// exist, kUnsupported when it does not work here).
const ReadEngine& best_read_engine();

}  // namespace bedplate::store
