// What the progress line says; that it comes and goes is tests/e2e/test_data_cli.py's.
#include "cli/progress_line.h"

#include <gmock/gmock.h>

#include "base/text.h"

namespace bedplate::cli {
namespace {

data::ProgressView view(std::int64_t done, std::int64_t of) {
  return {.phase = "packing",
          .done = done,
          .of = of,
          .unit = "samples",
          .bytes = done * kMiB,
          .elapsed = 10 * kSecond};
}

TEST(ProgressText, SaysHowFarHowFastAndHowLongStill) {
  EXPECT_EQ(
      progress_text(view(50, 100), 200),
      "bedplate: packing ██████████░░░░░░░░░░ 50 % · 50 of 100 samples · 5 MiB/s · 10 s left");
  EXPECT_EQ(progress_text(view(100, 100), 200),
            "bedplate: packing ████████████████████ 100 % · 100 of 100 samples · 10 MiB/s");
  EXPECT_EQ(progress_text(view(7, 0), 200), "bedplate: packing · 7 samples · 717 KiB/s");
  EXPECT_EQ(progress_text(view(0, 100), 200),
            "bedplate: packing ░░░░░░░░░░░░░░░░░░░░ 0 % · 0 of 100 samples");
  EXPECT_EQ(
      progress_text({.phase = "reading", .done = 250, .of = 1000, .elapsed = 2 * kSecond}, 200),
      "bedplate: reading █████░░░░░░░░░░░░░░░ 25 % · 6 s left");
}

TEST(ProgressText, FitsEveryTerminal) {
  for (std::size_t columns = 0; columns < 120; ++columns)
    EXPECT_LE(display_width(progress_text(view(50, 100), columns)), columns);
}

}  // namespace
}  // namespace bedplate::cli
