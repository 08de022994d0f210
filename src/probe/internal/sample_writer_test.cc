#include "probe/internal/sample_writer.h"

#include <gmock/gmock.h>

#include <limits>

#include "base/text.h"
#include "os/test_folder.h"

namespace bedplate::probe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

class SampleWriterTest : public ::testing::Test {
 protected:
  RunData written() {
    writer_.close();
    return read_run(folder_.path());
  }
  static std::vector<std::pair<Nanos, std::int64_t>> points(const RunData& run,
                                                            std::string_view subject,
                                                            std::string_view metric) {
    std::vector<std::pair<Nanos, std::int64_t>> out;
    for (const Series& series : run.series) {
      if (series.subject != subject || series.metric != metric) continue;
      for (const Sample& sample : series.samples) out.emplace_back(sample.t, sample.value);
    }
    return out;
  }
  os::TestFolder folder_;
  RunWriter writer_{folder_.path() / "run.db"};
  SampleWriter sink_{writer_};
};

TEST_F(SampleWriterTest, EachSubjectAndMetricIsASeriesOfItsOwn) {
  sink_.set_now(kSecond);
  sink_.counter("proc/4", "2x", 1, "/a");
  sink_.gauge("proc/42", "x", 2, "/b");
  sink_.set_now(2 * kSecond);
  sink_.counter("proc/4", "2x", 5, "/a");
  sink_.gauge("proc/42", "x", -7, "/b");
  EXPECT_EQ(sink_.last("proc/4", "2x"), 5);
  EXPECT_EQ(sink_.last("proc/42", "x"), -7);
  EXPECT_EQ(sink_.last("proc/42", "2x"), std::nullopt);
  EXPECT_EQ(sink_.last("", ""), std::nullopt);
  const RunData run = written();
  ASSERT_THAT(run.series, SizeIs(2));
  EXPECT_EQ(run.series[0].kind, SeriesKind::kCounter);
  EXPECT_EQ(run.series[1].kind, SeriesKind::kGauge);
  EXPECT_EQ(run.series[1].source, "/b");
  EXPECT_THAT(points(run, "proc/4", "2x"), ElementsAre(Pair(kSecond, 1), Pair(2 * kSecond, 5)));
  EXPECT_THAT(points(run, "proc/42", "x"), ElementsAre(Pair(kSecond, 2), Pair(2 * kSecond, -7)));
}

TEST_F(SampleWriterTest, TheResourceTableHoldsTheHighestMemoryAndTheLastOfTheRest) {
  for (const std::int64_t value : {100, 900, 300}) {
    sink_.gauge("proc/42", "rss_bytes", value, "s");
    sink_.counter("proc/42", "major_faults", value, "s");
    sink_.counter("proc/42", "cpu.user_ns", value, "s");
    sink_.counter("proc/42", "io.read_bytes", value, "s");
    sink_.counter("proc/42", "something.else", value, "s");
  }
  ASSERT_NE(sink_.resource(42), nullptr);
  EXPECT_EQ(sink_.resource(42)->pid, 42);
  EXPECT_EQ(sink_.resource(42)->peak_rss_bytes, 900);
  EXPECT_EQ(sink_.resource(42)->major_faults, 300);
  EXPECT_EQ(sink_.resource(42)->user, 300);
  EXPECT_EQ(sink_.resource(42)->read_bytes, 300);
  EXPECT_EQ(sink_.resource(42)->write_bytes, 0);
}

TEST_F(SampleWriterTest, OnlyProcessesHaveResources) {
  sink_.gauge("host", "rss_bytes", 1, "s");
  sink_.gauge("thread/42/43", "rss_bytes", 1, "s");
  sink_.gauge("proc/", "rss_bytes", 1, "s");
  sink_.gauge("proc/4x", "rss_bytes", 1, "s");
  for (const int pid : {0, 4, 42, 43}) EXPECT_EQ(sink_.resource(pid), nullptr) << pid;
}

