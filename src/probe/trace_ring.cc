#include "probe/trace_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "probe/internal/proc_stat.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

constexpr std::size_t kPage = 4096;
// How long an owner without a word is kept that lives in another PID namespace, unseen.
constexpr Nanos kPatienceAbroad = 60 * kSecond;
constexpr Nanos kBetweenLooks = kSecond / 2;  // at an owner's /proc entry
constexpr int kLooksToFind = 3;  // an owner younger than the list of the job's processes
constexpr int kDrainsPerFullScan = 16;
constexpr std::int32_t kMostRank = 1 << 24;
constexpr std::uint32_t kMostPid = 1u << 22;  // PID_MAX_LIMIT
constexpr std::uint16_t kMostKind = 255;
constexpr Nanos kClockSlack = kSecond;
constexpr Nanos kLongest = 30LL * 24 * 3600 * kSecond;
// Threads of one process that may be in the middle of a record at the same time.
constexpr std::uint64_t kInFlight = 64;

int in_range(std::int32_t value, int fallback) {
  return value < -1 || value > kMostRank ? fallback : value;
}

TraceOwner owner_of(const SlotHeader& header, int pid) {
  TraceOwner owner;
  owner.pid = pid;
  owner.ppid = header.ppid <= kMostPid ? static_cast<int>(header.ppid) : 0;
  owner.rank = in_range(header.rank, -1);
  owner.local_rank = in_range(header.local_rank, -1);
  owner.world_size = std::max(0, in_range(header.world_size, 0));
  owner.role = header.role == 1   ? SlotRole::kMain
               : header.role == 2 ? SlotRole::kWorker
                                  : SlotRole::kOther;
  owner.stack_signal = header.stack_signal <= 64 ? static_cast<int>(header.stack_signal) : 0;
  return owner;
}

// CLOCK_MONOTONIC of a time in /proc, which counts from boot with the time of suspension.
Nanos monotonic(std::int64_t ticks_since_boot) {
  timespec boot{}, mono{};
  clock_gettime(CLOCK_BOOTTIME, &boot);
  clock_gettime(CLOCK_MONOTONIC, &mono);
  const Nanos suspended = (boot.tv_sec - mono.tv_sec) * kSecond + (boot.tv_nsec - mono.tv_nsec);
  return ticks_since_boot * clock_tick() - suspended;
}

// -1: gone, or only waiting to be reaped.
std::int64_t process_start(const os::HostRoot& host, int pid) {
  const auto text = host.read(fmt::format("/proc/{}/stat", pid));
  const auto stat = text ? parse_proc_stat(*text) : std::nullopt;
  if (!stat) return -1;
  if ((stat->state == 'Z' && stat->threads.value_or(1) <= 1) || stat->state == 'X') return -1;
  return stat->start_ticks.value_or(-1);
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

os::UniqueFd make_memory() {
#ifndef MFD_NOEXEC_SEAL
  constexpr unsigned kNoExec = 0x8;
#else
  constexpr unsigned kNoExec = MFD_NOEXEC_SEAL;
#endif
  // Machines may demand the flag (vm.memfd_noexec), kernels before 6.3 do not know it.
  for (const unsigned extra : {kNoExec, 0u}) {
    os::UniqueFd fd(::memfd_create("bedplate-trace", MFD_CLOEXEC | MFD_ALLOW_SEALING | extra));
    if (fd) return fd;
  }
  throw errno_error(errno, "cannot make the shared memory for step events (memfd_create)");
}

// How many of the wanted slots the file size limit leaves room for: beyond it, sizing the memory
// would not only fail but raise SIGXFSZ.
std::uint32_t slots_within_limit(std::uint32_t wanted, std::uint64_t slot_bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const rlim_t room = limit.rlim_cur > kTraceHeaderBytes ? limit.rlim_cur - kTraceHeaderBytes : 0;
  return static_cast<std::uint32_t>(std::min<rlim_t>(wanted, room / slot_bytes));
}

}  // namespace

