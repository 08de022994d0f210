#include "store/cache/internal/block_file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"

namespace bedplate::store::cache {
namespace {

constexpr std::size_t kPiecesAtOnce = 256;
constexpr std::size_t kScratchAtOnce = 16 << 20;
constexpr int kDepth = 32;
constexpr std::size_t kKnownOfShard = 8192;
// Reads of one block with fewer reads of others between them are one use: the samples of a block in
// one pass over it.
constexpr std::uint64_t kReadsOfOneUse = 64;
constexpr Nanos kLockPatience = kSecond / 2;

// Without the queue that only pays for several.
void read_alone(RangeRead& range) {
  while (range.got < range.into.size()) {
    const ssize_t n =
        ::pread(range.fd, range.into.data() + range.got, range.into.size() - range.got,
                range.offset + static_cast<off_t>(range.got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      range.error = n < 0 ? errno : kEndOfFile;
      return;
    }
    range.got += static_cast<std::size_t>(n);
  }
}

}  // namespace

struct BlockFile::Job {
  Piece* piece;
  Known known;
  std::uint32_t first_chunk = 0;
  std::uint32_t end_chunk = 0;  // == first: nothing to check
  std::vector<std::byte> scratch = {};
  RangeRead range = {};
};

BlockFile::BlockFile(std::unique_ptr<CacheFile> file, const CacheOptions& options, Kind kind)
    : file_(std::move(file)), kind_(kind), chunk_(file_->header().block_bytes / kChunks) {
  Change change(*file_, local_, Deadline::after(10 * kSecond));
  if (options.cap_bytes > 0) {
    change.set_cap(options.cap_bytes);
    change.commit();
  }
  room_ = change.state().cap_bytes - static_cast<std::int64_t>(file_->header().blocks_at);
}

std::optional<BlockFile::Known> BlockFile::know(const BlockName& name) {
  Shard& shard = shard_of(name);
  {
    const std::lock_guard lock(shard.mutex);
    if (const auto at = shard.known.find(name); at != shard.known.end()) return at->second;
  }
  const auto found = look_up(*file_, name);
  if (!found) return std::nullopt;
  const Entry& entry = found->entry;
  return Known{.slot = found->slot,
               .generation = entry.generation,
               .bytes = entry.bytes,
               .sums = entry.sums};
}

void BlockFile::update(const BlockName& name, const Known& known) {
  Shard& shard = shard_of(name);
  const std::lock_guard lock(shard.mutex);
  if (shard.known.size() >= kKnownOfShard) shard.known.clear();
  const auto [at, fresh] = shard.known.try_emplace(name, known);
  if (fresh) return;
  const std::uint32_t checked =
      at->second.generation == known.generation ? at->second.checked : 0;  // by another thread
  at->second = known;
  at->second.checked |= checked;
}

void BlockFile::forget(const BlockName& name) {
  Shard& shard = shard_of(name);
  const std::lock_guard lock(shard.mutex);
  shard.known.erase(name);
}

void BlockFile::read(std::span<Piece* const> pieces, Deadline deadline, CacheCounters& counters) {
  for (; !pieces.empty(); pieces = pieces.subspan(std::min(pieces.size(), kPiecesAtOnce)))
    read_some(pieces.first(std::min(pieces.size(), kPiecesAtOnce)), deadline, counters);
}

std::optional<BlockFile::Job> BlockFile::prepare(Piece& piece) {
  auto known = know(piece.name);
  if (!known) return std::nullopt;
  const std::uint64_t end = std::uint64_t{piece.offset} + piece.into.size();
  if (end > known->bytes) return std::nullopt;  // not the block that we think of
  Job job{.piece = &piece, .known = *known};
  job.first_chunk = piece.offset / chunk_;
  job.end_chunk = static_cast<std::uint32_t>((end + chunk_ - 1) / chunk_);
  const std::uint32_t wanted = ((1U << job.end_chunk) - 1) & ~((1U << job.first_chunk) - 1);
  if ((known->checked & wanted) == wanted) job.end_chunk = job.first_chunk;
  job.range = {.fd = file_->fd(),
               .offset = static_cast<std::int64_t>(file_->block_at(known->slot)) + piece.offset,
               .into = piece.into};
  const std::uint32_t begin = job.first_chunk * chunk_;
  const std::uint32_t chunks_end = std::min(job.end_chunk * chunk_, known->bytes);
  if (job.end_chunk > job.first_chunk && (piece.offset != begin || end != chunks_end)) {
    job.scratch.resize(chunks_end - begin);
    job.range.offset = static_cast<std::int64_t>(file_->block_at(known->slot)) + begin;
    job.range.into = job.scratch;
  }
  return job;
}

void BlockFile::read_some(std::span<Piece* const> pieces, Deadline deadline,
                          CacheCounters& counters) {
  std::vector<Job> jobs;
  std::size_t scratch = 0;
  const auto run = [&] {
    std::vector<RangeRead> ranges;
    ranges.reserve(jobs.size());
    for (const Job& job : jobs) ranges.push_back(job.range);
    if (ranges.size() == 1) {
      read_alone(ranges[0]);
    } else if (!ranges.empty()) {
      best_read_engine().read(ranges, kDepth, deadline);
    }
    // The bytes before the generations: a fence that ThreadSanitizer knows.
    reads_.fetch_add(0, std::memory_order_seq_cst);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (ranges[i].error == ETIMEDOUT) continue;
      if (ranges[i].error == 0) {
        finish(jobs[i], deadline, counters);
      } else {
        drop(jobs[i].piece->name, deadline);
      }
    }
    jobs.clear();
    scratch = 0;
  };
  for (Piece* const piece : pieces) {
    try {
      if (auto job = prepare(*piece)) {
        scratch += job->scratch.size();
        jobs.push_back(*std::move(job));
      }
    } catch (const Error&) {
      continue;  // the index cannot be read: not done
    }
    if (scratch >= kScratchAtOnce) run();
  }
  run();
}

bool BlockFile::checks_out(Job& job) {
  const auto bytes = std::span<const std::byte>(job.range.into);
  const std::uint32_t begin = job.first_chunk * chunk_;
  for (std::uint32_t chunk = job.first_chunk; chunk < job.end_chunk; ++chunk) {
    const std::uint32_t at = chunk * chunk_;
    const std::uint32_t length = std::min(chunk_, job.known.bytes - at);
    if (crc32c(bytes.subspan(at - begin, length)) != job.known.sums[chunk]) return false;
    job.known.checked |= 1U << chunk;
  }
  return true;
}

void BlockFile::finish(Job& job, Deadline deadline, CacheCounters& counters) {
  Piece& piece = *job.piece;
  std::uint64_t generation = 0;
  try {
    generation =
        file_->get<std::uint64_t>(file_->entry_at(job.known.slot) + offsetof(Entry, generation));
  } catch (const Error&) {
    return;
  }
  if (generation != job.known.generation) {  // it left while we read
    forget(piece.name);
    return;
  }
  if (!checks_out(job)) {
    ++counters.bad_checksums;
    drop(piece.name, deadline);
    return;
  }
  if (!job.scratch.empty()) {
    std::memcpy(piece.into.data(), job.scratch.data() + piece.offset % chunk_, piece.into.size());
  }
  piece.done = true;
  piece.block_length = job.known.bytes;
  ++counters.hits;
  counters.hit_bytes += std::ssize(piece.into);
  note_use(job);
  update(piece.name, job.known);
}

// Where it may be lost: a lost use makes a worse guess, no wrong byte.
void BlockFile::note_use(Job& job) {
  Known& known = job.known;
  const std::uint64_t now = reads_.fetch_add(1, std::memory_order_relaxed) + kReadsOfOneUse + 1;
  job.piece->used_before = now - known.last_read > kReadsOfOneUse;
  known.last_read = now;
  const std::uint64_t at = file_->policy_at(known.slot);
  try {
    if (job.piece->used_before) {
      const auto uses = file_->get<std::uint8_t>(at + offsetof(Policy, uses));
      if (uses < 3) file_->put(at + offsetof(Policy, uses), static_cast<std::uint8_t>(uses + 1));
    }
    const Use& use = job.piece->use;
    if (use.order != 0 && (use.order != known.use.order || use.next != known.use.next)) {
      struct {
        std::int64_t next;
        std::uint64_t order;
      } const told{use.next, use.order};
      file_->put(at, told);
      known.use = use;
    }
  } catch (const Error&) {
    return;
  }
}

void BlockFile::drop(const BlockName& name, Deadline deadline) {
  try {
    const auto known = know(name);
    forget(name);
    if (!known) return;
    Change change(*file_, local_, deadline.within(kLockPatience));
    change.forget(known->slot, known->generation);
    change.commit();
  } catch (const Error&) {
    return;
  }
}

void BlockFile::abandon(std::span<const Change::Place> places) {
  for (const auto& place : places) {
    file_->unlock(slot_lock(place.slot));
    local_.filling.release(place.slot);
  }
}

void BlockFile::keep(std::span<const Fill> fills, Deadline deadline, CacheCounters& counters) {
  struct Kept {
    const Fill* fill;
    Change::Place place;
    Entry entry;
  };
  std::vector<Kept> kept;
  std::vector<Change::Place> places;  // those whose locks we hold
  try {
    {
      Change change(*file_, local_, deadline.within(kLockPatience));
      for (const Fill& fill : fills) {
        const auto bytes = static_cast<std::uint32_t>(fill.bytes.size());
        const auto place = change.reserve(fill.name, bytes, fill.use);
        kept_since_refusal_ = place ? std::min<int>(kept_since_refusal_ + 1, kManyKept) : 0;
        if (!place) continue;
        places.push_back(*place);
        kept.push_back({&fill, *place, {.name = fill.name, .bytes = bytes}});
      }
      room_ = change.state().cap_bytes - static_cast<std::int64_t>(file_->header().blocks_at);
      change.commit();
      counters += change.made();
    }
    std::optional<Error> failed;
    for (Kept& one : kept) {
      const auto bytes = one.fill->bytes;
      for (std::size_t at = 0, chunk = 0; at < bytes.size(); at += chunk_, ++chunk)
        one.entry.sums[chunk] =
            crc32c(bytes.subspan(at, std::min<std::size_t>(chunk_, bytes.size() - at)));
      try {
        file_->write(file_->block_at(one.place.slot), bytes);
      } catch (const Error& error) {
        failed = error;
        one.fill = nullptr;
      }
    }
    if (kept.empty()) return;
    const std::uint64_t now = reads_.load(std::memory_order_relaxed) + kReadsOfOneUse + 1;
    Change change(*file_, local_, deadline.within(kLockPatience));
    while (!kept.empty()) {
      const Kept one = kept.back();
      kept.pop_back();
      if (one.fill == nullptr) {
        change.give_back(one.place);
      } else {
        const std::uint64_t generation = change.publish(one.place, one.entry, one.fill->use);
        // Not checked yet: the first read says whether it lies there as it was given.
        update(one.fill->name, {.slot = one.place.slot,
                                .generation = generation,
                                .bytes = one.entry.bytes,
                                .last_read = now,
                                .use = one.fill->use,
                                .sums = one.entry.sums});
      }
      std::erase_if(places, [&](const auto& place) { return place.slot == one.place.slot; });
    }
    change.commit();
    counters += change.made();
    if (failed) throw *failed;
  } catch (...) {
    abandon(places);
    throw;
  }
}

bool BlockFile::has(const BlockName& name) const {
  try {
    return look_up(*file_, name).has_value();
  } catch (const Error&) {
    return false;
  }
}

bool BlockFile::try_claim(const BlockName& name) {
  const std::uint64_t at = fetch_lock(name.hash());
  if (!fetching_.try_claim(at)) return false;
  try {
    if (file_->try_lock(at)) return true;
  } catch (...) {
    fetching_.release(at);
    throw;
  }
  fetching_.release(at);
  return false;
}

void BlockFile::release(const BlockName& name) {
  const std::uint64_t at = fetch_lock(name.hash());
  file_->unlock(at);
  fetching_.release(at);
}

void BlockFile::wait(const BlockName& name, Nanos most) {
  const std::uint64_t at = fetch_lock(name.hash());
  const std::chrono::nanoseconds length(most);
  if (fetching_.held(at)) {
    fetching_.wait(at, length);
  } else {
    std::this_thread::sleep_for(length);
  }
}

void BlockFile::note_order(std::uint64_t order, std::int64_t position) {
  const auto all = file_->get<std::array<Order, kOrders>>(kOrdersAt);
  if (const auto at = std::ranges::find(all, order, &Order::id); at != all.end()) {
    file_->put(kOrdersAt + static_cast<std::uint64_t>(at - all.begin()) * sizeof(Order),
               Order{order, position, real_clock().wall_now()});
    return;
  }
  Change change(*file_, local_, Deadline::after(kLockPatience));
  change.note_order(order, position);
}

void BlockFile::note_origin(std::uint64_t hash, const std::string& url) {
  Change change(*file_, local_, Deadline::after(kLockPatience));
  change.note_origin(hash, url);
}

void BlockFile::add(const CacheCounters& counters, Deadline deadline) {
  Change change(*file_, local_, deadline);
  change.add(counters);
  change.commit();
}

}  // namespace bedplate::store::cache
