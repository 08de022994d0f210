#include "cli/progress_line.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace bedplate::cli {
namespace {

constexpr Nanos kNotBefore = 2 * kSecond;
constexpr std::size_t kBar = 20;

}  // namespace

std::string progress_text(const data::ProgressView& view, std::size_t columns) {
  std::vector<std::string> parts;
  if (view.of > 0) {
    const double share =
        std::clamp(static_cast<double>(view.done) / static_cast<double>(view.of), 0.0, 1.0);
    const auto full = static_cast<std::size_t>(share * kBar);
    std::string bar;
    for (std::size_t i = 0; i < kBar; ++i) bar += i < full ? "█" : "░";
    parts.push_back(fmt::format("{} {} {:.0f} %", view.phase, bar, share * 100));
    if (!view.unit.empty())
      parts.push_back(fmt::format("{} of {} {}", view.done, view.of, view.unit));
  } else {
    parts.push_back(std::string(view.phase));
    parts.push_back(fmt::format("{} {}", view.done, view.unit));
  }
  if (view.bytes > 0 && view.elapsed > 0) {
    parts.push_back(human_bytes(static_cast<double>(view.bytes) / seconds(view.elapsed)) + "/s");
  }
  if (view.of > 0 && view.done > 0 && view.done < view.of) {
    const double left = static_cast<double>(view.elapsed) / static_cast<double>(view.done) *
                        static_cast<double>(view.of - view.done);
    const auto whole = static_cast<Nanos>(left) / kSecond * kSecond;
    parts.push_back(whole > 0 ? human_duration(whole) + " left" : "nearly done");
  }
  std::string text = "bedplate";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto longer = fmt::format("{}{}{}", text, i == 0 ? ": " : " · ", parts[i]);
    if (display_width(longer) > columns) break;
    text = longer;
  }
  return display_width(text) > columns ? std::string() : text;
}

ProgressLine::ProgressLine(int terminal) : terminal_(terminal), begin_(real_clock().now()) {
  const char* type = std::getenv("TERM");
  able_ = ::isatty(terminal) == 1 && type && *type && std::string_view(type) != "dumb";
}

void ProgressLine::put(const std::string& text) const {
  [[maybe_unused]] const auto n = ::write(terminal_, text.data(), text.size());
}

void ProgressLine::show(const data::ProgressView& view) {
  if (!able_ || real_clock().now() - begin_ < kNotBefore) return;
  if (::tcgetpgrp(terminal_) != ::getpgrp()) return;
  pollfd writable{terminal_, POLLOUT, 0};
  if (::poll(&writable, 1, 0) != 1 || (writable.revents & POLLOUT) == 0) return;
  winsize size{};
  if (::ioctl(terminal_, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return;
  put(fmt::format("\r\033[K{}", progress_text(view, size.ws_col - 1U)));
  drawn_ = true;
}

void ProgressLine::hide() {
  if (drawn_) put("\r\033[K");
  drawn_ = false;
}

}  // namespace bedplate::cli
