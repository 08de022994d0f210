#include "store/cache/internal/change.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "os/durable_file.h"
#include "os/host_root.h"

namespace bedplate::store::cache {
namespace {

constexpr int kYields = 50;  // a change lasts some tens of microseconds
constexpr Nanos kLongestPause = 2 * kMillisecond;

std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

using Cells = std::array<Cell, kBucketCells * kBucketsLooked>;

std::uint64_t cells_at(const CacheFile& file, const BlockName& name) {
  return file.header().buckets_at + name.hash() % file.header().buckets * sizeof(Bucket);
}

std::uint64_t ghosts_at(const CacheFile& file, const BlockName& name) {
  const std::uint64_t sets = file.header().slots / kGhostWays + 1;
  return file.header().ghosts_at + name.hash() % sets * sizeof(GhostSet);
}

std::uint32_t disk_bytes_of(std::uint32_t bytes) {
  return static_cast<std::uint32_t>(rounded_up(bytes, kPage));
}

bool is_sane(std::uint64_t sequence) { return sequence < UINT64_MAX / 4; }

// Whole, and with numbers that somebody could have meant.
bool is_sound(const State& state, const Header& header) {
  return state.crc == crc_of(state) && state.high_water <= header.slots &&
         state.free_slots <= state.high_water && state.cap_bytes >= 0 && state.used_bytes >= 0 &&
         is_sane(state.sequence);
}

}  // namespace

const std::string& boot_of_this_machine() {
  static const std::string boot = os::HostRoot()
                                      .read_line("/proc/sys/kernel/random/boot_id")
                                      .value_or("unknown")
                                      .substr(0, sizeof State::boot);
  return boot;
}

State state_of(const CacheFile& file) {
  auto state = file.get<State>(kStateAt);
  for (int again = 0; state.crc != crc_of(state); ++again) {
    if (again == 10)
      throw Error(Code::kCorrupt, "the index of the cache {} is damaged", file.path().string());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    state = file.get<State>(kStateAt);
  }
  return state;
}

std::optional<Found> look_up(const CacheFile& file, const BlockName& name) {
  const auto cells = file.get<Cells>(cells_at(file, name));
  const std::uint32_t tag = tag_of(name.hash());
  for (const Cell& cell : cells) {
    if (cell.slot == 0 || cell.tag != tag || cell.slot > file.header().slots) continue;
    Found found{.slot = cell.slot - 1, .entry = file.get<Entry>(file.entry_at(cell.slot - 1))};
    if (found.entry.whole == 1 && found.entry.name == name &&
        found.entry.crc == crc_of(found.entry) && found.entry.bytes > 0 &&
        found.entry.bytes <= file.header().block_bytes)
      return found;
  }
  return std::nullopt;
}

Change::Change(const CacheFile& file, LocalState& local, Deadline deadline)
    : file_(file), local_(local), threads_(local.mutex, std::chrono::nanoseconds(deadline.left())) {
  const auto give_up = [&] {
    throw Error(Code::kTimeout, "the index of the cache {} is kept locked by another process",
                file.path().string());
  };
  if (!threads_) give_up();
  Nanos pause = 50 * kMicrosecond;
  for (int i = 0; !file.try_lock(kChangeLock); ++i) {
    if (deadline.passed()) give_up();
    if (i < kYields) {
      ::sched_yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(pause, deadline.left())));
    pause = std::min(2 * pause, kLongestPause);
  }
  try {
    state_ = file.get<State>(kStateAt);
    if (!is_sound(state_, file.header()) || state_.changing != 0 || !boot_is_ours()) mend();
  } catch (...) {
    file.unlock(kChangeLock);
    throw;
  }
}

Change::~Change() { file_.unlock(kChangeLock); }

bool Change::boot_is_ours() const {
  return boot_of_this_machine() ==
         std::string_view(state_.boot, ::strnlen(state_.boot, sizeof state_.boot));
}

void Change::begin() {
  if (std::exchange(begun_, true)) return;
  state_.changing = 1;
  state_.crc = crc_of(state_);
  file_.put(kStateAt, state_);
}

void Change::commit() {
  state_.changing = 0;
  state_.crc = crc_of(state_);
  file_.put(kStateAt, state_);
  begun_ = false;
}

