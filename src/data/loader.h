// Batches of an epoch, made ahead of time by threads, in an order that any other number of ranks
// and threads can go on with.
//
//   Loader loader(source, {.batch_size = 256, .rank = 3, .world_size = 8, .fields = {…}});
//   while (const std::shared_ptr<const Batch> batch = loader.next()) { … }   // nullptr: epoch's
//   end const LoaderState state = loader.state();      // after the batches that next() handed over
//
// Threads begin with the first next(). Each makes whole batches: it reads their samples at once,
// checks them, and copies or decodes them into a slab. Batches are handed over in order. Memory is
// bounded: at most
//
//   (ahead + threads) × batch bytes + threads × (bytes of a batch's samples as they lie in shards)
//
// plus what the consumer still holds, where ahead = prefetch_bytes / batch bytes, at least 1.
//
// The end: the destructor waits for the threads, which end with the batch they are at. close()
// waits for so long only; threads that a caller's decode function keeps then live on with all that
// they use, and the loader can go. A loader may end in one of its own threads (in a decode
// function).
//
// One consumer at a time; state() and stats() from any thread. After fork() a child must make a
// Loader of its own; destroying the inherited one there does nothing.
//
// Errors of a batch come from the next() that would have handed it over and name the sample, its
// shard and its place; the loader is then at its end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/batch.h"
#include "data/collate.h"
#include "data/source.h"

namespace bedplate::data {

enum class OnBad {
  kRaise,
  kSkip,     // its row is a copy of another one of the batch, so that batches keep their size
  kRefetch,  // read anew, past caches, up to `refetches` times; then as kRaise
};

enum class Verify {
  kAlways,
  kFirst,  // each sample's checksum at its first reading by this loader
  kNever,
};

// A batch's samples for a caller's own decoding.
struct DecodeCall {
  std::span<const Sample> samples;
  // One a sample. What is random and follows from it is the same for any number of ranks and
  // threads.
  std::span<const std::uint64_t> seeds;
  std::span<const std::int64_t> sources;  // of a mix: which data set each is of; else empty
  // The sample cannot be decoded, for this reason: true when it is to be left out of what is made,
  // false when that is an error. Throws when too many have been left out.
  std::function<bool(std::size_t sample, std::string_view why)> leave_out;
  std::function<std::string(std::size_t sample)> place;  // for messages: its shard and the rest
};

// Memory for a window of the order, so that what is shuffled together is read together:
// internal/window_memory.h.
enum class KeepWindow {
  kAuto,    // where samples are small and far away, no cache was given, and memory is free
  kAlways,  // but for a mix, and for samples that are objects of their own
  kNever,
};

struct LoaderOptions {
  std::int64_t batch_size = 1;  // of one rank
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  Tail tail = Tail::kPad;
  int threads = 2;
  std::int64_t prefetch_bytes = 256 * kMiB;
  std::vector<FieldSpec> fields = {};  // empty: all of the first sample, as they are
  OnBad on_bad = OnBad::kRaise;
  std::int64_t most_skipped = 0;  // kSkip: one more is an error
  int refetches = 2;
  Verify verify = Verify::kFirst;
  Nanos read_timeout = store::kDefaultTimeout;
  KeepWindow keep_window = KeepWindow::kAuto;
  // Called in a loader thread in place of collating: fills Batch::made.
  std::function<void(const DecodeCall&, Batch&)> decode = {};
};

// Where an epoch stands. As text it is a JSON object below 200 bytes.
struct LoaderState {
  std::int64_t epoch = 0;
  std::int64_t consumed = 0;      // positions that all ranks together have behind them
  std::uint64_t fingerprint = 0;  // of the source

  std::string to_json() const;
  static LoaderState from_json(std::string_view text);  // Error{kCorrupt}
};

struct BadSample {
  std::int64_t sample = 0;
  std::string what;
};

struct LoaderStats {
  std::int64_t batches = 0;  // handed over
  std::int64_t samples = 0;  // read
  std::int64_t bytes = 0;
  std::int64_t make_ns = 0;    // in loader threads, by wall time: all of making batches
  std::int64_t read_ns = 0;    // of that: waiting for stores
  std::int64_t check_ns = 0;   // of that: checksums, and reading anew what was bad
  std::int64_t decode_ns = 0;  // in loader threads, by CPU time: copying and decoding
  std::int64_t wait_ns = 0;    // of the consumer for batches
  std::int64_t idle_ns = 0;    // of loader threads for the consumer
  std::int64_t skipped = 0;
  std::int64_t refetched = 0;
  std::vector<BadSample> bad;  // the first hundred
};

class Loader {
 public:
  // Reads the first sample, for shapes and types. Error{kInvalid} for contradicting options.
  Loader(std::shared_ptr<const Source> source, LoaderOptions options);
  ~Loader();

  // From here on batches are those after `state`; what was made ahead is dropped. Error{kInvalid}
  // when the state is of other data or of another order.
  void begin(const LoaderState& state);
  // Batches of these samples of the first data set, in this order, none of them anybody else's: for
  // orders that a caller makes. `state.consumed` of them are left out.
  void begin_with(std::vector<std::int64_t> samples, const LoaderState& state);
  // The next batch of the epoch; nullptr at its end, from where begin() goes on. When none comes
  // within `wait`: nullopt, and nothing is lost.
  std::optional<std::shared_ptr<const Batch>> next_within(Nanos wait);
  std::shared_ptr<const Batch> next();

  // Ends the threads; false when some have not ended in time. Only the destructor may follow.
  bool close(Nanos patience);

  LoaderState state() const;
  std::int64_t steps_left() const;  // of the epoch
  LoaderStats stats() const;
  std::int64_t ahead() const;  // batches that are made ahead at most
  std::int64_t slabs() const;  // that exist now
  // The memory of a window; nullptr: none is kept.
  std::shared_ptr<const store::Cache> window() const;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace bedplate::data
