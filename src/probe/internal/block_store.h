// The growing part of a run file: samples, steps and events of many streams, within bounds whatever
// the run's length.
//
// A stream is one series, or the steps or the events of one process. What arrives is kept in memory
// and, at each flush, also written as "tail" rows; every 128 flushes (or earlier, by amount) it is
// folded into blocks of up to 128 items (64 steps) and the tail is emptied. So a flush costs a page
// or two, a block costs its bytes once, and a crash loses what came after the last flush.
//
// Thinning (block_thinning.cc) works on blocks: of those older than the newest quarter, the ones of
// the lowest level are joined and halved, which raises their level. The older part of a long run so
// has one even spacing, the newest part all of it.
//
// - Samples: every second goes, the first and the last of a stream stay, so that a counter's total
//   is exact.
// - Steps: pairs of the same kind (evaluation or not) are merged. Weights and phases add up,
//   `longest` is kept.
// - Events are not halved: the first fifth of what may stay is kept, then the oldest go.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "probe/internal/codec.h"
#include "probe/internal/sqlite.h"
#include "probe/run_file.h"

namespace bedplate::probe {

enum class StreamType : std::uint8_t { kCounter = 1, kGauge = 2, kSteps = 3, kEvents = 4 };

// Two blocks of events, or one of steps, fill a page of the file.
template <typename Item>
constexpr std::size_t kBlockItems = 128;
template <>
inline constexpr std::size_t kBlockItems<Step> = 64;

class BlockStore {
 public:
  // The tables exist. All methods run inside a transaction of the caller.
  BlockStore(Database& database, const RunLimits& limits);

  // 0: there is no room for it, which is counted in dropped().
  std::int64_t add(StreamType type, std::string_view subject, std::string_view metric,
                   std::string_view source);
  void end(std::int64_t stream);  // nothing more will come

  void append(std::int64_t stream, Nanos t, std::int64_t value);
  void append(std::int64_t stream, const Step& step);
  void append(std::int64_t stream, std::span<const Event> events);

  // Writes what came since the last call; folds when it is time to, or when asked.
  enum class Fold { kWhenDue, kNow };
  void write(Fold fold);

  std::int64_t dropped() const { return dropped_; }

 private:
  struct Stream {
    StreamType type = StreamType::kCounter;
    bool has_value = false;
    bool held = false;  // last_t is later than the last stored sample's time
    Nanos last_t = 0;
    std::int64_t last_value = 0;
    std::int64_t items = 0;  // in blocks
    std::int64_t next_block = 0;
    std::int64_t open_items =
        0;  // of the newest block, while it may still grow; 0: start a new one
  };
  struct Ended {
    std::int64_t id;
    std::int64_t items;
    StreamType type;
  };

  static std::int64_t first_block(std::int64_t stream);
  static std::int64_t last_block(std::int64_t stream);
  void write_tail();
  void fold();
  template <typename Item>
  void fold_all(std::vector<Pending<Item>>& pending, std::vector<Item>& buffer);
  template <typename Item>
  void fold_stream(std::int64_t id, Stream& stream, std::vector<Item>& items);
  void retire();
  bool make_room();

  std::int64_t& total(StreamType type);
  std::int64_t limit(StreamType type) const;  // over all streams of this type
  std::int64_t limit_of_stream(StreamType type) const;
  void keep_bytes();
  void keep_totals();
  void keep_total(StreamType type);
  // One pass over one stream; returns how many items went.
  enum class Age { kLive, kEnded };
  std::int64_t thin(std::int64_t id, StreamType type, std::int64_t items, Age age);
  template <typename Item>
  std::int64_t halve(std::int64_t id, Age age);
  std::int64_t drop_middle(std::int64_t id, std::int64_t keep);

  Database& database_;
  RunLimits limits_;
  std::unordered_map<std::int64_t, Stream> live_;
  std::vector<Ended> ended_;
  std::vector<std::int64_t> ending_;  // still with pending items
  std::int64_t next_stream_ = 1;
  std::int64_t dropped_ = 0;
  std::int64_t total_samples_ = 0, total_steps_ = 0, total_events_ = 0;
  int flushes_ = 0;
  double shrunk_ = 1;  // what is left of the limits on totals

  // Since the last fold; the first *_written_ of them are in the tail.
  std::vector<Pending<Sample>> samples_;
  std::vector<Pending<Step>> steps_;
  std::vector<Pending<Event>> events_;
  std::size_t samples_written_ = 0, steps_written_ = 0, events_written_ = 0;
  std::vector<Sample> sample_buffer_;
  std::vector<Step> step_buffer_;
  std::vector<Event> event_buffer_;
  std::string bytes_;

  Statement insert_stream_, delete_stream_, delete_blocks_;
  Statement insert_tail_, clear_tail_;
  Statement put_block_, get_block_, list_blocks_, delete_block_;
};

}  // namespace bedplate::probe
