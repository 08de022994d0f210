#include "probe/internal/oom_watch.h"

#include <gmock/gmock.h>

#include <csignal>

namespace bedplate::probe {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

Process ended(int pid, Nanos at, std::optional<int> status) {
  Process process{.pid = pid, .end = at};
  process.wait_status = status;
  return process;
}

TEST(OomWatch, AKillIsGivenToTheProcessThatDiedOfIt) {
  OomWatch watch;
  EXPECT_THAT(watch.look(7, 7, 0), IsEmpty());  // kills before the run are not its own
  watch.ended(ended(1, kSecond, 0));
  watch.ended(ended(2, kSecond, SIGKILL));
  watch.ended(ended(3, kSecond, SIGSEGV));
  EXPECT_THAT(watch.look(7, 7, kSecond), IsEmpty());
  const auto killed = watch.look(8, 8, 2 * kSecond);
  ASSERT_THAT(killed, SizeIs(1));
  EXPECT_EQ(killed[0].pid, 2);
  EXPECT_TRUE(killed[0].oom_killed);
  EXPECT_THAT(watch.look(8, 8, 2 * kSecond), IsEmpty());
}

TEST(OomWatch, TheCounterMayRiseBeforeTheProcessIsGone) {
  OomWatch watch;
  watch.look(0, 0, 0);
  EXPECT_THAT(watch.look(1, 1, kSecond), IsEmpty());
  watch.ended(ended(2, 2 * kSecond, std::nullopt));
  EXPECT_THAT(watch.look(1, 1, 2 * kSecond), IsEmpty());
  watch.ended(ended(2, 2 * kSecond, SIGKILL));  // its parent has waited for it
  EXPECT_THAT(watch.look(1, 1, 5 * kSecond / 2), SizeIs(1));
}

TEST(OomWatch, AKillByHandIsNone) {
  OomWatch watch;
  watch.look(0, 0, 0);
  watch.ended(ended(2, kSecond, SIGKILL));
  EXPECT_THAT(watch.look(0, 0, kSecond), IsEmpty());
  EXPECT_THAT(watch.look(1, 1, 9 * kSecond), IsEmpty());  // long after
}

TEST(OomWatch, AnEndNobodyWaitedForCountsOnlyAloneAndInTheJobsGroup) {
  for (const bool group : {true, false}) {
    OomWatch watch;
    const auto look = [&](std::int64_t kills, Nanos now) {
      return watch.look(group ? std::optional(kills) : std::nullopt, kills, now);
    };
    look(0, 0);
    watch.ended(ended(2, kSecond, std::nullopt));
    EXPECT_THAT(look(1, kSecond), IsEmpty());
    EXPECT_THAT(look(1, 3 * kSecond), SizeIs(group ? 1 : 0));
  }
}

}  // namespace
}  // namespace bedplate::probe
