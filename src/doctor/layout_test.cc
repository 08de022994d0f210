#include "doctor/layout.h"

#include <gmock/gmock.h>

namespace bedplate::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Printable, LeavesNothingThatATerminalObeys) {
  const std::string hostile =
      "a\x1b[31mb\x1b]0;title\x07"
      "c\xc2\x9b"
      "2Jd\x7f\r\n\te\xff\xe2\x80\xae"
      "f";
  const std::string shown = printable(hostile);
  for (const char c : shown) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << shown;
  EXPECT_THAT(shown, Not(HasSubstr("\xc2\x9b")));      // CSI in eight bits
  EXPECT_THAT(shown, Not(HasSubstr("\xe2\x80\xae")));  // right-to-left override
  EXPECT_THAT(shown, Not(HasSubstr("\x7f")));
  EXPECT_EQ(printable("größe 漢字 é"), "größe 漢字 é");
}

TEST(Columns, CountsWideAndCombiningCharacters) {
  EXPECT_EQ(columns("abc"), 3U);
  EXPECT_EQ(columns("größe"), 5U);
  EXPECT_EQ(columns("漢字"), 4U);
  EXPECT_EQ(columns("e\u0301"), 1U);
  EXPECT_EQ(columns("🔥"), 2U);
  EXPECT_EQ(columns("▁▂█░▒·…"), 7U);
}

TEST(Wrap, BreaksAtSpacesAndLongWordsAtSeparators) {
  EXPECT_THAT(wrap("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(wrap("", 7), ElementsAre(""));
  EXPECT_THAT(wrap("/sys/fs/cgroup/cpu/job", 12), ElementsAre("/sys/fs/", "cgroup/cpu/", "job"));
  EXPECT_THAT(wrap("x aaaaaaaaaa", 4), ElementsAre("x", "aaaa", "aaaa", "aa"));
  EXPECT_THAT(wrap("漢字漢字", 5), ElementsAre("漢字", "漢字"));
}

TEST(WrapCommand, CanBePasted) {
  EXPECT_THAT(wrap_command("cat /a/b; sleep 10; cat /a/b", 16),
              ElementsAre("cat /a/b; \\", "sleep 10; cat \\", "/a/b"));
  EXPECT_THAT(wrap_command("grep -E 'a b c' x", 12), ElementsAre("grep -E \\", "'a b c' x"));
  EXPECT_THAT(wrap_command("short", 12), ElementsAre("short"));
  EXPECT_THAT(wrap_command("look at the job's own files", 14),
              ElementsAre("look at the", "job's own", "files"));
}

TEST(WrapCommand, AContinuedCommentIsStillAComment) {
  EXPECT_THAT(wrap_command("ps -L -p 1 # many threads, each far below it's share", 16),
              ElementsAre("ps -L -p 1", "# many threads,", "# each far below", "# it's share"));
  EXPECT_THAT(wrap_command("cat /a/b/c /d/e/f  # x", 14),
              ElementsAre("cat /a/b/c \\", "/d/e/f # x"));
  EXPECT_THAT(wrap_command("echo a#b 'c # d' e", 12), ElementsAre("echo a#b \\", "'c # d' e"));
}

TEST(Fit, FillsOrCuts) {
  EXPECT_EQ(fit("ab", 4), "ab  ");
  EXPECT_EQ(fit("abcdef", 4), "abc…");
  EXPECT_EQ(fit("漢字漢", 4), "漢… ");
  EXPECT_EQ(fit("abc", 0), "");
}

}  // namespace
}  // namespace bedplate::doctor
