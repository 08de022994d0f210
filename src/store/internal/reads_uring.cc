// io_uring: one system call for many reads, and a queue as deep as the disk wants it. One ring a
// thread.
#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/error.h"
#include "store/internal/read_engine.h"

namespace bedplate::store {
namespace {

constexpr unsigned kEntries = 128;
constexpr std::size_t kMostBytes = 1U << 30;  // of one read; the kernel takes less than 2 GiB

class Ring {
 public:
  static std::unique_ptr<Ring> make() {
    auto ring = std::unique_ptr<Ring>(new Ring);
    return ring->ready_ ? std::move(ring) : nullptr;
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  // In a child it gives back the child's own mapping and descriptor; the parent's stay.
  ~Ring() {
    if (ready_) io_uring_queue_exit(&ring_);
  }

  bool of_this_process() const { return process_ == ::getpid(); }
  void read(std::span<RangeRead> reads, unsigned depth, Deadline deadline);

 private:
  Ring() : process_(::getpid()), ready_(io_uring_queue_init(kEntries, &ring_, 0) == 0) {}

  void submit(RangeRead& read);

  io_uring ring_{};
  pid_t process_;
  bool ready_;
};

void Ring::submit(RangeRead& read) {
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
  BEDPLATE_CHECK(entry != nullptr);  // never more in flight than there are entries
  const std::span<std::byte> left = read.into.subspan(read.got);
  io_uring_prep_read(entry, read.fd, left.data(),
                     static_cast<unsigned>(std::min(left.size(), kMostBytes)),
                     static_cast<__u64>(read.offset) + read.got);
  io_uring_sqe_set_data(entry, &read);
}

// Takes what the kernel said; true when the read is at its end, well or not.
bool finishes(RangeRead& read, int result) {
  if (result == -EINTR || result == -EAGAIN) return false;
  if (result <= 0) {
    read.error = result < 0 ? -result : kEndOfFile;
    return true;
  }
  read.got += static_cast<std::size_t>(result);
  return read.got == read.into.size();
}

void Ring::read(std::span<RangeRead> reads, unsigned depth, Deadline deadline) {
  std::size_t next = 0;
  unsigned in_flight = 0;
  while (next < reads.size() || in_flight > 0) {
    const bool late = next < reads.size() && deadline.passed();
    for (; next < reads.size() && (late || in_flight < depth); ++next) {
      RangeRead& one = reads[next];
      one.error = late ? ETIMEDOUT : 0;
      one.got = 0;
      if (late || one.into.empty()) continue;
      submit(one);
      ++in_flight;
    }
    if (in_flight == 0) continue;
    const int submitted = io_uring_submit_and_wait(&ring_, 1);
    BEDPLATE_CHECK(submitted >= 0 || submitted == -EINTR || submitted == -EAGAIN ||
                   submitted == -EBUSY);
    io_uring_cqe* done[kEntries];
    const unsigned count = io_uring_peek_batch_cqe(&ring_, done, kEntries);
    for (unsigned i = 0; i < count; ++i) {
      auto& one = *static_cast<RangeRead*>(io_uring_cqe_get_data(done[i]));
      if (finishes(one, done[i]->res)) {
        --in_flight;
      } else {
        submit(one);
      }
    }
    io_uring_cq_advance(&ring_, count);
  }
}

Ring* ring_of_this_thread() {
  thread_local std::unique_ptr<Ring> ring;
  if (!ring || !ring->of_this_process()) {
    ring.reset();
    ring = Ring::make();
  }
  return ring.get();
}

void read(std::span<RangeRead> reads, int depth, Deadline deadline) {
  Ring* const ring = ring_of_this_thread();
  if (ring == nullptr) {
    // It worked once (works()): what is short now is descriptors or locked memory.
    for (RangeRead& one : reads) one.error = EMFILE;
    return;
  }
  ring->read(reads, std::min(static_cast<unsigned>(std::max(depth, 1)), kEntries), deadline);
}

bool works() {
  static const bool answer = [] {
    io_uring ring{};
    if (io_uring_queue_init(2, &ring, 0) != 0) return false;
    io_uring_queue_exit(&ring);
    return true;
  }();
  return answer;
}

}  // namespace

extern const ReadEngine kUringReads = {.name = "io_uring", .works = works, .read = read};

}  // namespace bedplate::store
