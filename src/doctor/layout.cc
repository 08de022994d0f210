#include "doctor/layout.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/text.h"

namespace bedplate::doctor {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Controls of eight bits, marks that change the direction of text, separators, what is invisible.
constexpr std::array kUnprintable = {
    Range{0x80, 0x9F},     Range{0xAD, 0xAD},       Range{0x61C, 0x61C},   Range{0x180E, 0x180E},
    Range{0x200B, 0x200F}, Range{0x2028, 0x202E},   Range{0x2060, 0x206F}, Range{0xFEFF, 0xFEFF},
    Range{0xFFF9, 0xFFFB}, Range{0xE0000, 0xE007F},
};
constexpr std::array kCombining = {
    Range{0x300, 0x36F},     Range{0x483, 0x489},   Range{0x591, 0x5BD},   Range{0x610, 0x61A},
    Range{0x64B, 0x65F},     Range{0x6D6, 0x6DC},   Range{0x93C, 0x93C},   Range{0x94D, 0x94D},
    Range{0xE31, 0xE31},     Range{0xE34, 0xE3A},   Range{0xE47, 0xE4E},   Range{0x1AB0, 0x1AFF},
    Range{0x1DC0, 0x1DFF},   Range{0x20D0, 0x20FF}, Range{0xFE00, 0xFE0F}, Range{0xFE20, 0xFE2F},
    Range{0xE0100, 0xE01EF},
};
// East Asian Width W and F, and the emoji, of Unicode 15 in whole blocks.
constexpr std::array kWide = {
    Range{0x1100, 0x115F},   Range{0x231A, 0x231B},   Range{0x23E9, 0x23F3},
    Range{0x25FD, 0x25FE},   Range{0x2614, 0x2615},   Range{0x2648, 0x2653},
    Range{0x26A1, 0x26A1},   Range{0x26AA, 0x26AB},   Range{0x26BD, 0x26CE},
    Range{0x2705, 0x2705},   Range{0x270A, 0x270B},   Range{0x2728, 0x2728},
    Range{0x274C, 0x274E},   Range{0x2753, 0x2757},   Range{0x2795, 0x2797},
    Range{0x2B1B, 0x2B1C},   Range{0x2B50, 0x2B55},   Range{0x2E80, 0x303E},
    Range{0x3041, 0x4DBF},   Range{0x4E00, 0xA4CF},   Range{0xA960, 0xA97F},
    Range{0xAC00, 0xD7A3},   Range{0xF900, 0xFAFF},   Range{0xFE30, 0xFE6F},
    Range{0xFF00, 0xFF60},   Range{0xFFE0, 0xFFE6},   Range{0x16FE0, 0x18DFF},
    Range{0x1B000, 0x1B2FF}, Range{0x1F004, 0x1F0CF}, Range{0x1F18E, 0x1F2FF},
    Range{0x1F300, 0x1F64F}, Range{0x1F680, 0x1F6FF}, Range{0x1F7E0, 0x1F7F0},
    Range{0x1F900, 0x1FAFF}, Range{0x20000, 0x3FFFD},
};

template <std::size_t N>
bool in(const std::array<Range, N>& ranges, char32_t c) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), c,
                       [](char32_t value, const Range& range) { return value < range.first; });
  return after != ranges.begin() && c <= std::prev(after)->last;
}

// The character that starts valid UTF-8 `text`, and its length in bytes.
struct Character {
  char32_t code;
  std::size_t bytes;
};

Character decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t bytes = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (bytes == 1 || text.size() < bytes) return {first, 1};
  char32_t code = first & (0xFF >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) code = code << 6 | (byte(i) & 0x3F);
  return {code, bytes};
}

std::size_t width_of(char32_t code) {
  if (code < 0x300) return 1;
  return in(kCombining, code) ? 0 : in(kWide, code) ? 2 : 1;
}

// How many bytes of `text` fit into `width` columns; at least one character when `text` is not
// empty.
std::size_t bytes_that_fit(std::string_view text, std::size_t width) {
  std::size_t used = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    const Character c = decode(text.substr(at));
    const std::size_t wide = width_of(c.code);
    if (used + wide > width && at > 0) break;
    used += wide;
    at += c.bytes;
  }
  return at;
}

