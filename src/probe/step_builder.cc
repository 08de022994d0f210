#include "probe/step_builder.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace bedplate::probe {
namespace {

constexpr Nanos kLongest = 30LL * 24 * 3600 * kSecond;  // an event that claims more is nonsense
constexpr std::size_t kMostPending = 16384;
constexpr std::int64_t kBatchesWithoutBackward = 16;  // then the loop has no optimizer: inference
constexpr std::int64_t kBatchesWithBackward = 256;    // more than any gradient accumulation in use

// Of an input wait's argument: not every wait brings a batch.
constexpr std::uint64_t kEvaluation = 1, kExhausted = 2, kStarting = 4;

enum Total : std::size_t {
  kSteps,
  kInputWait,
  kFetches,
  kFetchWall,
  kFetchUser,
  kFetchSystem,
  kFilesOpened,
  kGcTime,
  kGcCollections,
  kCollectives,
  kCollectiveTime,
  kCollectiveBytes,
  kCheckpoints,
  kCheckpointTime,
  kFsyncTime,
  kH2dTime,
  kSyncTime,
};

struct Paint {
  int priority;  // lower wins
  Phase phase;
};

std::optional<Paint> paint_of(std::uint16_t kind) {
  switch (static_cast<EventKind>(kind)) {
    case EventKind::kGc:
      return Paint{0, Phase::kGc};
    case EventKind::kCheckpoint:
      return Paint{1, Phase::kCheckpoint};
    case EventKind::kCollective:
    case EventKind::kDdpComm:
      return Paint{2, Phase::kCommunication};
    case EventKind::kInputWait:
      return Paint{3, Phase::kInputWait};
    // Below input_wait: a data set that keeps its samples in files of torch.save is input, not a
    // checkpoint.
    case EventKind::kLoad:
    case EventKind::kFsync:
      return Paint{4, Phase::kCheckpoint};
    case EventKind::kH2d:
      return Paint{5, Phase::kH2d};
    case EventKind::kOptimizer:
      return Paint{6, Phase::kOptimizer};
    case EventKind::kBackward:
    case EventKind::kDeviceSync:
      return Paint{7, Phase::kCompute};
    default:
      return std::nullopt;
  }
}
constexpr std::size_t kPriorities = 8;

bool sane(const Event& event) {
  return event.duration >= 0 && event.duration <= kLongest && event.start > -kLongest &&
         event.start < 400 * kLongest;
}

Nanos end_of(const Event& event) { return event.start + event.duration; }

// What may happen at an instant of a step: an interval opens or closes, or the kind of the gaps
// changes.
struct Edge {
  Nanos t;
  int open = 0;  // +1, -1, 0
  int priority = 0;
  Phase phase = Phase::kCompute;
  std::optional<Phase> gap;  // from here on
};

// When the loop next asks for a batch, and when it next goes backward: what tells the script's own
// work from computing.
class Landmarks {
 public:
  explicit Landmarks(const std::vector<const Event*>& events) {
    for (const Event* event : events) {
      const auto kind = static_cast<EventKind>(event->kind);
      if (kind == EventKind::kInputWait) waits_.push_back(event->start);
      if (kind == EventKind::kBackward) backwards_.push_back(event->start);
    }
    std::sort(waits_.begin(), waits_.end());
    std::sort(backwards_.begin(), backwards_.end());
  }

  // A gap from `t` on is computing when a backward comes before the next batch: after another
  // optimizer's step (two networks in turn), or in a loop without a loader. Otherwise it is the
  // script's own work.
  Phase gap_after(Nanos t, Phase when_neither) const {
    const auto wait = std::lower_bound(waits_.begin(), waits_.end(), t);
    const auto backward = std::lower_bound(backwards_.begin(), backwards_.end(), t);
    if (wait == waits_.end()) return backward == backwards_.end() ? when_neither : Phase::kCompute;
    return backward != backwards_.end() && *backward < *wait ? Phase::kCompute : Phase::kOther;
  }