TraceRing::TraceRing(TraceRingSizes sizes, PidFinder find_pid)
    : sizes_(sizes), find_pid_(std::move(find_pid)), fd_(make_memory()) {
  BEDPLATE_CHECK(sizes.records > 0 && (sizes.records & (sizes.records - 1)) == 0);
  slot_bytes_ =
      sizeof(SlotHeader) + sizes.text_bytes + std::uint64_t{sizes.records} * sizeof(TraceRecord);
  slot_bytes_ = (slot_bytes_ + kPage - 1) / kPage * kPage;
  sizes_.slots = slots_within_limit(sizes.slots, slot_bytes_);
  if (sizes_.slots == 0) {
    throw Error(Code::kNoSpace,
                "no shared memory for step events: the file size limit (ulimit -f) is below {} KiB",
                (kTraceHeaderBytes + slot_bytes_) / 1024);
  }
  if (::ftruncate(fd_.get(), static_cast<off_t>(offset_of(sizes_.slots))) != 0) {
    throw errno_error(errno, "cannot size the shared memory for step events");
  }
  TraceHeader head{};
  std::memcpy(head.magic, kTraceMagic, sizeof kTraceMagic);
  head.slot_count = sizes_.slots;
  head.slot_bytes = static_cast<std::uint32_t>(slot_bytes_);
  head.records_per_slot = sizes_.records;
  head.text_bytes = sizes_.text_bytes;
  head.first_slot_offset = kTraceHeaderBytes;
  if (::pwrite(fd_.get(), &head, sizeof head, 0) != static_cast<ssize_t>(sizeof head)) {
    throw errno_error(errno, "cannot write the shared memory for step events");
  }
  // A writer that shrank the memory would kill all others with SIGBUS.
  ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  slots_.resize(sizes_.slots);
  copy_.reserve(sizes_.records);
  events_.reserve(sizes_.records);
}

std::string TraceRing::path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), fd_.get()); }

std::uint64_t TraceRing::offset_of(std::uint32_t number) const {
  return kTraceHeaderBytes + number * slot_bytes_;
}

bool TraceRing::read(void* out, std::size_t bytes, std::uint64_t offset) const {
  return ::pread(fd_.get(), out, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

void TraceRing::lose(std::uint64_t count) {
  const auto room = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() - lost_);
  lost_ += static_cast<std::int64_t>(std::min(count, room));
}

void TraceRing::drain(TraceVisitor& visitor, Nanos started, Nanos now) {
  fullness_ = 0;
  scan_for_claims(now);
  for (std::size_t i = 0; i < claimed_.size(); ++i) {
    drain_slot(claimed_[i], visitor, started, now);
  }
  std::erase_if(claimed_, [this](std::uint32_t number) { return !slots_[number].claimed; });
}

// Claimers begin at the hint and leave it behind what they took: only what it passed over is looked
// at. Now and then all slots are, for a hint is only a hint, and always when few are free, for then
// the same ones are taken again and again.
void TraceRing::scan_for_claims(Nanos now) {
  std::uint32_t hint = 0;
  if (!read(&hint, sizeof hint, offsetof(TraceHeader, next_hint))) return;
  hint %= sizes_.slots;
  const bool all = ++drains_ % kDrainsPerFullScan == 1 || claimed_.size() > sizes_.slots / 2;
  if (hint == hint_ && !all) return;
  const std::uint32_t count = all ? sizes_.slots : (hint + sizes_.slots - hint_) % sizes_.slots;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t number = (hint_ + i) % sizes_.slots;
    if (!slots_[number].claimed) look_at(number, now);
  }
  hint_ = hint;
}

void TraceRing::look_at(std::uint32_t number, Nanos now) {
  SlotHeader header{};
  if (!read(&header, sizeof header, offset_of(number))) return;
  if (header.state == static_cast<std::uint32_t>(SlotState::kFree)) return;
  Slot& slot = slots_[number];
  slot = Slot{};
  slot.claimed = true;
  slot.pid_inside = header.pid <= kMostPid ? static_cast<int>(header.pid) : 0;
  slot.claim_ns = header.claim_ns;
  slot.owner = owner_of(header, slot.pid_inside);
  slot.quiet_since = now;
  claimed_.push_back(number);
}

