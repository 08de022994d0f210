#include "store/cache/internal/victims.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/clock.h"

namespace bedplate::store::cache {
namespace {

constexpr std::uint64_t kScannedEachTime = 4096;
constexpr int kChances = 128;           // that one eviction may give to others
constexpr std::uint64_t kSmallOf = 10;  // the small queue's share is one of so many

}  // namespace

LiveOrders::LiveOrders(const CacheFile& file) {
  const auto all = file.get<std::array<Order, kOrders>>(kOrdersAt);
  const Nanos now = real_clock().wall_now();
  for (const Order& order : all) {
    if (order.id != 0 && order.seen > now - kOrderLives && order.seen < now + kOrderLives)
      orders_.push_back(order);
  }
}

bool LiveOrders::lives(std::uint64_t order) const {
  return order != 0 && std::ranges::find(orders_, order, &Order::id) != orders_.end();
}

std::optional<std::int64_t> LiveOrders::distance(std::uint64_t order, std::int64_t next_use) const {
  if (order == 0) return std::nullopt;
  const auto at = std::ranges::find(orders_, order, &Order::id);
  if (at == orders_.end()) return std::nullopt;
  if (next_use == kNeverUsed) return kNeverUsed;
  std::int64_t difference = 0;
  if (__builtin_sub_overflow(next_use, at->position, &difference) || difference == INT64_MIN)
    return kNeverUsed - 1;
  return std::min(difference < 0 ? -difference : difference, kNeverUsed - 1);
}

void Victims::look_again(const CacheFile& file, const State& state, const LiveOrders& orders) {
  if (state.high_water <= kScannedEachTime) scan(file, state, orders);
}

void Victims::sort(List& list, std::size_t most) {
  const auto better = [](const Candidate& a, const Candidate& b) { return a.rank > b.rank; };
  if (list.size() > most) {
    std::ranges::nth_element(list, list.begin() + static_cast<std::ptrdiff_t>(most), better);
    list.resize(most);
  }
  std::ranges::sort(list, [](const Candidate& a, const Candidate& b) { return a.rank < b.rank; });
}

void Victims::scan(const CacheFile& file, const State& state, const LiveOrders& orders) {
  small_.clear();
  main_.clear();
  ordered_.clear();
  free_.clear();
  filling_.clear();
  constexpr std::uint64_t kAtOnce = 1 << 15;
  std::vector<Policy> policies;
  for (std::uint64_t first = 0; first < state.high_water; first += kAtOnce) {
    policies.resize(std::min(kAtOnce, state.high_water - first));
    file.read(file.policy_at(first), std::as_writable_bytes(std::span(policies)));
    for (std::size_t i = 0; i < policies.size(); ++i) {
      const Policy& policy = policies[i];
      const std::uint64_t slot = first + i;
      const auto distance = orders.distance(policy.order, policy.next_use);
      const auto since = static_cast<std::int64_t>(policy.since & INT64_MAX);
      if (policy.queue == Queue::kFree) {
        free_.push_back(slot);
      } else if (policy.queue == Queue::kFilling) {
        filling_.push_back(slot);
      } else if (distance) {
        ordered_.push_back({slot, policy, *distance});
      } else {
        (policy.queue == Queue::kSmall ? small_ : main_).push_back({slot, policy, -since});
      }
    }
  }
  const auto most = static_cast<std::size_t>(std::max<std::uint64_t>(64, state.high_water / 64));
  const bool exact = state.high_water <= kScannedEachTime;
  for (List* list : {&small_, &main_, &ordered_}) sort(*list, exact ? list->size() : most);
  std::ranges::reverse(free_);  // the lowest first
}

std::optional<Victims::Candidate> Victims::pop(const CacheFile& file, const LiveOrders& orders,
                                               List& list) {
  while (!list.empty()) {
    Candidate candidate = list.back();
    list.pop_back();
    const auto now = file.get<Policy>(file.policy_at(candidate.slot));
    if (now.queue != candidate.policy.queue || now.since != candidate.policy.since ||
        now.next_use != candidate.policy.next_use || now.order != candidate.policy.order)
      continue;
    candidate.policy = now;
    const auto distance = orders.distance(now.order, now.next_use);
    if (distance) candidate.rank = *distance;
    if (distance.has_value() == (&list == &ordered_)) return candidate;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Victims::dead_filling(const CacheFile& file) {
  while (!filling_.empty()) {
    const std::uint64_t slot = filling_.back();
    filling_.pop_back();
    if (file.get<Policy>(file.policy_at(slot)).queue == Queue::kFilling && !filled_here(slot) &&
        !file.locked_by_another_process(slot_lock(slot)))
      return slot;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Victims::fifo_step(const CacheFile& file, State& state,
                                                const LiveOrders& orders) {
  const bool from_small =
      !small_.empty() &&
      (main_.empty() || static_cast<std::uint64_t>(std::max<std::int64_t>(0, state.small_bytes)) >
                            static_cast<std::uint64_t>(state.used_bytes) / kSmallOf);
  auto candidate = pop(file, orders, from_small ? small_ : main_);
  if (!candidate) return std::nullopt;
  Policy policy = candidate->policy;
  if (policy.uses <= (from_small ? 1 : 0)) return candidate->slot;
  if (from_small) state.small_bytes -= policy.disk_bytes;
  policy.queue = Queue::kMain;
  policy.uses = from_small ? 0 : static_cast<std::uint8_t>(std::min<int>(policy.uses, 3) - 1);
  policy.since = ++state.sequence;
  file.put(file.policy_at(candidate->slot), policy);
  main_.insert(main_.begin(), {candidate->slot, policy, 0});
  gave_chance_ = true;
  return std::nullopt;
}

std::optional<std::uint64_t> Victims::next(const CacheFile& file, State& state,
                                           const LiveOrders& orders,
                                           std::optional<std::int64_t> newcomer) {
  if (const auto slot = dead_filling(file)) return slot;
  for (int round = 0; round < 2; ++round) {
    std::optional<Candidate> farthest = pop(file, orders, ordered_);
    if (farthest && farthest->rank == kNeverUsed) return farthest->slot;
    std::optional<std::uint64_t> cold;
    for (int i = 0; i < kChances && !cold && !(small_.empty() && main_.empty()); ++i) {
      gave_chance_ = false;
      cold = fifo_step(file, state, orders);
      if (farthest && gave_chance_) break;  // those that were used again stay before the far ones
    }
    if (cold) {
      if (farthest) ordered_.push_back(*farthest);
      return cold;
    }
    if (farthest) {
      if (!newcomer || farthest->rank > *newcomer) return farthest->slot;
      ordered_.push_back(*farthest);
      return std::nullopt;
    }
    if (round == 0) scan(file, state, orders);
  }
  // All were used again, and again: the first in line goes.
  for (List* list : {&main_, &small_}) {
    if (const auto candidate = pop(file, orders, *list)) return candidate->slot;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Victims::free_slot(const CacheFile& file, State& state,
                                                const LiveOrders& orders) {
  for (int round = 0; state.free_slots > 0 && round < 2; ++round) {
    while (!free_.empty()) {
      const std::uint64_t slot = free_.back();
      free_.pop_back();
      if (file.get<Policy>(file.policy_at(slot)).queue == Queue::kFree) return slot;
    }
    if (round == 0) scan(file, state, orders);
  }
  if (free_.empty()) state.free_slots = 0;
  if (state.high_water < file.header().slots) return state.high_water++;
  return std::nullopt;
}

}  // namespace bedplate::store::cache