 private:
  std::vector<Nanos> waits_;
  std::vector<Nanos> backwards_;
};

PhaseTimes divide(Nanos begin, Nanos end, const std::vector<const Event*>& events) {
  const Landmarks landmarks(events);
  std::vector<Edge> edges;
  edges.reserve(events.size() * 3);
  for (const Event* event : events) {
    const auto paint = paint_of(event->kind);
    if (!paint) continue;
    const Nanos from = std::clamp(event->start, begin, end);
    const Nanos to = std::clamp(end_of(*event), begin, end);
    edges.push_back({.t = from, .open = 1, .priority = paint->priority, .phase = paint->phase});
    edges.push_back({.t = to, .open = -1, .priority = paint->priority, .phase = paint->phase});
    switch (static_cast<EventKind>(event->kind)) {
      case EventKind::kInputWait:
        edges.push_back({.t = to, .gap = Phase::kCompute});
        break;
      case EventKind::kBackward:
        edges.push_back({.t = from, .gap = Phase::kCompute});
        break;
      case EventKind::kOptimizer:
        edges.push_back({.t = to, .gap = landmarks.gap_after(to, Phase::kOther)});
        break;
      default:
        break;
    }
  }
  std::stable_sort(edges.begin(), edges.end(),
                   [](const Edge& a, const Edge& b) { return a.t < b.t; });

  PhaseTimes times{};
  std::array<int, kPriorities> active{};
  std::array<Phase, kPriorities> phase_at{};
  Phase gap = landmarks.gap_after(begin, Phase::kCompute);
  Nanos at = begin;
  const auto spend = [&](Nanos until) {
    if (until <= at) return;
    const auto top = std::find_if(active.begin(), active.end(), [](int n) { return n > 0; });
    const Phase phase =
        top == active.end() ? gap : phase_at[static_cast<std::size_t>(top - active.begin())];
    times[index(phase)] += until - at;
    at = until;
  };
  for (const Edge& edge : edges) {
    spend(edge.t);
    if (edge.gap) {
      gap = *edge.gap;
    } else {
      const auto level = static_cast<std::size_t>(edge.priority);
      active[level] += edge.open;
      phase_at[level] = edge.phase;
    }
  }
  spend(end);
  return times;
}

}  // namespace

const std::array<std::string_view, StepBuilder::kTotals> StepBuilder::kTotalNames = {
    "trace.steps",         "trace.input_wait_ns", "trace.fetches",
    "trace.fetch_wall_ns", "trace.fetch_user_ns", "trace.fetch_system_ns",
    "trace.files_opened",  "trace.gc_ns",         "trace.gc_collections",
    "trace.collectives",   "trace.collective_ns", "trace.collective_bytes",
    "trace.checkpoints",   "trace.checkpoint_ns", "trace.fsync_ns",
    "trace.h2d_ns",        "trace.sync_ns"};

void StepBuilder::add(std::span<const Event> events) {
  // The device's times come in its own order, whose ends may lie before what the host did since.
  for (const Event& event : events) {
    if (static_cast<EventKind>(event.kind) == EventKind::kGpuPhase) count_device(event);
  }
  std::vector<Event> sorted;
  sorted.reserve(events.size());
  std::copy_if(events.begin(), events.end(), std::back_inserter(sorted), sane);
  // By end, as one thread writes them; the ring mixes threads.
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Event& a, const Event& b) { return end_of(a) < end_of(b); });
  for (const Event& event : sorted) {
    count(event);
    if (const auto at = boundary(event)) close_step(*at, event.tid);
    if (!paint_of(event.kind) && static_cast<EventKind>(event.kind) != EventKind::kValidation)
      continue;
    pending_.push_back(event);
    if (pending_.size() > kMostPending) pending_.pop_front();
  }
}

std::vector<Step> StepBuilder::take() { return std::exchange(done_, {}); }

void StepBuilder::count(const Event& event) {
  const auto add_to = [this](Total total, std::int64_t by) {
    // Saturates: a broken writer's argument must not turn a counter negative.
    if (by > 0)
      totals_[total] += std::min(by, std::numeric_limits<std::int64_t>::max() / 2 - totals_[total]);
  };
  const auto low = static_cast<std::int64_t>(event.arg & 0xFFFFFFFFu);
  const auto high = static_cast<std::int64_t>(event.arg >> 32);
  switch (static_cast<EventKind>(event.kind)) {
    case EventKind::kInputWait:
      add_to(kInputWait, event.duration);
      break;
    case EventKind::kBackward:
      backward_seen_ = true;
      break;
    case EventKind::kCollective:
      add_to(kCollectives, 1);
      add_to(kCollectiveTime, event.duration);
      break;
    case EventKind::kDdpComm:
      add_to(kCollectiveTime, event.duration);
      break;
    case EventKind::kBytes:
      add_to(kCollectiveBytes, static_cast<std::int64_t>(event.arg & (~std::uint64_t{0} >> 1)));
      break;
    case EventKind::kCheckpoint:
      add_to(kCheckpoints, 1);
      add_to(kCheckpointTime, event.duration);
      break;
    case EventKind::kGc:
      add_to(kGcCollections, 1);
      add_to(kGcTime, event.duration);
      break;
    case EventKind::kFetch:
      add_to(kFetches, 1);
      add_to(kFetchWall, event.duration);
      add_to(kFetchUser, low * kMicrosecond);
      add_to(kFetchSystem, high * kMicrosecond);
      break;
    case EventKind::kFiles:
      add_to(kFilesOpened, low);
      break;
    case EventKind::kFsync:
      add_to(kFsyncTime, event.duration);
      break;
    case EventKind::kH2d:
      add_to(kH2dTime, event.duration);
      break;
    case EventKind::kDeviceSync:
      add_to(kSyncTime, event.duration);
      break;
    case EventKind::kData:
      if (const std::uint64_t which = event.arg >> 56; which < std::size(kDataCounters)) {
        std::int64_t& total = data_totals_[which];
        total += std::min(static_cast<std::int64_t>(event.arg & (~std::uint64_t{0} >> 8)),
                          std::numeric_limits<std::int64_t>::max() / 2 - total);
      }
      break;
    default:
      break;
  }
}