void Change::mend() {
  const bool known = is_sound(state_, file_.header());
  const bool new_file = known && state_.sequence == 0;
  const auto after = known && boot_is_ours() ? After::kCrash : After::kPowerCut;
  if (!known) {  // what generations there were, readers may remember: none may come again
    state_ = {.cap_bytes = file_.made_for(), .sequence = os::random_bits() >> 24};
  }
  begun_ = false;
  begin();
  if (!new_file) {
    collect_blocks(after);
    ++state_.counters.repairs;
  }
  ++state_.sequence;
  const std::string& boot = boot_of_this_machine();
  std::memset(state_.boot, 0, sizeof state_.boot);
  std::memcpy(state_.boot, boot.data(), std::min(boot.size(), sizeof state_.boot));
  commit();
}

// Reads all entries and makes buckets and sums from them: some 10 ms for 100,000 blocks.
void Change::collect_blocks(After after) {
  const Header& header = file_.header();
  std::vector<Cell> cells((header.buckets + kBucketsLooked - 1) * kBucketCells);
  state_.used_bytes = state_.small_bytes = 0;
  state_.high_water = state_.free_slots = 0;
  constexpr std::uint64_t kAtOnce = 4096;
  std::vector<Policy> policies;
  std::vector<Entry> entries;
  const auto add = [&](std::uint64_t slot, const Entry& entry) {
    const auto first = entry.name.hash() % header.buckets * kBucketCells;
    const auto near = std::span(cells).subspan(first, std::tuple_size_v<Cells>);
    const auto empty = std::ranges::find(near, 0U, &Cell::slot);
    if (empty == near.end()) return false;
    const std::uint32_t tag = tag_of(entry.name.hash());
    for (const Cell& cell : near) {
      if (cell.slot != 0 && cell.tag == tag &&
          file_.get<Entry>(file_.entry_at(cell.slot - 1)).name == entry.name)
        return false;
    }
    *empty = {static_cast<std::uint32_t>(slot + 1), tag};
    return true;
  };
  for (std::uint64_t first = 0; first < header.slots; first += kAtOnce) {
    policies.resize(std::min(kAtOnce, header.slots - first));
    entries.resize(policies.size());
    file_.read(file_.policy_at(first), std::as_writable_bytes(std::span(policies)));
    file_.read(file_.entry_at(first), std::as_writable_bytes(std::span(entries)));
    for (std::size_t i = 0; i < policies.size(); ++i) {
      const std::uint64_t slot = first + i;
      Policy& policy = policies[i];
      const Entry& entry = entries[i];
      if (entry.crc == crc_of(entry) && is_sane(entry.generation))
        state_.sequence = std::max(state_.sequence, entry.generation);
      if (is_sane(policy.since)) state_.sequence = std::max(state_.sequence, policy.since);
      const bool is_free =
          policy.queue == Queue::kFree && policy.disk_bytes == 0 && entry.whole == 0;
      if (is_free && entry.generation == 0) continue;
      state_.free_slots += slot - state_.high_water;
      state_.high_water = slot + 1;
      if (is_free && after == After::kCrash) {
        ++state_.free_slots;
        continue;
      }
      const bool filling =
          policy.queue == Queue::kFilling &&
          (local_.filling.held(slot) || file_.locked_by_another_process(slot_lock(slot)));
      const bool whole = (policy.queue == Queue::kSmall || policy.queue == Queue::kMain) &&
                         entry.whole == 1 && entry.crc == crc_of(entry) && entry.bytes > 0 &&
                         entry.bytes <= header.block_bytes;
      if (policy.disk_bytes > header.block_bytes ||
          policy.disk_bytes < disk_bytes_of(entry.bytes)) {
        policy.disk_bytes = header.block_bytes;
        file_.put(file_.policy_at(slot), policy);
      }
      state_.used_bytes += policy.disk_bytes;
      if (filling || (whole && add(slot, entry))) {
        if (policy.queue == Queue::kSmall) state_.small_bytes += policy.disk_bytes;
        continue;
      }
      file_.put(file_.entry_at(slot), Entry{.generation = state_.sequence});
      policy = {.disk_bytes = policy.disk_bytes};
      if (file_.punch(file_.block_at(slot), header.block_bytes)) {
        state_.used_bytes -= policy.disk_bytes;
        policy.disk_bytes = 0;
      }
      file_.put(file_.policy_at(slot), policy);
      ++state_.free_slots;
    }
  }
  file_.write(header.buckets_at, std::as_bytes(std::span(cells)));
}

