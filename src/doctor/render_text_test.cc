#include "doctor/render_text.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "base/text.h"
#include "doctor/golden_text.h"
#include "doctor/layout.h"
#include "doctor/report_samples.h"

namespace bedplate::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::filesystem::path kTestdata =
    std::filesystem::path(BEDPLATE_SOURCE_DIR) / "src/doctor/testdata";

probe::RunData run_for(const std::string& name) {
  return name == "full" || name == "healthy" ? sample_run(1400, 72'400 * kMillisecond)
                                             : probe::RunData{};
}

std::string without_ink(std::string text) {
  for (std::size_t at; (at = text.find("\x1b[")) != std::string::npos;)
    text.erase(at, text.find('m', at) - at + 1);
  return text;
}

TEST(RenderText, LooksAsItIsKept) {
  for (const auto& [name, report] : sample_reports()) {
    for (const std::size_t columns : {100U, 60U}) {
      expect_golden(render_text(report, run_for(name), {.columns = columns}),
                    kTestdata / fmt::format("{}_{}.txt", name, columns));
    }
  }
}

TEST(RenderText, NeverWiderThanAsked) {
  for (const auto& [name, report] : sample_reports()) {
    for (const std::size_t width : {40U, 41U, 47U, 60U, 79U, 80U, 100U, 200U}) {
      for (const Colour colour : {Colour::kNone, Colour::kAnsi}) {
        const std::string text =
            without_ink(render_text(report, run_for("full"), {.columns = width, .colour = colour}));
        for (const auto line : split(text, '\n'))
          EXPECT_LE(columns(line), width) << name << " at " << width << ": " << line;
      }
    }
  }
}

TEST(RenderText, WithoutColourHoldsNoEscapeAndNothingElseToObey) {
  for (const auto& [name, report] : sample_reports()) {
    const std::string text = render_text(report, run_for(name));
    EXPECT_EQ(text, to_utf8(text)) << name;
    EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << name;
    EXPECT_THAT(text, Not(HasSubstr("\xc2\x9b"))) << name;
  }
}

TEST(RenderText, ColourAddsOnlyItsOwnSequences) {
  const Report hostile = sample_report("hostile");
  const TextOptions plain{.columns = 100};
  const TextOptions coloured{.columns = 100, .colour = Colour::kAnsi};
  EXPECT_THAT(render_text(hostile, {}, coloured), HasSubstr("\x1b[1m"));
  EXPECT_EQ(without_ink(render_text(hostile, {}, coloured)), render_text(hostile, {}, plain));
  EXPECT_THAT(render_text(hostile, {}, coloured), Not(HasSubstr("\x1b[2J")));
}

TEST(RenderText, TheVerdictIsAmongTheFirstFiveLines) {
  for (const auto& [name, report] : sample_reports()) {
    if (name == "hostile" || name == "empty") continue;
    const std::string text = render_text(report, {}, {.columns = 100});
    EXPECT_LT(std::count(text.begin(),
                         text.begin() + static_cast<std::ptrdiff_t>(
                                            text.find(report.verdict_text.substr(0, 20))),
                         '\n'),
              5)
        << name;
  }
}

TEST(RenderText, TwoHundredRanksStayReadable) {
  const std::string text = render_text(sample_report("many_ranks"), {});
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 80);
  EXPECT_THAT(text, HasSubstr("192 further ranks"));
  EXPECT_THAT(text, HasSubstr("ranks 0-199"));
  EXPECT_THAT(text, HasSubstr("over 200 processes"));
}

TEST(TextOptions, AreWideAndPlainWhenNotATerminal) {
  const TextOptions options = text_options_for(-1);
  EXPECT_EQ(options.columns, 100U);
  EXPECT_EQ(options.colour, Colour::kNone);
}

}  // namespace
}  // namespace bedplate::doctor
