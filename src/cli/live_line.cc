#include "cli/live_line.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "base/text.h"
#include "base/units.h"

namespace bedplate::cli {
namespace {

constexpr Nanos kNotBefore = 2 * kSecond;
constexpr int kFewestRows = 5;
constexpr int kFewestColumns = 20;

std::string pressure_text(const probe::CollectorStatus& status) {
  std::string text;
  const auto add = [&text](std::string_view name, const std::optional<double>& share) {
    if (share && *share >= 0.01) text += fmt::format(" {} {}", name, human_share(*share));
  };
  add("cpu", status.cpu_pressure);
  add("memory", status.memory_pressure);
  add("io", status.io_pressure);
  return text.empty() ? text : "pressure" + text;
}

// What gives the bottom row back, leaving the cursor where it is.
std::string give_back(int rows) { return fmt::format("\0337\033[r\033[{};1H\033[2K\0338", rows); }

}  // namespace

std::string live_text(const probe::CollectorStatus& status, std::size_t columns) {
  std::vector<std::string> parts{human_duration(status.elapsed / kSecond * kSecond)};
  if (!status.recording) {
    parts.emplace_back("recording has stopped");
  } else if (status.steps > 0) {
    parts.push_back(fmt::format("{} step{}", status.steps, status.steps == 1 ? "" : "s"));
    if (status.step_time) parts.push_back(human_duration(*status.step_time) + " a step");
    if (status.input_share) parts.push_back("input " + human_share(*status.input_share));
    if (status.ranks > 1) parts.push_back(fmt::format("{} ranks", status.ranks));
  } else {
    parts.push_back(
        fmt::format("{} process{}", status.processes, status.processes == 1 ? "" : "es"));
  }
  if (auto pressure = pressure_text(status); !pressure.empty())
    parts.push_back(std::move(pressure));

  std::string text = "bedplate";
  for (const auto& part : parts) {
    const auto longer = fmt::format("{} · {}", text, part);
    if (display_width(longer) > columns) break;
    text = longer;
  }
  return display_width(text) > columns ? std::string() : text;
}

LiveLine::LiveLine(int terminal, std::function<void(std::string_view)> undo)
    : terminal_(terminal), undo_(std::move(undo)) {
  const char* type = std::getenv("TERM");
  able_ = ::isatty(terminal) == 1 && type && *type && std::string_view(type) != "dumb";
}

bool LiveLine::may_draw() const {
  if (!able_ || ::tcgetpgrp(terminal_) != ::getpgrp()) return false;
  pollfd writable{terminal_, POLLOUT, 0};
  return ::poll(&writable, 1, 0) == 1 && (writable.revents & POLLOUT) != 0;
}

void LiveLine::put(std::string_view sequence) const {
  [[maybe_unused]] const auto n = ::write(terminal_, sequence.data(), sequence.size());
}

void LiveLine::show(const probe::CollectorStatus& status) {
  if (status.elapsed < kNotBefore || !may_draw()) return;
  winsize size{};
  if (::ioctl(terminal_, TIOCGWINSZ, &size) != 0) return;
  if (size.ws_row < kFewestRows || size.ws_col < kFewestColumns) {
    hide();
    return;
  }
  std::string sequence;
  if (rows_ != size.ws_row || columns_ != size.ws_col) {
    if (rows_ != 0 && rows_ <= size.ws_row) sequence += give_back(rows_);
    rows_ = size.ws_row;
    columns_ = size.ws_col;
    undo_(give_back(rows_));
    // One line down (scrolling if need be) and up again: the cursor now is above the bottom row, at
    // the same place of the same text. Setting the region moves the cursor, so it is kept
    // meanwhile.
    sequence += fmt::format("\033D\0337\033[1;{}r\0338\033[1A", rows_ - 1);
  }
  const auto text = live_text(status, static_cast<std::size_t>(columns_) - 1);
  sequence += fmt::format("\0337\033[{};1H\033[2K\033[2m{}\033[m\0338", rows_, text);
  put(sequence);
}

void LiveLine::hide() {
  if (rows_ == 0) return;
  // Even where show() would not draw now: what was taken must be given back.
  put(give_back(rows_));
  undo_("");
  rows_ = 0;
  columns_ = 0;
}

}  // namespace bedplate::cli