void Change::add_cell(const BlockName& name, std::uint64_t slot) {
  const std::uint64_t at = cells_at(file_, name);
  auto cells = file_.get<Cells>(at);
  auto place = std::ranges::find(cells, 0U, &Cell::slot);
  if (place == cells.end()) {  // rare: four times as many blocks as there should be
    place = cells.begin() + static_cast<std::ptrdiff_t>(name.hash() % cells.size());
    if (place->slot <= file_.header().slots) release(place->slot - 1, Room::kGiveBack);
  }
  *place = {static_cast<std::uint32_t>(slot + 1), tag_of(name.hash())};
  file_.put(at + static_cast<std::uint64_t>(place - cells.begin()) * sizeof(Cell), *place);
}

void Change::remove_cell(const BlockName& name, std::uint64_t slot) {
  const std::uint64_t at = cells_at(file_, name);
  const auto cells = file_.get<Cells>(at);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].slot == slot + 1) file_.put(at + i * sizeof(Cell), Cell{});
  }
}

bool Change::was_here(const BlockName& name) const {
  const auto set = file_.get<GhostSet>(ghosts_at(file_, name));
  const auto now = static_cast<std::uint32_t>(state_.ghosts);
  return std::ranges::any_of(set, [&](const Ghost& ghost) {
    return ghost.tag == tag_of(name.hash()) && ghost.number != 0 &&
           now - ghost.number <= state_.high_water;
  });
}

void Change::remember(const BlockName& name) {
  const std::uint64_t at = ghosts_at(file_, name);
  auto set = file_.get<GhostSet>(at);
  const auto now = static_cast<std::uint32_t>(++state_.ghosts);
  const auto oldest = std::ranges::max_element(set, {}, [&](const Ghost& ghost) {
    return ghost.number == 0 ? UINT32_MAX : now - ghost.number;
  });
  *oldest = {tag_of(name.hash()), now};
  file_.put(at, set);
}

void Change::release(std::uint64_t slot, Room room) {
  auto policy = file_.get<Policy>(file_.policy_at(slot));
  if (policy.queue == Queue::kFree) return;
  const auto entry = file_.get<Entry>(file_.entry_at(slot));
  if (entry.whole == 1) remove_cell(entry.name, slot);
  file_.put(file_.entry_at(slot), Entry{.generation = ++state_.sequence});
  if (policy.queue == Queue::kSmall) state_.small_bytes -= policy.disk_bytes;
  const std::int64_t had = policy.disk_bytes;
  policy = {.disk_bytes = policy.disk_bytes};
  if (room == Room::kGiveBack && file_.punch(file_.block_at(slot), file_.header().block_bytes)) {
    state_.used_bytes -= had;
    policy.disk_bytes = 0;
  }
  file_.put(file_.policy_at(slot), policy);
  ++state_.free_slots;
}

std::optional<Change::Place> Change::reserve(const BlockName& name, std::uint32_t bytes,
                                             const Use& use) {
  const std::int64_t need = disk_bytes_of(bytes);
  if (need > budget()) return std::nullopt;
  begin();
  if (!orders_) orders_.emplace(file_);
  std::optional<std::uint64_t> own;
  std::int64_t own_bytes = 0;
  const auto full = [&] {
    return state_.used_bytes - own_bytes + need > budget() ||
           (!own && state_.free_slots == 0 && state_.high_water >= file_.header().slots);
  };
  if (full()) local_.victims.look_again(file_, state_, *orders_);
  while (full()) {
    const auto slot =
        local_.victims.next(file_, state_, *orders_, orders_->distance(use.order, use.next));
    if (!slot) {
      if (own)
        file_.put(
            file_.policy_at(*own),
            Policy{.queue = Queue::kFilling, .disk_bytes = static_cast<std::uint32_t>(own_bytes)});
      if (own) release(*own, Room::kGiveBack);
      return std::nullopt;
    }
    const auto policy = file_.get<Policy>(file_.policy_at(*slot));
    const auto entry = file_.get<Entry>(file_.entry_at(*slot));
    if (policy.queue == Queue::kSmall) remember(entry.name);
    if (policy.queue != Queue::kFilling) {
      ++made_.evictions;
      made_.evicted_bytes += entry.bytes;
    }
    release(*slot, own ? Room::kGiveBack : Room::kKeep);
    if (!own) {
      own = *slot;
      own_bytes = policy.disk_bytes;
      --state_.free_slots;
    }
  }
  if (!own) {
    const std::uint64_t before = state_.high_water;
    own = local_.victims.free_slot(file_, state_, *orders_);
    if (!own) return std::nullopt;
    if (state_.high_water == before) --state_.free_slots;
  }
  auto had = file_.get<Policy>(file_.policy_at(*own)).disk_bytes;
  if (had > need && file_.punch(file_.block_at(*own) + static_cast<std::uint64_t>(need),
                                file_.header().block_bytes - static_cast<std::uint64_t>(need))) {
    state_.used_bytes -= had - need;
    had = static_cast<std::uint32_t>(need);
  }
  const auto disk = std::max(had, static_cast<std::uint32_t>(need));
  state_.used_bytes += disk - had;
  const Place place{*own, ++state_.sequence};
  file_.put(file_.entry_at(*own), Entry{.name = name, .generation = place.generation});
  file_.put(file_.policy_at(*own),
            Policy{.queue = Queue::kFilling, .disk_bytes = disk, .since = place.generation});
  if (!local_.filling.try_claim(*own)) return std::nullopt;
  if (!file_.try_lock(slot_lock(*own))) {
    local_.filling.release(*own);
    return std::nullopt;
  }
  return place;
}

