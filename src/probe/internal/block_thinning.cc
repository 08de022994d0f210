// How a long run stays small; the rules are in internal/block_store.h.
#include <algorithm>
#include <optional>
#include <queue>

#include "probe/internal/block_store.h"

namespace bedplate::probe {
namespace {

// Thinning starts a little below the limit, so that the folds between two passes stay below it.
constexpr double kSoftShare = 0.95;
constexpr double kHeadShare = 0.2;

enum class First { kKeep, kMayGo };

std::vector<Sample> halved(const std::vector<Sample>& items, First first) {
  std::vector<Sample> kept;
  kept.reserve(items.size() / 2 + 1);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const bool is_kept = (items.size() - 1 - i) % 2 == 0 || (i == 0 && first == First::kKeep);
    if (is_kept) kept.push_back(items[i]);
  }
  return kept;
}

void absorb(Step& step, const Step& next) {
  step.duration += next.duration;
  step.weight += next.weight;
  step.longest = std::max(step.longest, next.longest);
  for (std::size_t i = 0; i < kPhaseCount; ++i) step.phases[i] += next.phases[i];
}

// Pairs of the same kind, so that an evaluation never hides in a training step.
std::vector<Step> halved(const std::vector<Step>& items, First) {
  std::vector<Step> kept;
  kept.reserve(items.size() / 2 + 2);
  std::optional<std::size_t>
      waiting[2];  // by `evaluation`: where in `kept` a step waits for its pair
  for (const Step& step : items) {
    auto& at = waiting[step.evaluation ? 1 : 0];
    if (at) {
      absorb(kept[*at], step);
      at.reset();
    } else {
      at = kept.size();
      kept.push_back(step);
    }
  }
  return kept;
}

}  // namespace

std::int64_t& BlockStore::total(StreamType type) {
  if (type == StreamType::kSteps) return total_steps_;
  return type == StreamType::kEvents ? total_events_ : total_samples_;
}

std::int64_t BlockStore::limit(StreamType type) const {
  const std::int64_t given = type == StreamType::kSteps    ? limits_.steps
                             : type == StreamType::kEvents ? limits_.events
                                                           : limits_.samples;
  return static_cast<std::int64_t>(static_cast<double>(given) * shrunk_);
}

std::int64_t BlockStore::limit_of_stream(StreamType type) const {
  if (type == StreamType::kSteps) return limits_.steps_per_process;
  return type == StreamType::kEvents ? limits_.events_per_process : limits_.samples_per_series;
}

// The totals follow the bytes they really take, as values of unusual size may take twice the usual.
void BlockStore::keep_bytes() {
  const std::int64_t pages =
      database_.pragma("PRAGMA page_count") - database_.pragma("PRAGMA freelist_count");
  const std::int64_t used = pages * database_.pragma("PRAGMA page_size");
  if (used <= limits_.bytes) return;
  const auto fill = [](std::int64_t now, std::int64_t most) {
    return static_cast<double>(now) / static_cast<double>(std::max<std::int64_t>(1, most));
  };
  const double fullest =
      std::max({fill(total_samples_, limits_.samples), fill(total_steps_, limits_.steps),
                fill(total_events_, limits_.events)});
  shrunk_ = std::max(0.01, 0.9 * std::min(shrunk_, fullest));
}

void BlockStore::keep_totals() {
  keep_bytes();
  keep_total(StreamType::kCounter);  // gauges with them
  keep_total(StreamType::kSteps);
  keep_total(StreamType::kEvents);
}

// The longest streams first, one pass each, so that all end up about equally long.
void BlockStore::keep_total(StreamType type) {
  const auto soft = static_cast<std::int64_t>(static_cast<double>(limit(type)) * kSoftShare);
  std::int64_t& now = total(type);
  if (now <= soft) return;
  struct Candidate {
    std::int64_t items;
    std::int64_t id;
    StreamType type;
    Ended* ended;  // null: live
    bool operator<(const Candidate& other) const { return items < other.items; }
  };
  std::priority_queue<Candidate> longest;
  for (const auto& [id, stream] : live_) {
    if (&total(stream.type) == &now) longest.push({stream.items, id, stream.type, nullptr});
  }
  for (Ended& stream : ended_) {
    if (&total(stream.type) == &now) longest.push({stream.items, stream.id, stream.type, &stream});
  }
  while (now > soft && !longest.empty()) {
    Candidate top = longest.top();
    longest.pop();
    const std::int64_t gone =
        thin(top.id, top.type, top.items, top.ended != nullptr ? Age::kEnded : Age::kLive);
    if (gone == 0) continue;  // nothing left to merge in it
    top.items -= gone;
    if (top.ended != nullptr) {
      top.ended->items = top.items;
    } else {
      Stream& stream = live_.at(top.id);
      stream.items = top.items;
      stream.open_items = 0;
    }
    longest.push(top);
  }
}