// Finds the process behind the number that the owner knows itself by.
void TraceRing::resolve(Slot& slot) {
  int pid = slot.pid_inside;
  if (find_pid_) {
    const PidAnswer answer = find_pid_(slot.pid_inside, slot.owner.ppid);
    if (answer.kind == PidAnswer::Kind::kUnknown) return;
    if (answer.kind == PidAnswer::Kind::kFound) pid = answer.pid;
  }
  if (pid <= 0) return;
  const std::int64_t start = process_start(host_, pid);
  if (start < 0) return;
  // A process that began after the claim only has the owner's number. The tick is 10 ms long.
  const auto claimed = static_cast<Nanos>(slot.claim_ns);
  if (claimed > 0 && monotonic(start) > claimed + 2 * clock_tick()) return;
  slot.owner.pid = pid;
  slot.process_start = start;
  slot.resolved = true;
}

bool TraceRing::is_dead(Slot& slot, Nanos now) {
  if (slot.looked != 0 && now - slot.looked < kBetweenLooks) return false;
  slot.looked = now;
  if (slot.resolved) return process_start(host_, slot.owner.pid) != slot.process_start;
  resolve(slot);
  if (slot.resolved) return false;
  ++slot.looks;
  const bool abroad =
      find_pid_ && find_pid_(slot.pid_inside, slot.owner.ppid).kind == PidAnswer::Kind::kUnknown;
  return abroad ? now - slot.quiet_since > kPatienceAbroad : slot.looks >= kLooksToFind;
}

void TraceRing::drain_slot(std::uint32_t number, TraceVisitor& visitor, Nanos started, Nanos now) {
  Slot& slot = slots_[number];
  SlotHeader header{};
  if (!read(&header, sizeof header, offset_of(number))) return;
  // Death is asked before the last read, so that nothing written before it is missed.
  bool over = header.state != static_cast<std::uint32_t>(SlotState::kClaimed);
  if (!over && is_dead(slot, now)) {
    over = true;
    if (!read(&header, sizeof header, offset_of(number))) return;
  }
  if (over && !slot.resolved) resolve(slot);
  // What comes from a process not yet known here would be told of the wrong one.
  if (!slot.resolved && !over && slot.looks < kLooksToFind) return;
  slot.owner = owner_of(header, slot.owner.pid);
  slot.owner.here = slot.resolved;
  const bool said = read_text(number, header.text_used, visitor);
  const bool moved = read_records(number, header.head, over ? Last::kYes : Last::kNo, started, now);
  if (!events_.empty()) visitor.events(slot.owner, events_);
  if (said || moved) slot.quiet_since = now;
  if (!over) return;
  visitor.gone(slot.owner);
  free_slot(number);
  slot = Slot{};
}

// The state goes to "free" last: until then nobody claims the slot.
void TraceRing::free_slot(std::uint32_t number) {
  const auto at = static_cast<off_t>(offset_of(number));
  ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at + static_cast<off_t>(kPage),
              static_cast<off_t>(slot_bytes_ - kPage));
  static constexpr char kZeros[kPage] = {};
  constexpr std::size_t kState = sizeof(SlotHeader::state);
  (void)!::pwrite(fd_.get(), kZeros, kPage - kState, at + static_cast<off_t>(kState));
  (void)!::pwrite(fd_.get(), kZeros, kState, at);
}

