// Lines of a terminal report: indented, wrapped, and coloured only where that is wanted.
//
//   TextPage page(100, Colour::kNone);
//   page.heading("FINDINGS", "3 causes");
//   page.field(5, "verify", command, TextPage::Wrap::kCommand);
//
// Every text passes printable() here, so that no caller can forget it.
#pragma once

#include <string>
#include <string_view>

#include "doctor/render_text.h"

namespace bedplate::doctor {

enum class Ink : std::uint8_t {
  kPlain,
  kBold,
  kDim,
  kRed,
  kGreen,
  kYellow,
  kBlue,
  kMagenta,
  kCyan
};

class TextPage {
 public:
  enum class Wrap : std::uint8_t { kWords, kCommand };

  TextPage(std::size_t width, Colour colour) : width_(width), colour_(colour) {}

  std::size_t width() const { return width_; }
  std::string ink(std::string_view text, Ink ink) const;  // `text` is printed as it is

  void blank();
  void line(std::string_view ready);  // already laid out by the caller, who answers for its width
  void heading(std::string_view title, std::string_view beside);
  void paragraph(std::size_t indent, std::string_view text, Ink ink = Ink::kPlain);
  // `lead` at `indent` in `lead_ink`, the text in a column of its own after it.
  void hanging(std::size_t indent, std::string_view lead, std::size_t lead_width,
               std::string_view text, Ink lead_ink, Ink text_ink = Ink::kPlain,
               Wrap wrap = Wrap::kWords);

  const std::string& text() const { return out_; }

 private:
  std::size_t width_;
  Colour colour_;
  std::string out_;
};

}  // namespace bedplate::doctor
