#include "probe/trace_ring.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "bedplate/trace.h"

namespace bedplate::probe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr TraceRingSizes kSmall{.slots = 4, .records = 16, .text_bytes = 256};

struct Heard : TraceVisitor {
  void events(const TraceOwner& owner, std::span<const Event> events) override {
    last_owner = owner;
    all.insert(all.end(), events.begin(), events.end());
  }
  void text(const TraceOwner&, std::string_view key, std::string_view value) override {
    texts.emplace_back(key, value);
  }
  void gone(const TraceOwner& owner) override { gone_pids.push_back(owner.pid); }

  TraceOwner last_owner;
  std::vector<Event> all;
  std::vector<std::pair<std::string, std::string>> texts;
  std::vector<int> gone_pids;
};

// The memory as a writer maps it, through the path that the environment hands over.
class Writer {
 public:
  explicit Writer(const TraceRing& ring) {
    const int fd = ::open(ring.path().c_str(), O_RDWR | O_CLOEXEC);
    BEDPLATE_CHECK(fd >= 0);
    struct stat info {};
    ::fstat(fd, &info);
    bytes_ = static_cast<std::size_t>(info.st_size);
    memory_ = static_cast<unsigned char*>(
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
  }
  ~Writer() { ::munmap(memory_, bytes_); }

  TraceHeader& head() { return *reinterpret_cast<TraceHeader*>(memory_); }
  SlotHeader& slot(std::uint32_t n) {
    return *reinterpret_cast<SlotHeader*>(memory_ + head().first_slot_offset +
                                          n * head().slot_bytes);
  }
  unsigned char* bytes() { return memory_; }
  std::size_t size() const { return bytes_; }

  void claim(std::uint32_t n, pid_t pid) {
    SlotHeader& mine = slot(n);
    mine.pid = static_cast<std::uint32_t>(pid);
    mine.rank = 3;
    mine.claim_ns = static_cast<std::uint64_t>(real_clock().now());
    mine.role = 1;
    head().next_hint = (n + 1) % head().slot_count;
    std::atomic_ref(mine.state).store(1, std::memory_order_release);
  }
  void write(std::uint32_t n, EventKind kind, std::uint64_t t0, std::uint64_t duration) {
    SlotHeader& mine = slot(n);
    auto* records = reinterpret_cast<TraceRecord*>(reinterpret_cast<unsigned char*>(&mine) +
                                                   sizeof(SlotHeader) + head().text_bytes);
    const std::uint64_t number = mine.head;
    records[number % head().records_per_slot] = {
        t0, duration, static_cast<std::uint16_t>(kind), static_cast<std::uint16_t>(number), 1, 0};
    std::atomic_ref(mine.head).store(number + 1, std::memory_order_release);
  }
  void say(std::uint32_t n, std::string_view line) {
    SlotHeader& mine = slot(n);
    std::memcpy(reinterpret_cast<char*>(&mine) + sizeof(SlotHeader) + mine.text_used, line.data(),
                line.size());
    std::atomic_ref(mine.text_used)
        .store(mine.text_used + static_cast<std::uint32_t>(line.size()), std::memory_order_release);
  }

 private:
  unsigned char* memory_;
  std::size_t bytes_;
};

TEST(TraceRing, DeliversRecordsAndTextsInRunTime) {
  TraceRing ring(kSmall);
  Writer writer(ring);
  writer.claim(1, ::getpid());
  writer.write(1, EventKind::kBackward, 1500, 20);
  writer.say(1, "torch\t2.13.0\nname\ta\\tb\\nc\n");
  Heard heard;
  ring.drain(heard, 1000, real_clock().now());
  ASSERT_THAT(heard.all, SizeIs(1));
  EXPECT_EQ(heard.all[0].start, 500);
  EXPECT_EQ(heard.all[0].duration, 20);
  EXPECT_EQ(heard.last_owner.pid, ::getpid());
  EXPECT_EQ(heard.last_owner.rank, 3);
  EXPECT_THAT(heard.texts, ElementsAre(Pair("torch", "2.13.0"), Pair("name", "a\tb\nc")));
  heard = {};
  ring.drain(heard, 1000, real_clock().now());
  EXPECT_THAT(heard.all, IsEmpty());
  EXPECT_THAT(heard.texts, IsEmpty());
  EXPECT_EQ(ring.lost(), 0);
}

TEST(TraceRing, ASlowReaderLosesTheOldestAndCountsThem) {
  TraceRing ring(kSmall);
  Writer writer(ring);
  writer.claim(0, ::getpid());
  for (std::uint64_t i = 0; i < 100; ++i) writer.write(0, EventKind::kBackward, 1000 + i, 1);
  Heard heard;
  ring.drain(heard, 0, real_clock().now());
  // The four next in turn may be half overwritten already.
  ASSERT_THAT(heard.all, SizeIs(12));
  EXPECT_EQ(heard.all.front().start, 1088);
  EXPECT_EQ(ring.lost(), 88);
  EXPECT_EQ(ring.received(), 12);
}

TEST(TraceRing, ATornRecordIsLostNotDelivered) {
  TraceRing ring(kSmall);
  Writer writer(ring);
  writer.claim(0, ::getpid());
  std::atomic_ref(writer.slot(0).head)
      .store(2, std::memory_order_release);  // published before they were written
  writer.write(0, EventKind::kBackward, 7, 1);
  Heard heard;
  ring.drain(heard, 0, real_clock().now());
  EXPECT_THAT(heard.all, IsEmpty());  // another thread may be about to finish it
  ring.drain(heard, 0, real_clock().now());
  EXPECT_THAT(heard.all, SizeIs(1));
  EXPECT_EQ(ring.lost(), 2);
}

TEST(TraceRing, ARecordThatIsFinishedLateIsNotLost) {
  TraceRing ring(kSmall);
  Writer writer(ring);
  writer.claim(0, ::getpid());
  std::atomic_ref(writer.slot(0).head).store(1, std::memory_order_release);
  writer.write(0, EventKind::kBackward, 7, 1);  // number 1 before number 0
  Heard heard;
  ring.drain(heard, 0, real_clock().now());
  EXPECT_THAT(heard.all, IsEmpty());
  writer.slot(0).head = 0;
  writer.write(0, EventKind::kOptimizer, 5, 1);
  writer.slot(0).head = 2;
  ring.drain(heard, 0, real_clock().now());
  ASSERT_THAT(heard.all, SizeIs(2));
  EXPECT_EQ(heard.all[0].start, 5);
  EXPECT_EQ(ring.lost(), 0);
}

TEST(TraceRing, TimesThatCannotBeAreLost) {
  TraceRing ring(kSmall);
  Writer writer(ring);
  writer.claim(0, ::getpid());
  const Nanos now = real_clock().now();
  const auto ns = static_cast<std::uint64_t>(now);
  writer.write(0, EventKind::kBackward, ns + 3'600'000'000'000u, 1);  // in the future
  writer.write(0, EventKind::kBackward, ns - 5, std::uint64_t{1} << 63);
  writer.write(0, EventKind::kBackward, ~std::uint64_t{0}, 2);
  writer.write(0, EventKind::kBackward, ns - 5, ~std::uint64_t{0});  // ends before it begins
  writer.write(0, static_cast<EventKind>(700), ns - 5, 1);
  writer.write(0, EventKind::kBackward, ns - 5, 5);
  Heard heard;
  ring.drain(heard, now - 100, now);
  ASSERT_THAT(heard.all, SizeIs(1));
  EXPECT_EQ(heard.all[0].start, 95);
  EXPECT_EQ(ring.lost(), 5);
}

TEST(TraceRing, AClosedSlotIsDrainedAndGivenOn) {
  TraceRing ring(kSmall);
  Writer writer(ring);
  for (int owner = 0; owner < 1000; ++owner) {  // far more than there are slots
    const std::uint32_t n = writer.head().next_hint;
    ASSERT_EQ(writer.slot(n).state, 0u);
    ASSERT_EQ(writer.slot(n).head, 0u);
    writer.claim(n, ::getpid());
    writer.write(n, EventKind::kGc, 1, 1);
    std::atomic_ref(writer.slot(n).state).store(2, std::memory_order_release);
    Heard heard;
    ring.drain(heard, 0, real_clock().now());
    ASSERT_THAT(heard.all, SizeIs(1));
    ASSERT_THAT(heard.gone_pids, ElementsAre(::getpid()));
  }
}

TEST(TraceRing, TheSlotOfADeadOwnerIsDrainedAndFreed) {
  TraceRing ring(kSmall);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    Writer writer(ring);
    writer.claim(0, ::getpid());
    writer.write(0, EventKind::kCollective, 5, 5);
    (void)!::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  Heard heard;
  Nanos now = real_clock().now();
  ring.drain(heard, 0, now);
  EXPECT_THAT(heard.gone_pids, IsEmpty());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ring.drain(heard, 0, now + 2 * kSecond);
  EXPECT_THAT(heard.gone_pids, ElementsAre(child));
  EXPECT_THAT(heard.all, SizeIs(1));
  EXPECT_EQ(Writer(ring).slot(0).state, 0u);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(TraceRing, AnOwnerThatIsGoneBeforeItIsSeenIsHeardAndFreed) {
  TraceRing ring(kSmall);
  const pid_t child = ::fork();
  if (child == 0) {
    Writer writer(ring);
    writer.claim(1, ::getpid());
    writer.write(1, EventKind::kFetch, 5, 5);
    ::_exit(0);  // without closing its slot
  }
  ::waitpid(child, nullptr, 0);
  Heard heard;
  Nanos now = real_clock().now();
  for (int i = 0; i < 5; ++i, now += kSecond / 2) ring.drain(heard, 0, now);
  EXPECT_THAT(heard.all, SizeIs(1));
  EXPECT_THAT(heard.gone_pids, ElementsAre(child));
  EXPECT_EQ(Writer(ring).slot(1).state, 0u);
}

TEST(TraceRing, AnOwnerInAnotherNamespaceIsToldByItsNumberHere) {
  int asked = 0;
  TraceRing ring(kSmall, [&](int pid, int) {
    ++asked;
    EXPECT_EQ(pid, 1);
    // The list of the job's processes is younger than the claim the first time.
    return asked == 1 ? PidAnswer{PidAnswer::Kind::kUnknown, 0}
                      : PidAnswer{PidAnswer::Kind::kFound, ::getpid()};
  });
  Writer writer(ring);
  writer.claim(0, 1);
  writer.write(0, EventKind::kFetch, 5, 5);
  Heard heard;
  Nanos now = real_clock().now();
  ring.drain(heard, 0, now);
  EXPECT_THAT(heard.all, IsEmpty());
  ring.drain(heard, 0, now + kSecond);
  ASSERT_THAT(heard.all, SizeIs(1));
  EXPECT_EQ(heard.last_owner.pid, ::getpid());
}

TEST(TraceRing, TenThousandOwnersFindRoomInFiveHundredSlots) {
  TraceRing ring;
  Heard heard;
  std::int64_t claimed = 0;
  for (int batch = 0; batch < 50; ++batch) {
    for (int i = 0; i < 200; ++i) {
      trace::detail::Writer* writer = trace::detail::claim_slot(ring.path().c_str());
      ASSERT_NE(writer, nullptr) << batch << " " << i;
      ++claimed;
      const auto now = trace::detail::now();
      for (int n = 0; n < 40; ++n) writer->emit(13, now, 0, 1, static_cast<std::uint64_t>(n));
      *writer->at<std::uint32_t>(trace::detail::kState) = 2;
      ::munmap(writer->mapping, writer->mapping_bytes);
      delete writer;
    }
    ring.drain(heard, real_clock().now() - kSecond, real_clock().now());
  }
  EXPECT_EQ(claimed, 10'000);
  EXPECT_THAT(heard.all, SizeIs(400'000));
  EXPECT_THAT(heard.gone_pids, SizeIs(10'000));
  EXPECT_EQ(ring.lost(), 0);
  // What the owners wrote went back to the system: a page of each slot stays.
  struct stat info {};
  ASSERT_EQ(::stat(ring.path().c_str(), &info), 0);
  EXPECT_LE(info.st_blocks * 512, 513 * 4096);
}

TEST(TraceRing, ADeathInTheMiddleOfARecordLosesOnlyThat) {
  TraceRing ring(kSmall);
  const pid_t child = ::fork();
  if (child == 0) {
    Writer writer(ring);
    writer.claim(3, ::getpid());
    writer.write(3, EventKind::kFetch, 5, 5);
    writer.write(3, EventKind::kFetch, 10, 5);
    SlotHeader& mine = writer.slot(3);
    auto* records = reinterpret_cast<TraceRecord*>(reinterpret_cast<unsigned char*>(&mine) +
                                                   sizeof(SlotHeader) + writer.head().text_bytes);
    records[2].t0_ns = 77;  // and no more of it
    mine.head = 3;
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  Heard heard;
  Nanos now = real_clock().now();
  for (int i = 0; i < 5; ++i, now += kSecond / 2) ring.drain(heard, 0, now);
  EXPECT_THAT(heard.all, SizeIs(2));
  EXPECT_EQ(ring.lost(), 1);
}

TEST(TraceRing, NobodyCanShrinkTheMemory) {
  TraceRing ring(kSmall);
  const int fd = ::open(ring.path().c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(::ftruncate(fd, 0), -1);
  ::close(fd);
}

TEST(TraceRing, AFileSizeLimitMakesFewerSlots) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    TraceRing ring;
    struct stat info {};
    ::stat(ring.path().c_str(), &info);
    bool refused = false;
    const rlimit none{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &none);
    try {
      TraceRing other;
    } catch (const Error& error) {
      refused = error.code() == Code::kNoSpace;
    }
    ::_exit(info.st_size > 0 && info.st_size <= 1 << 20 && refused ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(TraceRing, ThreadsOfTheCppHeaderLoseNothing) {
  TraceRing ring({.slots = 2, .records = 8192, .text_bytes = 1024});
  trace::detail::Writer* writer = trace::detail::claim_slot(ring.path().c_str());
  ASSERT_NE(writer, nullptr);
  constexpr int kThreads = 4, kEach = 20'000;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        writer->emit(13, trace::detail::now(), 0, static_cast<std::uint32_t>(t),
                     static_cast<std::uint64_t>(i));
      }
      --running;
    });
  }
  Heard heard;
  const Nanos started = real_clock().now() - kSecond;
  while (running > 0) ring.drain(heard, started, real_clock().now());
  for (auto& thread : threads) thread.join();
  ring.drain(heard, started, real_clock().now());
  ring.drain(heard, started, real_clock().now());
  EXPECT_EQ(ring.received() + ring.lost(), kThreads * kEach);
  EXPECT_THAT(heard.texts, ElementsAre(Pair("hooks", "trace.h")));
  std::array<std::uint64_t, kThreads> next{};
  for (const Event& event : heard.all) {
    ASSERT_LT(event.tid, kThreads);
    ASSERT_GE(event.arg, next[event.tid]);
    next[event.tid] = event.arg + 1;
  }
  ::munmap(writer->mapping, writer->mapping_bytes);
  delete writer;
}

TEST(TraceRing, SaysWhatAnOwnerIsInsideOf) {
  TraceRing ring(kSmall);
  Writer writer(ring);
  writer.claim(0, ::getpid());
  writer.slot(0).open_since_ns = 5000;
  writer.slot(0).open_kind = static_cast<std::uint32_t>(EventKind::kCollective);
  Heard heard;
  ring.drain(heard, 1000, real_clock().now());
  const auto inside = ring.inside(1000);
  ASSERT_THAT(inside, SizeIs(1));
  EXPECT_EQ(inside[0].kind, EventKind::kCollective);
  EXPECT_EQ(inside[0].since, 4000);
}

TEST(TraceRing, NothingIsLostOrInventedWhileAWriterRuns) {
  TraceRing ring({.slots = 2, .records = 1024, .text_bytes = 256});
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> written{0};
  Writer writer(ring);
  writer.claim(0, ::getpid());
  std::thread thread([&] {
    std::uint64_t n = 0;
    for (; !stop; ++n) writer.write(0, EventKind::kBackward, 2 * n, 2 * n + 1);
    written = n;
  });
  Heard heard;
  const Nanos until = real_clock().now() + kSecond / 4;
  while (real_clock().now() < until) ring.drain(heard, 0, real_clock().now());
  stop = true;
  thread.join();
  ring.drain(heard, 0, real_clock().now());
  EXPECT_EQ(static_cast<std::uint64_t>(ring.received() + ring.lost()), written.load());
  EXPECT_GT(ring.received(), 0);
  for (const Event& event : heard.all) ASSERT_EQ(event.duration, event.start + 1);
}

TEST(TraceRing, SurvivesGarbageInEveryField) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  TraceRing ring(kSmall);
  Writer writer(ring);
  for (int round = 0; round < 500; ++round) {
    for (std::size_t i = 0; i + 8 <= writer.size(); i += 8) {
      const std::uint64_t word = random() % 3 == 0 ? random() : random() % 5;
      std::memcpy(writer.bytes() + i, &word, 8);
    }
    Heard heard;
    ring.drain(heard, 12345, real_clock().now());
    ASSERT_LE(heard.all.size(), 4u * 16u);
    for (const auto& [key, value] : heard.texts) ASSERT_LE(key.size() + value.size(), 3u * 256u);
    ring.inside(0);
  }
  EXPECT_GE(ring.lost(), 0);
}

}  // namespace
}  // namespace bedplate::probe
