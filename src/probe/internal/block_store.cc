#include "probe/internal/block_store.h"

#include <algorithm>

#include "probe/internal/schema.h"

namespace bedplate::probe {
namespace {

constexpr int kFlushesPerFold = 128;
// Earlier folds, so that the memory for pending items is bounded (24, 136 and 48 bytes each).
constexpr std::size_t kMostPendingSamples = 65'536;
constexpr std::size_t kMostPendingSteps = 4'096;
constexpr std::size_t kMostPendingEvents = 16'384;
constexpr std::size_t kMostEnding = 8'192;

}  // namespace

BlockStore::BlockStore(Database& database, const RunLimits& limits)
    : database_(database),
      limits_(limits),
      insert_stream_(
          database,
          "INSERT INTO stream(id, type, subject, metric, source) VALUES(?1, ?2, ?3, ?4, ?5)"),
      delete_stream_(database, "DELETE FROM stream WHERE id = ?1"),
      delete_blocks_(database, "DELETE FROM block WHERE id BETWEEN ?1 AND ?2"),
      insert_tail_(database, "INSERT INTO tail(kind, stream, data) VALUES(?1, ?2, ?3)"),
      clear_tail_(database, "DELETE FROM tail"),
      put_block_(database,
                 "INSERT OR REPLACE INTO block(id, level, items, data) VALUES(?1, ?2, ?3, ?4)"),
      get_block_(database, "SELECT data FROM block WHERE id = ?1"),
      list_blocks_(database,
                   "SELECT id, level, items FROM block WHERE id BETWEEN ?1 AND ?2 ORDER BY id"),
      delete_block_(database, "DELETE FROM block WHERE id = ?1") {}

std::int64_t BlockStore::add(StreamType type, std::string_view subject, std::string_view metric,
                             std::string_view source) {
  const auto streams = static_cast<std::int64_t>(live_.size() + ended_.size());
  if (streams >= limits_.series && !make_room()) {
    ++dropped_;
    return 0;
  }
  const std::int64_t id = next_stream_++;
  insert_stream_.bind(1, id).bind(2, static_cast<int>(type));
  insert_stream_.bind_text(3, subject).bind_text(4, metric).bind_text(5, source).run();
  live_.emplace(id, Stream{.type = type});
  return id;
}

std::int64_t BlockStore::first_block(std::int64_t stream) { return stream << kBlockNumberBits; }
std::int64_t BlockStore::last_block(std::int64_t stream) { return first_block(stream + 1) - 1; }

void BlockStore::end(std::int64_t stream) { ending_.push_back(stream); }

void BlockStore::append(std::int64_t stream, Nanos t, std::int64_t value) {
  const auto found = live_.find(stream);
  if (found == live_.end()) return;
  Stream& state = found->second;
  if (state.has_value && t <= state.last_t) return;
  if (state.has_value && value == state.last_value) {
    state.held = true;
    state.last_t = t;
    return;
  }
  if (state.held && state.type == StreamType::kCounter)
    samples_.push_back({stream, {state.last_t, state.last_value}});
  samples_.push_back({stream, {t, value}});
  state.has_value = true;
  state.held = false;
  state.last_t = t;
  state.last_value = value;
}

void BlockStore::append(std::int64_t stream, const Step& step) {
  if (live_.contains(stream)) steps_.push_back({stream, step});
}

void BlockStore::append(std::int64_t stream, std::span<const Event> events) {
  if (!live_.contains(stream)) return;
  for (const Event& event : events) events_.push_back({stream, event});
}

void BlockStore::write(Fold when) {
  const bool due = ++flushes_ >= kFlushesPerFold || samples_.size() >= kMostPendingSamples ||
                   steps_.size() >= kMostPendingSteps || events_.size() >= kMostPendingEvents ||
                   ending_.size() >= kMostEnding;
  if (due || when == Fold::kNow) {
    fold();
  } else {
    write_tail();
  }
}

void BlockStore::write_tail() {
  const auto row = [this](int kind, std::int64_t stream) {
    insert_tail_.bind(1, kind).bind(2, stream).bind_blob(3, bytes_).run();
    bytes_.clear();
  };
  bytes_.clear();
  if (samples_written_ < samples_.size()) {
    encode(std::span(samples_).subspan(samples_written_), bytes_);
    row(1, 0);
    samples_written_ = samples_.size();
  }
  // A step or event row is a run of neighbours of one stream: they arrive process by process.
  for (std::size_t& i = steps_written_; i < steps_.size();) {
    const std::int64_t stream = steps_[i].stream;
    step_buffer_.clear();
    for (; i < steps_.size() && steps_[i].stream == stream; ++i)
      step_buffer_.push_back(steps_[i].item);
    encode(step_buffer_, bytes_);
    row(static_cast<int>(StreamType::kSteps), stream);
  }
  for (std::size_t& i = events_written_; i < events_.size();) {
    const std::int64_t stream = events_[i].stream;
    event_buffer_.clear();
    for (; i < events_.size() && events_[i].stream == stream; ++i)
      event_buffer_.push_back(events_[i].item);
    encode(event_buffer_, bytes_);
    row(static_cast<int>(StreamType::kEvents), stream);
  }
}

void BlockStore::fold() {
  flushes_ = 0;
  fold_all(samples_, sample_buffer_);
  fold_all(steps_, step_buffer_);
  fold_all(events_, event_buffer_);
  samples_written_ = steps_written_ = events_written_ = 0;
  clear_tail_.run();
  retire();
  keep_totals();
}

template <typename Item>
void BlockStore::fold_all(std::vector<Pending<Item>>& pending, std::vector<Item>& buffer) {
  std::stable_sort(pending.begin(), pending.end(),
                   [](const auto& a, const auto& b) { return a.stream < b.stream; });
  for (std::size_t i = 0; i < pending.size();) {
    const std::int64_t id = pending[i].stream;
    Stream& stream = live_.at(id);
    buffer.clear();
    if (stream.open_items > 0) {
      get_block_.bind(1, first_block(id) + stream.next_block - 1);
      if (get_block_.step()) decode(get_block_.bytes(0), buffer);
      get_block_.reset();
      --stream.next_block;
      stream.items -= stream.open_items;
      total(stream.type) -= stream.open_items;
      stream.open_items = 0;
    }
    for (; i < pending.size() && pending[i].stream == id; ++i) buffer.push_back(pending[i].item);
    fold_stream(id, stream, buffer);
  }
  pending.clear();
}

template <typename Item>
void BlockStore::fold_stream(std::int64_t id, Stream& stream, std::vector<Item>& items) {
  for (std::size_t at = 0; at < items.size(); at += kBlockItems<Item>) {
    const auto block = std::span(items).subspan(at, std::min(kBlockItems<Item>, items.size() - at));
    bytes_.clear();
    encode(std::span<const Item>(block), bytes_);
    put_block_.bind(1, first_block(id) + stream.next_block++).bind(2, 0);
    put_block_.bind(3, static_cast<std::int64_t>(block.size())).bind_blob(4, bytes_).run();
    stream.open_items =
        block.size() < kBlockItems<Item> / 2 ? static_cast<std::int64_t>(block.size()) : 0;
  }
  const auto added = static_cast<std::int64_t>(items.size());
  stream.items += added;
  total(stream.type) += added;
  while (stream.items > limit_of_stream(stream.type)) {
    const std::int64_t gone = thin(id, stream.type, stream.items, Age::kLive);
    if (gone == 0) break;
    stream.items -= gone;
    stream.open_items = 0;  // the newest block may have been thinned: it must not grow again
  }
}

void BlockStore::retire() {
  for (const std::int64_t id : ending_) {
    const auto found = live_.find(id);
    if (found == live_.end()) continue;
    ended_.push_back({id, found->second.items, found->second.type});
    live_.erase(found);
  }
  ending_.clear();
}

// Drops an eighth of the ended series and event lists, those that say least. Steps are never
// dropped.
bool BlockStore::make_room() {
  if (ended_.empty() && ending_.empty()) return false;
  fold();
  const auto last = std::partition(ended_.begin(), ended_.end(), [](const Ended& stream) {
    return stream.type != StreamType::kSteps;
  });
  const auto candidates = last - ended_.begin();
  if (candidates == 0) return false;
  const auto going =
      std::min<std::ptrdiff_t>(candidates, std::max<std::int64_t>(1, limits_.series / 8));
  std::nth_element(ended_.begin(), ended_.begin() + (going - 1), last,
                   [](const Ended& a, const Ended& b) { return a.items < b.items; });
  for (auto stream = ended_.begin(); stream != ended_.begin() + going; ++stream) {
    delete_blocks_.bind(1, first_block(stream->id)).bind(2, last_block(stream->id)).run();
    delete_stream_.bind(1, stream->id).run();
    total(stream->type) -= stream->items;
  }
  ended_.erase(ended_.begin(), ended_.begin() + going);
  dropped_ += going;
  return true;
}

}  // namespace bedplate::probe
