// The line on the terminal that says how far a long command is.
//
//   ProgressLine line(STDERR_FILENO);
//   work({.show = [&](const data::ProgressView& view) { line.show(view); }});
//   line.hide();                  // before anything else is printed
//
// Draws nothing when the descriptor is no terminal, in the first two seconds, in the background,
// and while the terminal takes no output. One thread at a time.
#pragma once

#include <cstddef>
#include <string>

#include "base/clock.h"
#include "data/progress.h"

namespace bedplate::cli {

// "packing ██████░░░░░░ 41 % · 1234 of 3000 samples · 120 MiB/s · 12 s left", no wider than
// `columns`.
std::string progress_text(const data::ProgressView& view, std::size_t columns);

class ProgressLine {
 public:
  explicit ProgressLine(int terminal);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() { hide(); }

  void show(const data::ProgressView& view);
  void hide();

 private:
  void put(const std::string& text) const;

  const int terminal_;
  const Nanos begin_;
  bool able_ = false;
  bool drawn_ = false;
};

}  // namespace bedplate::cli