TEST_F(SampleWriterTest, AProcessIsForgottenWithItsThreadsAndNoOther) {
  for (const char* subject : {"proc/42", "thread/42/42", "thread/42/43", "proc/421", "proc/4",
                              "thread/421/1", "thread/4/42"})
    sink_.gauge(subject, "rss_bytes", 7, "s");
  sink_.forget(42);
  EXPECT_EQ(sink_.resource(42), nullptr);
  EXPECT_EQ(sink_.last("proc/42", "rss_bytes"), std::nullopt);
  EXPECT_EQ(sink_.last("thread/42/42", "rss_bytes"), std::nullopt);
  EXPECT_EQ(sink_.last("thread/42/43", "rss_bytes"), std::nullopt);
  EXPECT_EQ(sink_.last("proc/421", "rss_bytes"), 7);
  EXPECT_EQ(sink_.last("proc/4", "rss_bytes"), 7);
  EXPECT_EQ(sink_.last("thread/421/1", "rss_bytes"), 7);
  EXPECT_EQ(sink_.last("thread/4/42", "rss_bytes"), 7);
  EXPECT_NE(sink_.resource(421), nullptr);
}

TEST_F(SampleWriterTest, ANumberThatIsUsedAgainStartsItsResourcesAnew) {
  sink_.set_now(kSecond);
  sink_.gauge("proc/42", "rss_bytes", 900, "s");
  sink_.forget(42);
  sink_.forget(42);  // of one that is not known: nothing
  sink_.set_now(2 * kSecond);
  sink_.gauge("proc/42", "rss_bytes", 100, "s");
  EXPECT_EQ(sink_.resource(42)->peak_rss_bytes, 100);
}

TEST_F(SampleWriterTest, AnEndByNoteIsAWaitStatusAndToldOnce) {
  sink_.note(1, "exit", R"({"pid": 42, "signal": 9, "code": 0})");
  sink_.note(43, "exit", R"({"code": 3})");  // its own, when the note names no other
  EXPECT_EQ(sink_.take_exit_status(42), 9);
  EXPECT_EQ(sink_.take_exit_status(42), std::nullopt);
  EXPECT_THAT(sink_.take_exit_statuses({{42, {}}, {43, {}}, {44, {}}}),
              ElementsAre(Pair(43, 3 << 8)));
  EXPECT_THAT(sink_.take_exit_statuses({{43, {}}}), IsEmpty());
}

TEST_F(SampleWriterTest, NotesThatAreNoEndsAreKeptAndEndNobody) {
  for (const char* value : {"", "{", "[1]", "9", "null", "\xff\xfe", R"("text")"})
    sink_.note(42, "exit", value);
  sink_.note(42, "loader", R"({"pid": 42, "signal": 9})");
  EXPECT_EQ(sink_.take_exit_status(42), std::nullopt);
  sink_.note(42, "exit", R"({"signal": "KILL", "code": 1.5})");
  EXPECT_EQ(sink_.take_exit_status(42), 0);
  const RunData run = written();
  ASSERT_THAT(run.notes, SizeIs(9));
  for (const Note& note : run.notes) EXPECT_EQ(note.value, to_utf8(note.value));
}

TEST_F(SampleWriterTest, EndsThatNobodyAsksForAreBounded) {
  constexpr int kMany = 10'000;
  for (int pid = 1; pid <= kMany; ++pid) sink_.note(pid, "exit", R"({"signal": 15})");
  std::map<int, Process> wanted;
  for (int pid = 1; pid <= kMany; ++pid) wanted[pid];
  const auto taken = sink_.take_exit_statuses(wanted);
  EXPECT_LE(taken.size(), 4096u);
  EXPECT_TRUE(taken.contains(kMany));  // the latest are those that are still asked for
  EXPECT_FALSE(taken.contains(1));
}

TEST_F(SampleWriterTest, AnyValueOfACounterIsKeptAsItIs) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  Nanos t = 0;
  for (const std::int64_t value : {std::int64_t{5}, kMost, std::int64_t{3}, kLeast, kMost}) {
    sink_.set_now(t += kSecond);
    sink_.counter("host", "c", value, "s");
  }
  EXPECT_THAT(points(written(), "host", "c"),
              ElementsAre(Pair(kSecond, 5), Pair(2 * kSecond, kMost), Pair(3 * kSecond, 3),
                          Pair(4 * kSecond, kLeast), Pair(5 * kSecond, kMost)));
}

}  // namespace
}  // namespace bedplate::probe