std::int64_t BlockStore::thin(std::int64_t id, StreamType type, std::int64_t items, Age age) {
  std::int64_t gone = 0;
  switch (type) {
    case StreamType::kCounter:
    case StreamType::kGauge:
      gone = halve<Sample>(id, age);
      break;
    case StreamType::kSteps:
      gone = halve<Step>(id, age);
      break;
    case StreamType::kEvents:
      gone = drop_middle(id, items - std::max<std::int64_t>(1, items / 16));
      break;
  }
  total(type) -= gone;
  return gone;
}

template <typename Item>
std::int64_t BlockStore::halve(std::int64_t id, Age age) {
  struct Block {
    std::int64_t id, level, items;
  };
  std::vector<Block> blocks;
  list_blocks_.bind(1, first_block(id)).bind(2, last_block(id));
  while (list_blocks_.step()) {
    blocks.push_back({list_blocks_.number(0), list_blocks_.number(1), list_blocks_.number(2)});
  }
  list_blocks_.reset();
  if (blocks.empty()) return 0;
  const std::int64_t first = blocks.front().id;
  if (age == Age::kLive && blocks.size() > 1)
    blocks.resize(blocks.size() - std::max<std::size_t>(1, blocks.size() / 4));
  const std::int64_t level = std::min_element(blocks.begin(), blocks.end(), [](auto& a, auto& b) {
                               return a.level < b.level;
                             })->level;

  std::int64_t gone = 0;
  std::vector<Item> items;
  for (std::size_t i = 0; i < blocks.size();) {
    if (blocks[i].level != level) {
      ++i;
      continue;
    }
    // As many neighbours as, halved, fill one block.
    const Block& into = blocks[i];
    std::int64_t before = 0;
    items.clear();
    for (; i < blocks.size() && blocks[i].level == level; ++i) {
      if (before > 0 && before + blocks[i].items > static_cast<std::int64_t>(2 * kBlockItems<Item>))
        break;
      before += blocks[i].items;
      get_block_.bind(1, blocks[i].id);
      if (get_block_.step()) decode(get_block_.bytes(0), items);
      get_block_.reset();
      if (&blocks[i] != &into) delete_block_.bind(1, blocks[i].id).run();
    }
    const std::vector<Item> kept = halved(items, into.id == first ? First::kKeep : First::kMayGo);
    bytes_.clear();
    encode(std::span<const Item>(kept), bytes_);
    put_block_.bind(1, into.id).bind(2, level + 1);
    put_block_.bind(3, static_cast<std::int64_t>(kept.size())).bind_blob(4, bytes_).run();
    gone += before - static_cast<std::int64_t>(kept.size());
  }
  return gone;
}

// Whole blocks go, so the fifth and the rest are met to within a block.
std::int64_t BlockStore::drop_middle(std::int64_t id, std::int64_t keep) {
  const auto head = static_cast<std::int64_t>(static_cast<double>(keep) * kHeadShare);
  std::int64_t items = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> droppable;  // block, items
  list_blocks_.bind(1, first_block(id)).bind(2, last_block(id));
  while (list_blocks_.step()) {
    items += list_blocks_.number(2);
    if (items > head) droppable.emplace_back(list_blocks_.number(0), list_blocks_.number(2));
  }
  list_blocks_.reset();
  std::int64_t gone = 0;
  for (const auto& [block, count] : droppable) {
    if (items - gone <= keep) break;
    delete_block_.bind(1, block).run();
    gone += count;
  }
  return gone;
}

}  // namespace bedplate::probe
