#include "probe/trace_ring.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/error.h"

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
    struct stat info{};
    ::fstat(fd, &info);
    bytes_ = static_cast<std::size_t>(info.st_size);
    memory_ = static_cast<unsigned char*>(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    ::close(fd);
  }
  ~Writer() { ::munmap(memory_, bytes_); }

  TraceHeader& head() { return *reinterpret_cast<TraceHeader*>(memory_); }
  SlotHeader& slot(std::uint32_t n) {
    return *reinterpret_cast<SlotHeader*>(memory_ + head().first_slot_offset + n * head().slot_bytes);
  }
  unsigned char* bytes() { return memory_; }
  std::size_t size() const { return bytes_; }

  void claim(std::uint32_t n, pid_t pid) {
    SlotHeader& mine = slot(n);
    mine.pid = static_cast<std::uint32_t>(pid);
    mine.rank = 3;
    mine.claim_ns = static_cast<std::uint64_t>(real_clock().now());
    mine.role = 1;
    std::atomic_ref(mine.state).store(1, std::memory_order_release);
  }
  void write(std::uint32_t n, EventKind kind, std::uint64_t t0, std::uint64_t duration) {
    SlotHeader& mine = slot(n);
    auto* records = reinterpret_cast<TraceRecord*>(reinterpret_cast<unsigned char*>(&mine) + sizeof(SlotHeader) + head().text_bytes);
    const std::uint64_t number = mine.head;
    records[number % head().records_per_slot] = {t0, duration, static_cast<std::uint16_t>(kind),
                                                 static_cast<std::uint16_t>(number), 1, 0};
    std::atomic_ref(mine.head).store(number + 1, std::memory_order_release);
  }
  void say(std::uint32_t n, std::string_view line) {
    SlotHeader& mine = slot(n);
    std::memcpy(reinterpret_cast<char*>(&mine) + sizeof(SlotHeader) + mine.text_used, line.data(), line.size());
    std::atomic_ref(mine.text_used).store(mine.text_used + static_cast<std::uint32_t>(line.size()), std::memory_order_release);
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
  ASSERT_THAT(heard.all, SizeIs(16));
  EXPECT_EQ(heard.all.front().start, 1084);
  EXPECT_EQ(ring.lost(), 84);
  EXPECT_EQ(ring.received(), 16);
}

TEST(TraceRing, ATornRecordIsLostNotDelivered) {
  TraceRing ring(kSmall);
  Writer writer(ring);
  writer.claim(0, ::getpid());
  std::atomic_ref(writer.slot(0).head).store(2, std::memory_order_release);  // published before they were written
  writer.write(0, EventKind::kBackward, 7, 1);
  Heard heard;
  ring.drain(heard, 0, real_clock().now());
  EXPECT_THAT(heard.all, SizeIs(1));
  EXPECT_EQ(ring.lost(), 2);
}

TEST(TraceRing, AClosedSlotIsDrainedAndGivenOn) {
  TraceRing ring(kSmall);
  Writer writer(ring);
  for (int owner = 0; owner < 1000; ++owner) {  // far more than there are slots
    ASSERT_EQ(writer.slot(2).state, 0u);
    writer.slot(2).head = 0;
    writer.claim(2, ::getpid());
    writer.slot(2).claim_ns = static_cast<std::uint64_t>(owner) + 1;
    writer.write(2, EventKind::kGc, 1, 1);
    std::atomic_ref(writer.slot(2).state).store(2, std::memory_order_release);
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