std::uint64_t Change::publish(const Place& place, const Entry& filled, const Use& use) {
  begin();
  const auto entry = file_.get<Entry>(file_.entry_at(place.slot));
  auto policy = file_.get<Policy>(file_.policy_at(place.slot));
  std::uint64_t generation = 0;
  const bool ours = entry.generation == place.generation && policy.queue == Queue::kFilling;
  if (ours && look_up(file_, filled.name)) {  // somebody did not wait for us
    release(place.slot, Room::kGiveBack);
  } else if (ours) {
    Entry whole = filled;
    whole.generation = ++state_.sequence;
    whole.whole = 1;
    whole.crc = crc_of(whole);
    const bool again = was_here(filled.name);
    add_cell(filled.name, place.slot);
    file_.put(file_.entry_at(place.slot), whole);
    policy = {.next_use = use.next,
              .order = use.order,
              .queue = again ? Queue::kMain : Queue::kSmall,
              .disk_bytes = policy.disk_bytes,
              .since = whole.generation};
    file_.put(file_.policy_at(place.slot), policy);
    if (!again) state_.small_bytes += policy.disk_bytes;
    made_.filled_bytes += whole.bytes;
    generation = whole.generation;
  }
  file_.unlock(slot_lock(place.slot));
  local_.filling.release(place.slot);
  return generation;
}

void Change::give_back(const Place& place) {
  begin();
  if (file_.get<Entry>(file_.entry_at(place.slot)).generation == place.generation)
    release(place.slot, Room::kGiveBack);
  file_.unlock(slot_lock(place.slot));
  local_.filling.release(place.slot);
}

void Change::forget(std::uint64_t slot, std::uint64_t generation) {
  const auto entry = file_.get<Entry>(file_.entry_at(slot));
  const auto policy = file_.get<Policy>(file_.policy_at(slot));
  if (entry.generation != generation || policy.queue == Queue::kFilling) return;
  begin();
  release(slot, Room::kGiveBack);
}

void Change::set_cap(std::int64_t bytes) {
  if (state_.cap_bytes == bytes) return;
  begin();
  state_.cap_bytes = bytes;
  const LiveOrders orders(file_);
  while (state_.used_bytes > std::max<std::int64_t>(0, budget())) {
    local_.victims.look_again(file_, state_, orders);
    const auto slot = local_.victims.next(file_, state_, orders, std::nullopt);
    if (!slot) break;
    ++made_.evictions;
    release(*slot, Room::kGiveBack);
  }
}

void Change::note_order(std::uint64_t order, std::int64_t position) {
  const auto all = file_.get<std::array<Order, kOrders>>(kOrdersAt);
  auto at = std::ranges::find(all, order, &Order::id);
  if (at == all.end()) at = std::ranges::min_element(all, {}, &Order::seen);
  file_.put(kOrdersAt + static_cast<std::uint64_t>(at - all.begin()) * sizeof(Order),
            Order{order, position, real_clock().wall_now()});
}

void Change::note_origin(std::uint64_t hash, const std::string& url) {
  for (int i = 0; i < kOrigins; ++i) {
    const std::uint64_t at = kOriginsAt + static_cast<std::uint64_t>(i) * sizeof(Origin);
    Origin origin = file_.get<Origin>(at);
    if (origin.hash == hash) return;
    if (origin.hash != 0) continue;
    origin.hash = hash;
    origin.length = static_cast<std::uint32_t>(std::min(url.size(), sizeof origin.url));
    std::memcpy(origin.url, url.data(), origin.length);
    origin.crc = crc32c(std::string_view(origin.url, origin.length));
    file_.put(at, origin);
    return;
  }
}

}  // namespace bedplate::store::cache
