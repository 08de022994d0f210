// The one line at the bottom of the terminal while a job runs.
//
//   LiveLine line(STDERR_FILENO, [&](std::string_view undo) { supervisor.last_words(undo); });
//   line.show(collector.status());    // as often as one likes
//   line.hide();                      // before anything else is printed, and before a stop
//
// The bottom row is taken out of the terminal's scrolling region, as apt does: the job's output
// scrolls above it, byte for byte as it was written, and half a line that the job has begun stays
// where it is. Each change is one write(), so that it cannot fall into the middle of another's.
//
// It draws nothing when the descriptor is no terminal that understands this, in the first two
// seconds (short jobs and full-screen programs that end at once), while the job is in the
// background, and while the terminal takes no output (Ctrl-S): it never blocks and is never stopped
// by SIGTTOU.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "probe/collector.h"

namespace bedplate::cli {

// "3 min 12 s · 412 steps · 153 ms a step · input 41 % · pressure cpu 12 % io 3 %", no wider than
// `columns`; what is not known is left out.
std::string live_text(const probe::CollectorStatus& status, std::size_t columns);

class LiveLine {
 public:
  // `undo` is told what would take the line back, whenever that changes; "" when there is none.
  LiveLine(int terminal, std::function<void(std::string_view)> undo);
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;
  ~LiveLine() { hide(); }

  bool able() const { return able_; }  // there is a terminal that understands this

  void show(const probe::CollectorStatus& status);
  void hide();

 private:
  bool may_draw() const;
  void put(std::string_view sequence) const;

  int terminal_;
  std::function<void(std::string_view)> undo_;
  bool able_ = false;
  int rows_ = 0;  // of the terminal while the bottom row is ours; 0: it is not
  int columns_ = 0;
};

}  // namespace bedplate::cli
