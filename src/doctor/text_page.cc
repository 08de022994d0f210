#include "doctor/text_page.h"

#include <algorithm>
#include <array>

#include "doctor/layout.h"

namespace bedplate::doctor {
namespace {

constexpr std::array<std::string_view, 9> kCodes = {"",   "1",  "2",  "31", "32",
                                                    "33", "34", "35", "36"};

}  // namespace

std::string TextPage::ink(std::string_view text, Ink ink) const {
  if (colour_ == Colour::kNone || ink == Ink::kPlain || text.empty()) return std::string(text);
  std::string out = "\x1b[";
  out += kCodes[static_cast<std::size_t>(ink)];
  out += 'm';
  out += text;
  out += "\x1b[0m";
  return out;
}

void TextPage::blank() { out_ += '\n'; }

void TextPage::line(std::string_view ready) {
  const auto end = ready.find_last_not_of(' ');
  out_ += ready.substr(0, end == std::string_view::npos ? 0 : end + 1);
  out_ += '\n';
}

void TextPage::heading(std::string_view title, std::string_view beside) {
  blank();
  const std::size_t lead = columns(title) + 2;
  hanging(0, title, lead, beside, Ink::kBold);
}

void TextPage::paragraph(std::size_t indent, std::string_view text, Ink ink_of_text) {
  for (const auto& one : wrap(printable(text), width_ - std::min(indent, width_ - 2))) {
    line(std::string(indent, ' ') + ink(one, ink_of_text));
  }
}

void TextPage::hanging(std::size_t indent, std::string_view lead, std::size_t lead_width,
                       std::string_view text, Ink lead_ink, Ink text_ink, Wrap how) {
  const std::string shown = printable(text);
  const std::size_t left = std::min(indent + lead_width, width_ - 2);
  const auto lines =
      how == Wrap::kCommand ? wrap_command(shown, width_ - left) : wrap(shown, width_ - left);
  std::string first = std::string(indent, ' ') +
                      ink(fit(printable(lead), std::min(columns(lead), lead_width)), lead_ink);
  first += std::string(lead_width - std::min(columns(lead), lead_width), ' ');
  for (std::size_t i = 0; i < lines.size(); ++i) {
    line((i == 0 ? first : std::string(left, ' ')) + ink(lines[i], text_ink));
  }
}

}  // namespace bedplate::doctor
