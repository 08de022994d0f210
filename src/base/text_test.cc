#include "base/text.h"

#include <gmock/gmock.h>

namespace bedplate {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ToInt, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(to_int("-42"), -42);
  EXPECT_EQ(to_int("ff", 16), 255);
  for (const auto* bad : {"", " 1", "1 ", "12x", "9223372036854775808", "0x10"}) {
    EXPECT_EQ(to_int(bad), std::nullopt) << bad;
  }
}

TEST(CpuList, ReadsWhatTheKernelPrintsAndRefusesTheRest) {
  EXPECT_THAT(*parse_cpu_list("0-2,8,10-11\n"), ElementsAre(0, 1, 2, 8, 10, 11));
  EXPECT_THAT(*parse_cpu_list(""), IsEmpty());
  for (const auto* bad : {"3-1", "-1", "a", "1,,2", "1-", "99999999999", "0-70000"}) {
    EXPECT_EQ(parse_cpu_list(bad), std::nullopt) << bad;
  }
}

TEST(CpuList, FormatIsTheInverse) {
  for (const auto* list : {"", "0", "0-1", "0-3,8,10-11"})
    EXPECT_EQ(format_cpu_list(*parse_cpu_list(list)), list);
}

TEST(ToUtf8, ReplacesEachByteThatIsNotText) {
  EXPECT_EQ(to_utf8("grün 中 🚂\n"), "grün 中 🚂\n");
  EXPECT_EQ(to_utf8("a\xFF\xC3z"), "a\uFFFD\uFFFDz");
  EXPECT_EQ(to_utf8("\xC0\xAF"), "\uFFFD\uFFFD");            // overlong slash
  EXPECT_EQ(to_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(to_utf8("\x1B[31m"), "\uFFFD[31m");              // no escape reaches a terminal
  EXPECT_EQ(to_utf8(std::string_view("\0x", 2)), "\uFFFDx");
}

TEST(NearestName, SuggestsOnlyWhatIsNear) {
  constexpr std::string_view kKnown[] = {"run", "report", "compare", "doctor"};
  EXPECT_EQ(nearest_name("reprot", kKnown), "report");
  EXPECT_EQ(nearest_name("docter", kKnown), "doctor");
  EXPECT_EQ(nearest_name("zzzzzz", kKnown), "");
}

TEST(ShellQuote, SurvivesTheShell) {
  EXPECT_EQ(shell_quote("train.py"), "train.py");
  EXPECT_EQ(shell_quote(""), "''");
  EXPECT_EQ(shell_quote("it's $HOME"), "'it'\\''s $HOME'");
}

TEST(Split, KeepsEmptyPieces) {
  EXPECT_THAT(split("a::b", ':'), ElementsAre("a", "", "b"));
  EXPECT_THAT(words("  a\t b\n"), ElementsAre("a", "b"));
}

TEST(IsUtf8, TakesControlCharactersAndNoBrokenSequences) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8(std::string_view("a\0\x01\n\xC3\xA4\xF0\x9F\x98\x80", 10)));
  for (const char* broken : {"\xFF", "\xC3", "\xC0\x80", "\xED\xA0\x80", "a\xE4"})
    EXPECT_FALSE(is_utf8(broken)) << broken;
}

}  // namespace
}  // namespace bedplate
