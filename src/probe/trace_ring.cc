#include "probe/trace_ring.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "os/host_root.h"

namespace bedplate::probe {
namespace {

// An owner in another PID namespace names a pid that means nothing here: it is given up after this long without a word.
constexpr Nanos kPatience = 60 * kSecond;
constexpr Nanos kBetweenLooks = kSecond / 2;  // at an owner's /proc entry
constexpr std::uint32_t kMostRank = 1u << 24;

template <typename T>
T load(T& shared) {
  return std::atomic_ref<T>(shared).load(std::memory_order_acquire);
}

template <typename T>
void store(T& shared, T value) {
  std::atomic_ref<T>(shared).store(value, std::memory_order_release);
}

int in_range(std::int32_t value, int fallback) {
  return value < -1 || value > static_cast<std::int32_t>(kMostRank) ? fallback : value;
}

TraceOwner owner_of(SlotHeader& header) {
  TraceOwner owner;
  const auto pid = load(header.pid);
  const auto ppid = load(header.ppid);
  owner.pid = pid > 0 && pid <= (1u << 22) ? static_cast<int>(pid) : 0;  // PID_MAX_LIMIT
  owner.ppid = ppid <= (1u << 22) ? static_cast<int>(ppid) : 0;
  owner.rank = in_range(load(header.rank), -1);
  owner.local_rank = in_range(load(header.local_rank), -1);
  owner.world_size = std::max(0, in_range(load(header.world_size), 0));
  const auto role = load(header.role);
  owner.role = role == 1 ? SlotRole::kMain : role == 2 ? SlotRole::kWorker : SlotRole::kOther;
  const auto signal_number = load(header.stack_signal);
  owner.stack_signal = signal_number > 0 && signal_number <= 64 ? static_cast<int>(signal_number) : 0;
  return owner;
}

std::int64_t process_start(int pid) {
  static const os::HostRoot live;
  const auto text = live.read(fmt::format("/proc/{}/stat", pid));
  if (!text) return -1;
  const auto after_name = text->rfind(')');
  if (after_name == std::string::npos) return -1;
  const auto fields = words(std::string_view(*text).substr(after_name + 1));
  return fields.size() > 19 ? to_int(fields[19]).value_or(-1) : -1;
}

std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    ++i;
    out += text[i] == 'n' ? '\n' : text[i] == 't' ? '\t' : text[i];
  }
  return out;
}

}  // namespace

TraceRing::TraceRing(TraceRingSizes sizes)
    : sizes_(sizes), fd_(::memfd_create("bedplate-trace", MFD_CLOEXEC)) {
  BEDPLATE_CHECK(sizes.records > 0 && (sizes.records & (sizes.records - 1)) == 0);
  if (!fd_) throw errno_error(errno, "cannot make the shared memory for step events (memfd_create)");
  slot_bytes_ = sizeof(SlotHeader) + sizes.text_bytes + sizes.records * sizeof(TraceRecord);
  slot_bytes_ = (slot_bytes_ + 4095) / 4096 * 4096;
  bytes_ = kTraceHeaderBytes + sizes.slots * slot_bytes_;
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0) {
    throw errno_error(errno, "cannot size the shared memory for step events");
  }
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) throw errno_error(errno, "cannot map the shared memory for step events");
  memory_ = static_cast<unsigned char*>(memory);
  auto& head = *reinterpret_cast<TraceHeader*>(memory_);
  head.slot_count = sizes.slots;
  head.slot_bytes = static_cast<std::uint32_t>(slot_bytes_);
  head.records_per_slot = sizes.records;
  head.text_bytes = sizes.text_bytes;
  head.first_slot_offset = kTraceHeaderBytes;
  std::memcpy(head.magic, kTraceMagic, sizeof kTraceMagic);
  slots_.resize(sizes.slots);
}

TraceRing::~TraceRing() {
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
}

std::string TraceRing::path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), fd_.get()); }

SlotHeader& TraceRing::header(std::uint32_t number) const {
  return *reinterpret_cast<SlotHeader*>(memory_ + kTraceHeaderBytes + number * slot_bytes_);
}

void TraceRing::lose(std::uint64_t count) {
  const auto room = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() - lost_);
  lost_ += static_cast<std::int64_t>(std::min(count, room));
}

void TraceRing::drain(TraceVisitor& visitor, Nanos started, Nanos now) {
  fullness_ = 0;
  for (std::uint32_t number = 0; number < sizes_.slots; ++number) {
    // A free slot that was never claimed is not touched, so that its pages are never made.
    if (!slots_[number].claimed && load(header(number).state) == static_cast<std::uint32_t>(SlotState::kFree)) continue;
    drain_slot(number, visitor, started, now);
  }
}

