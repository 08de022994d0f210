// From one process's events to its steps, each divided among the phases without overlap.
//
//   StepBuilder builder(pid);
//   builder.add(events);                         // as they come from the ring
//   for (const Step& step : builder.take()) writer.step(step);
//   for (const auto& [metric, value] : builder.totals()) …       // "trace.fetches", 412
//
// Boundaries. bedplate.step() when the script calls it, else the end of the first-seen optimizer's
// step(). A loop that has neither, as inference or an optimizer of its own, is cut where it asks
// for the next batch, once enough batches have gone by to be sure. What lies before the first
// boundary is warm-up and no step.
//
// Division. Each instant belongs to the highest of: GC, checkpoint, communication, input wait, load
// and fsync, copy, optimizer, backward. Between events, the time is compute after a batch arrived
// and `other` after the optimizer was done, unless another backward comes before the next batch.
// Only the stepping thread's events count, but for GC, which stops every thread of the process. On
// a GPU the optimizer's share is what the device's clock says (polled events), taken from or given
// to compute. The phases sum to the duration exactly.
//
// Events may come in any order and hold nonsense: they were written by other programs. Not
// thread-safe; memory is bounded.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "probe/run_data.h"
#include "probe/trace_format.h"

namespace bedplate::probe {

class StepBuilder {
 public:
  explicit StepBuilder(int pid, int rank = -1) : pid_(pid), rank_(rank) {}

  void set_rank(int rank) { rank_ = rank; }

  // Events of one drain of the ring; their times are run time.
  void add(std::span<const Event> events);

  // The steps that were completed since the last call, oldest first.
  std::vector<Step> take();

  std::int64_t steps() const { return next_index_; }

  // Sums since the start, by metric name; those that never grew are left out.
  std::vector<std::pair<std::string_view, std::int64_t>> totals() const;

 private:
  enum class Boundary : std::uint8_t { kBatch, kOptimizer, kUser };  // ascending precedence

  void count(const Event& event);
  std::optional<Nanos> boundary(const Event& event);
  void count_device(const Event& event);
  void use_device_time(PhaseTimes& phases) const;
  void close_step(Nanos end, std::uint32_t tid);
  void drop_before(Nanos end);

  int pid_;
  int rank_;
  Boundary kind_ = Boundary::kBatch;
  std::optional<std::uint64_t> optimizer_;  // the ordinal whose steps count
  std::int64_t batches_ = 0;                // seen while no better boundary was
  bool backward_seen_ = false;
  std::optional<Nanos> last_;  // where the open step began
  Nanos floor_ =
      std::numeric_limits<Nanos>::min();  // no boundary before the last one, of whatever kind
  std::int64_t next_index_ = 0;
  std::optional<Nanos> device_optimizer_;  // of the last step whose device times are complete
  Nanos device_optimizer_so_far_ = 0;
  std::deque<Event> pending_;  // events that may belong to the step that is open
  std::vector<Step> done_;
  static constexpr std::size_t kTotals = 17;
  static const std::array<std::string_view, kTotals> kTotalNames;
  std::array<std::int64_t, kTotals> totals_{};
  std::array<std::int64_t, std::size(kDataCounters)> data_totals_{};
};

}  // namespace bedplate::probe
