// The text; how it comes and goes in a terminal is tested from outside: tests/e2e.
#include "cli/live_line.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "base/units.h"

namespace bedplate::cli {
namespace {

probe::CollectorStatus training() {
  probe::CollectorStatus status;
  status.elapsed = 192'700 * kMillisecond;
  status.processes = 11;
  status.ranks = 2;
  status.steps = 412;
  status.step_time = 153 * kMillisecond;
  status.input_share = 0.41;
  status.cpu_pressure = 0.12;
  status.memory_pressure = 0.0;
  status.io_pressure = 0.03;
  return status;
}

TEST(LiveText, SaysStepsInputAndPressure) {
  EXPECT_EQ(live_text(training(), 120),
            "bedplate · 3 min 12 s · 412 steps · 153 ms a step · input 41 % · 2 ranks · "
            "pressure cpu 12 % io 3 %");
}

TEST(LiveText, LeavesOutWhatIsNotKnown) {
  probe::CollectorStatus status;
  status.elapsed = 5 * kSecond;
  status.processes = 1;
  EXPECT_EQ(live_text(status, 120), "bedplate · 5 s · 1 process");
}

TEST(LiveText, SaysThatRecordingHasStopped) {
  auto status = training();
  status.recording = false;
  EXPECT_EQ(live_text(status, 60), "bedplate · 3 min 12 s · recording has stopped");
}

TEST(LiveText, NeverIsWiderThanTheTerminal) {
  for (std::size_t columns = 0; columns < 120; ++columns) {
    EXPECT_LE(display_width(live_text(training(), columns)), columns);
  }
  EXPECT_EQ(live_text(training(), 40), "bedplate · 3 min 12 s · 412 steps");
}

}  // namespace
}  // namespace bedplate::cli
