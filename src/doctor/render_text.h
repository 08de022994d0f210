// A report for a terminal: the verdict first, a picture of where the time went, a card a cause.
//
//   fmt::print("{}", render_text(report, run, {.columns = 100, .colour = Colour::kAnsi}));
//
// No line is wider than `columns`. Without colour the text is plain UTF-8. What the job wrote
// reaches the terminal only through printable(). `run` gives the time strip; an empty one leaves it
// out. Pure; thread-safe.
#pragma once

#include <string>

#include "doctor/finding.h"
#include "probe/run_data.h"

namespace bedplate::doctor {

enum class Colour : std::uint8_t { kNone, kAnsi };

struct TextOptions {
  std::size_t columns = 100;  // at least 40
  Colour colour = Colour::kNone;
};

std::string render_text(const Report& report, const probe::RunData& run,
                        const TextOptions& options = {});

// What suits the file descriptor: a terminal's width up to 100 columns, colour on a terminal unless
// NO_COLOR is set (to anything but "") or TERM is "dumb"; 100 plain columns for all else.
TextOptions text_options_for(int fd);

}  // namespace bedplate::doctor