// Fills events_. False when nothing has moved.
bool TraceRing::read_records(std::uint32_t number, std::uint64_t head, Last last, Nanos started,
                             Nanos now) {
  Slot& slot = slots_[number];
  const std::uint64_t size = sizes_.records;
  events_.clear();
  if (head == slot.next) return false;
  if (head < slot.next || head > std::uint64_t{1} << 62) {  // no honest writer goes back or so far
    slot.next = std::min(head, std::uint64_t{1} << 62);
    return true;
  }
  std::uint64_t from = slot.next;
  if (head - from > size) {
    lose(head - from - size);
    from = head - size;
  }
  fullness_ = std::max(fullness_, static_cast<double>(head - from) / static_cast<double>(size));
  copy_.resize(static_cast<std::size_t>(head - from));
  const std::uint64_t records = offset_of(number) + sizeof(SlotHeader) + sizes_.text_bytes;
  for (std::uint64_t i = from; i < head;) {
    const std::uint64_t place = i & (size - 1);
    const std::uint64_t count = std::min(head - i, size - place);
    if (!read(&copy_[static_cast<std::size_t>(i - from)], count * sizeof(TraceRecord),
              records + place * sizeof(TraceRecord))) {
      return false;
    }
    i += count;
  }
  // What a writer may have been overwriting while it was copied is lost, however whole it looks.
  std::uint64_t later = head;
  if (!read(&later, sizeof later, offset_of(number) + offsetof(SlotHeader, head))) return false;
  const std::uint64_t reach = later + std::min(kInFlight, size / 4);
  const std::uint64_t first_safe = later >= head && reach > size ? reach - size : 0;
  slot.next = head;
  for (std::uint64_t i = from; i < head; ++i) {
    const TraceRecord& record = copy_[static_cast<std::size_t>(i - from)];
    const bool whole = record.sequence == (i & 0xFFFF) && record.kind != 0;
    if (!whole && head - i <= kInFlight && last == Last::kNo && i >= slot.waited_for) {
      slot.waited_for = head;  // other threads were faster with the next ones: once more, later
      slot.next = i;
      break;
    }
    const auto end = record.t0_ns + record.duration_ns;
    const bool sane = record.kind <= kMostKind && record.duration_ns <= std::uint64_t{kLongest} &&
                      record.t0_ns <= static_cast<std::uint64_t>(now + kClockSlack) &&
                      end <= static_cast<std::uint64_t>(now + kClockSlack) &&
                      static_cast<Nanos>(record.t0_ns) >= started - kLongest;
    if (i < first_safe || !whole || !sane) {
      lose(1);
      continue;
    }
    events_.push_back({.start = static_cast<Nanos>(record.t0_ns) - started,
                       .duration = static_cast<Nanos>(record.duration_ns),
                       .kind = record.kind,
                       .tid = record.tid,
                       .arg = record.arg});
  }
  received_ += static_cast<std::int64_t>(events_.size());
  return true;
}

bool TraceRing::read_text(std::uint32_t number, std::uint32_t used, TraceVisitor& visitor) {
  Slot& slot = slots_[number];
  used = std::min(used, sizes_.text_bytes);
  if (used <= slot.text_read) return false;
  text_.resize(used - slot.text_read);
  if (!read(text_.data(), text_.size(), offset_of(number) + sizeof(SlotHeader) + slot.text_read)) {
    return false;
  }
  slot.text_read = used;
  for (const auto line : split(text_, '\n')) {
    const auto tab = line.find('\t');
    if (tab == std::string_view::npos || tab == 0) continue;
    visitor.text(slot.owner, to_utf8(line.substr(0, tab)), to_utf8(unescape(line.substr(tab + 1))));
  }
  return true;
}

std::vector<TraceRing::Inside> TraceRing::inside(Nanos started) const {
  std::vector<Inside> all;
  for (const std::uint32_t number : claimed_) {
    SlotHeader header{};
    if (!slots_[number].claimed || !read(&header, sizeof header, offset_of(number))) continue;
    if (header.open_kind == 0 || header.open_kind > kMostKind) continue;
    if (header.open_since_ns > std::uint64_t{1} << 62) continue;
    all.push_back({.owner = owner_of(header, slots_[number].owner.pid),
                   .kind = static_cast<EventKind>(header.open_kind),
                   .arg = header.open_arg,
                   .since = static_cast<Nanos>(header.open_since_ns) - started});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Inside& a, const Inside& b) { return a.since < b.since; });
  return all;
}

}  // namespace bedplate::probe