// The device's times of a step arrive a step or two later, its optimizers' before the step's own.
void StepBuilder::count_device(const Event& event) {
  const auto kind = static_cast<EventKind>(event.arg & 0xFF);
  const auto time = static_cast<Nanos>(event.arg >> 8);
  if (kind == EventKind::kOptimizer)
    device_optimizer_so_far_ =
        std::min(device_optimizer_so_far_ + std::min(time, kLongest), kLongest);
  if (kind == EventKind::kStep) device_optimizer_ = std::exchange(device_optimizer_so_far_, 0);
}

// A GPU works while the host already launches the next thing or waits: how long the optimizer took
// is known from the device's own clock alone. That of the last measured step stands for this one.
void StepBuilder::use_device_time(PhaseTimes& phases) const {
  if (!device_optimizer_) return;
  Nanos& compute = phases[index(Phase::kCompute)];
  Nanos& optimizer = phases[index(Phase::kOptimizer)];
  const Nanos both = compute + optimizer;
  optimizer = std::min(*device_optimizer_, both);
  compute = both - optimizer;
}

std::optional<Nanos> StepBuilder::boundary(const Event& event) {
  const auto rise_to = [this](Boundary kind) {
    if (kind <= kind_) return;
    kind_ = kind;
    last_.reset();  // the step that a weaker boundary began is not one
  };
  switch (static_cast<EventKind>(event.kind)) {
    case EventKind::kUserStep:
      rise_to(Boundary::kUser);
      return event.start;
    case EventKind::kStep:
      if (kind_ == Boundary::kUser) return std::nullopt;
      rise_to(Boundary::kOptimizer);
      if (!optimizer_) optimizer_ = event.arg;
      return event.arg == *optimizer_ ? std::optional(event.start) : std::nullopt;
    case EventKind::kInputWait:
      if (kind_ != Boundary::kBatch || (event.arg & (kExhausted | kStarting)) != 0)
        return std::nullopt;
      if (++batches_ <= (backward_seen_ ? kBatchesWithBackward : kBatchesWithoutBackward))
        return std::nullopt;
      return event.start;
    default:
      return std::nullopt;
  }
}

void StepBuilder::close_step(Nanos end, std::uint32_t tid) {
  if (end < floor_ || (last_ && end == *last_))
    return;  // time does not run backward: a stale or foreign boundary
  floor_ = end;
  if (last_) {
    std::vector<const Event*> mine;
    bool evaluation = false;
    for (const Event& event : pending_) {
      if (event.tid != tid && static_cast<EventKind>(event.kind) != EventKind::kGc) continue;
      if (end_of(event) < *last_ || event.start > end) continue;
      mine.push_back(&event);
      const auto kind = static_cast<EventKind>(event.kind);
      evaluation |= kind == EventKind::kValidation ||
                    (kind == EventKind::kInputWait && kind_ != Boundary::kBatch &&
                     (event.arg & kEvaluation) != 0);
    }
    const Nanos duration = end - *last_;
    PhaseTimes phases = divide(*last_, end, mine);
    use_device_time(phases);
    done_.push_back({.pid = pid_,
                     .rank = rank_,
                     .index = next_index_++,
                     .start = *last_,
                     .duration = duration,
                     .weight = 1,
                     .longest = duration,
                     .phases = phases,
                     .evaluation = evaluation});
    ++totals_[kSteps];
  }
  last_ = end;
  drop_before(end);
}

void StepBuilder::drop_before(Nanos end) {
  std::erase_if(pending_, [end](const Event& event) { return end_of(event) <= end; });
}

std::vector<std::pair<std::string_view, std::int64_t>> StepBuilder::totals() const {
  std::vector<std::pair<std::string_view, std::int64_t>> all;
  for (std::size_t i = 0; i < kTotals; ++i) {
    if (totals_[i] > 0) all.emplace_back(kTotalNames[i], totals_[i]);
  }
  for (std::size_t i = 0; i < data_totals_.size(); ++i) {
    if (data_totals_[i] > 0) all.emplace_back(kDataCounters[i], data_totals_[i]);
  }
  return all;
}

}  // namespace bedplate::probe