void TraceRing::drain_slot(std::uint32_t number, TraceVisitor& visitor, Nanos started, Nanos now) {
  Slot& slot = slots_[number];
  SlotHeader& shared = header(number);
  const auto state = load(shared.state);
  if (!slot.claimed || load(shared.claim_ns) != slot.claim_ns) {
    slot = Slot{.claimed = true, .owner = owner_of(shared), .claim_ns = load(shared.claim_ns), .quiet_since = now};
    slot.process_start = process_start(slot.owner.pid);
  }
  const TraceOwner owner = owner_of(shared);
  slot.owner = owner;
  // Death is asked before the last read, so that nothing written before it is missed.
  const bool over = state != static_cast<std::uint32_t>(SlotState::kClaimed) || is_dead(slot, now);
  const bool said = read_text(slot, shared, visitor);
  std::vector<Event> events;
  const bool moved = read_records(slot, shared, events, started);
  if (!events.empty()) visitor.events(owner, events);
  if (said || moved) slot.quiet_since = now;
  if (!over) return;
  visitor.gone(owner);
  slot = Slot{};
  std::memset(&shared.pid, 0, sizeof(SlotHeader) - sizeof shared.state);
  store(shared.state, static_cast<std::uint32_t>(SlotState::kFree));
}

bool TraceRing::is_dead(Slot& slot, Nanos now) const {
  if (now - slot.looked < kBetweenLooks) return false;
  slot.looked = now;
  if (slot.process_start >= 0) return process_start(slot.owner.pid) != slot.process_start;
  return now - slot.quiet_since > kPatience;
}

bool TraceRing::read_records(Slot& slot, SlotHeader& shared, std::vector<Event>& events, Nanos started) {
  const std::uint64_t head = load(shared.head);
  if (head == slot.next) return false;
  if (head < slot.next) {  // no honest writer goes back
    slot.next = head;
    return true;
  }
  std::uint64_t from = slot.next;
  if (head - from > sizes_.records) {
    lose(head - from - sizes_.records);
    from = head - sizes_.records;
  }
  fullness_ = std::max(fullness_, static_cast<double>(head - from) / sizes_.records);
  const auto* records = reinterpret_cast<const TraceRecord*>(reinterpret_cast<const unsigned char*>(&shared) +
                                                              sizeof(SlotHeader) + sizes_.text_bytes);
  std::vector<TraceRecord> copy(static_cast<std::size_t>(head - from));
  for (std::uint64_t i = from; i < head; ++i) {
    std::memcpy(&copy[static_cast<std::size_t>(i - from)], &records[i & (sizes_.records - 1)], sizeof(TraceRecord));
  }
  // What the writer may have overwritten while we copied is lost, however whole it looks.
  std::atomic_thread_fence(std::memory_order_acquire);
  const std::uint64_t later = load(shared.head);
  const std::uint64_t first_safe = later > sizes_.records ? later - sizes_.records : 0;
  events.reserve(copy.size());
  for (std::uint64_t i = from; i < head; ++i) {
    const TraceRecord& record = copy[static_cast<std::size_t>(i - from)];
    if (i < first_safe || record.kind == 0 || record.sequence != (i & 0xFFFF)) {
      lose(1);
      continue;
    }
    events.push_back({.start = static_cast<Nanos>(record.t0_ns - static_cast<std::uint64_t>(started)),
                      .duration = static_cast<Nanos>(record.duration_ns),
                      .kind = record.kind,
                      .tid = record.tid,
                      .arg = record.arg});
  }
  received_ += static_cast<std::int64_t>(events.size());
  slot.next = head;
  return true;
}

bool TraceRing::read_text(Slot& slot, SlotHeader& shared, TraceVisitor& visitor) {
  const std::uint32_t used = std::min(load(shared.text_used), sizes_.text_bytes);
  if (used <= slot.text_read) return false;
  std::string text(used - slot.text_read, '\0');
  std::memcpy(text.data(), reinterpret_cast<const char*>(&shared) + sizeof(SlotHeader) + slot.text_read, text.size());
  slot.text_read = used;
  for (const auto line : split(text, '\n')) {
    const auto tab = line.find('\t');
    if (tab == std::string_view::npos || tab == 0) continue;
    visitor.text(slot.owner, to_utf8(line.substr(0, tab)), to_utf8(unescape(line.substr(tab + 1))));
  }
  return true;
}

std::vector<TraceRing::Inside> TraceRing::inside(Nanos started) const {
  std::vector<Inside> all;
  for (std::uint32_t number = 0; number < sizes_.slots; ++number) {
    if (!slots_[number].claimed) continue;
    SlotHeader& shared = header(number);
    const auto kind = load(shared.open_kind);
    if (kind == 0 || kind > 0xFFFF) continue;
    all.push_back({.owner = owner_of(shared),
                   .kind = static_cast<EventKind>(kind),
                   .arg = load(shared.open_arg),
                   .since = static_cast<Nanos>(load(shared.open_since_ns) - static_cast<std::uint64_t>(started))});
  }
  std::stable_sort(all.begin(), all.end(), [](const Inside& a, const Inside& b) { return a.since < b.since; });
  return all;
}

}  // namespace bedplate::probe