// Where a word that is too long for a line is best cut: after a separator in the second half of
// what fits.
std::size_t cut_of_word(std::string_view word, std::size_t width) {
  const std::size_t most = bytes_that_fit(word, width);
  if (most >= word.size()) return word.size();
  const auto separator = word.substr(0, most).find_last_of("/,;:=&|");
  return separator != std::string_view::npos && separator + 1 > most / 2 ? separator + 1 : most;
}

struct ShellText {
  std::vector<std::string_view>
      pieces;  // between spaces that lie outside quotes; one when its quotes do not close
  std::string_view comment;  // from its "#"
};

ShellText shell_text(std::string_view text) {
  ShellText out;
  char quote = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'') {
      ++i;
    } else if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '#' && i == begin) {
      out.comment = text.substr(i);
      return out;
    } else if (c == ' ') {
      if (i > begin) out.pieces.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  if (quote != 0) return {{text}, {}};
  if (begin < text.size()) out.pieces.push_back(text.substr(begin));
  return out;
}

// A comment cannot be continued with a backslash: each of its lines is one of its own.
void append_comment(std::string_view comment, std::size_t width, std::vector<std::string>& lines) {
  if (comment.empty()) return;
  if (!lines.empty() && columns(lines.back()) + 1 + columns(comment) <= width) {
    lines.back() += ' ';
    lines.back() += comment;
    return;
  }
  comment.remove_prefix(comment.find_first_not_of("# ") == std::string_view::npos
                            ? comment.size()
                            : comment.find_first_not_of("# "));
  for (const auto& line : wrap(comment, width > 4 ? width - 2 : 2)) lines.push_back("# " + line);
}

}  // namespace

std::string printable(std::string_view text) {
  const std::string utf8 = to_utf8(text);
  std::string out;
  out.reserve(utf8.size());
  for (std::size_t at = 0; at < utf8.size();) {
    const Character c = decode(std::string_view(utf8).substr(at));
    if (c.code == '\n' || c.code == '\t') {
      out += ' ';
    } else if (c.code >= 0x80 && in(kUnprintable, c.code)) {
      out += "\xEF\xBF\xBD";
    } else {
      out.append(utf8, at, c.bytes);
    }
    at += c.bytes;
  }
  return out;
}

std::size_t columns(std::string_view text) {
  std::size_t total = 0;
  while (!text.empty()) {
    const Character c = decode(text);
    total += width_of(c.code);
    text.remove_prefix(c.bytes);
  }
  return total;
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  width = std::max<std::size_t>(width, 2);
  std::vector<std::string> lines(1);
  std::size_t used = 0;
  for (std::string_view word : words(text)) {
    const std::size_t wide = columns(word);
    if (used > 0 && used + 1 + wide <= width) {
      lines.back() += ' ';
      lines.back() += word;
      used += 1 + wide;
      continue;
    }
    if (used > 0) lines.emplace_back();
    while (columns(word) > width) {
      const std::size_t cut = cut_of_word(word, width);
      lines.back() += word.substr(0, cut);
      lines.emplace_back();
      word.remove_prefix(cut);
    }
    lines.back() += word;
    used = columns(word);
  }
  return lines;
}

std::vector<std::string> wrap_command(std::string_view text, std::size_t width) {
  if (columns(text) <= width) return {std::string(text)};
  const auto [pieces, comment] = shell_text(text);
  const std::size_t room = width > 4 ? width - 2 : 2;  // for " \\"
  for (const auto piece : pieces) {
    if (columns(piece) > room) return wrap(text, width);
  }
  std::vector<std::string> lines;
  for (const auto piece : pieces) {
    if (!lines.empty() && columns(lines.back()) + 1 + columns(piece) <= room) {
      lines.back() += ' ';
      lines.back() += piece;
    } else {
      lines.emplace_back(piece);
    }
  }
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) lines[i] += " \\";
  append_comment(comment, width, lines);
  return lines;
}

std::string fit(std::string_view text, std::size_t width) {
  const std::size_t wide = columns(text);
  if (wide <= width) return std::string(text) + std::string(width - wide, ' ');
  if (width == 0) return {};
  std::string out(text.substr(0, width > 1 ? bytes_that_fit(text, width - 1) : 0));
  out += "…";
  const std::size_t now = columns(out);
  return now < width ? out + std::string(width - now, ' ') : out;
}

}  // namespace bedplate::doctor
