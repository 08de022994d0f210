#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "host/draw.h"
#include "host/internal/picture.h"
#include "host/internal/words.h"

namespace bedplate::host {
namespace {

using Lines = std::vector<std::string>;

// Exactly `width` columns: filled up, or cut with "…".
std::string fit(std::string_view text, std::size_t width) {
  const std::size_t columns = display_width(text);
  if (columns > width) return shortened(text, width);
  return std::string(text) + std::string(width - columns, ' ');
}

std::string repeat(std::string_view piece, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += piece;
  return out;
}

// `text` broken at spaces; the lines after the first are indented by `indent`.
Lines wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  Lines out;
  std::string line;
  bool empty = true;  // no word on this line yet
  for (const auto& word : unbreakable(text)) {
    const std::size_t columns = display_width(line) + (empty ? 0 : 1) + display_width(word);
    if (!empty && columns > width) {
      out.push_back(line);
      line = std::string(indent, ' ');
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  out.push_back(line);
  return out;
}

// A box of `width` columns around lines that are cut to fit.
Lines boxed(std::string_view title, const Lines& inside, std::size_t width) {
  Lines out;
  const std::string head = fit(title, std::min(display_width(title), width - 6));
  out.push_back("┌─ " + head + " " + repeat("─", width - 5 - display_width(head)) + "┐");
  for (const auto& line : inside) out.push_back("│ " + fit(line, width - 4) + " │");
  out.push_back("└" + repeat("─", width - 2) + "┘");
  return out;
}

std::string_view sign(MarkLevel level) {
  switch (level) {
    case MarkLevel::kNote:
      return "note";
    case MarkLevel::kWarning:
      return "WARNING";
    case MarkLevel::kFault:
      return "FAULT";
  }
  return "";
}

void add_marks(const std::vector<const Mark*>& marks, std::size_t indent, std::size_t width,
               Lines& out) {
  for (const Mark* mark : marks) {
    const std::string lead = std::string(indent, ' ') + fmt::format("▲ {}: ", sign(mark->level));
    for (auto& line : wrapped(lead + mark->text, width, display_width(lead)))
      out.push_back(std::move(line));
  }
}

void add_groups(const std::vector<PictureGroup>& groups, std::size_t width, Lines& out) {
  std::size_t column = 0;  // titles of one box share a column, as far as they are not overlong
  for (const auto& group : groups) {
    for (const auto& device : group.devices) column = std::max(column, display_width(device.title));
  }
  column = std::min<std::size_t>(column, width * 2 / 5);
  for (const auto& group : groups) {
    for (std::size_t i = 0; i < group.devices.size(); ++i) {
      const auto& device = group.devices[i];
      const bool alone = group.devices.size() == 1;
      const char* joint = alone                           ? "──"
                          : i == 0                        ? "─┬"
                          : i + 1 == group.devices.size() ? " └"
                                                          : " ├";
      std::string title = device.title;
      title += std::string(column > display_width(title) ? column - display_width(title) : 0, ' ');
      const std::string head = fmt::format("{} {}  ", joint, title);
      for (auto& line : wrapped(head + device.detail, width, 3 + column + 2))
        out.push_back(std::move(line));
      add_marks(device.marks, 3, width, out);
    }
  }
}

// Domains with their cache; equal caches share a line.
void add_domains(const PictureNode& node, std::size_t width, Lines& out) {
  for (std::size_t i = 0; i < node.domains.size();) {
    const auto& first = node.domains[i];
    std::size_t end = i;
    std::string text;
    while (end < node.domains.size() && node.domains[end].cache == first.cache) {
      if (!text.empty()) text += " | ";
      text += format_cpu_list(node.domains[end].cpus);
      ++end;
    }
    if (!first.cache.empty()) {
      const std::string lead = end - i > 1 ? fmt::format("{} × {} for CPUs ", end - i, first.cache)
                                           : fmt::format("{} for CPUs ", first.cache);
      for (auto& line : wrapped(lead + text, width, display_width(lead)))
        out.push_back(std::move(line));
    }
    i = end;
  }
}

Lines node_lines(const PictureNode& node, std::size_t width) {
  Lines out;
  if (!node.cpus.empty()) {
    for (auto& line : wrapped(node.cpus, width, 5)) out.push_back(std::move(line));
  }
  add_domains(node, width, out);
  if (!node.inner.empty()) {
    for (auto& line : wrapped(node.inner, width, 0)) out.push_back(std::move(line));
  }
  add_marks(node.marks, 0, width, out);
  add_groups(node.groups, width, out);
  return out;
}

void append(Lines more, Lines& out) {
  out.insert(out.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

void add_facts(const std::vector<PictureFact>& facts, std::size_t width, Lines& out) {
  std::size_t column = 0;
  for (const auto& fact : facts) column = std::max(column, display_width(fact.label));
  for (const auto& fact : facts) {
    // Where lines are tables ("point  rest"), the second column is aligned.
    std::size_t first = 0;
    for (const auto& line : fact.lines) {
      const auto gap = line.find("  ");
      if (gap != std::string::npos)
        first = std::max(first, display_width(std::string_view(line).substr(0, gap)));
    }
    for (std::size_t i = 0; i < fact.lines.size(); ++i) {
      std::string text = fact.lines[i];
      if (const auto gap = text.find("  "); gap != std::string::npos) {
        text = fit(text.substr(0, gap), std::min(first, width / 3)) + text.substr(gap);
      }
      const std::string label = i == 0 ? fact.label : "";
      const std::string lead = fit(label, column) + "  ";
      append(wrapped(lead + text, width, column + 4), out);
    }
  }
}

std::string to_ascii(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kPlain[] = {
      {"┌", "+"}, {"┐", "+"}, {"└", "+"}, {"┘", "+"}, {"─", "-"}, {"│", "|"}, {"┬", "+"},
      {"├", "+"}, {"·", "-"}, {"×", "x"}, {"▲", "^"}, {"…", "~"}, {"–", "-"}};
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t next = i + 1;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xC0) == 0x80) ++next;
    std::string_view piece = std::string_view(text).substr(i, next - i);
    if (piece.size() > 1) {
      std::string_view plain = "?";
      for (const auto& [from, to] : kPlain) {
        if (from == piece) plain = to;
      }
      piece = plain;
    }
    out += piece;
    i = next;
  }
  return out;
}

}  // namespace

std::string draw_text(const Host& host, std::span<const Mark> marks, const TextOptions& options) {
  const auto width = static_cast<std::size_t>(std::max(options.columns, 60));
  const std::size_t inner = width - 4;
  const Picture picture = arrange(host, marks);
  Lines body;
  for (const auto& line : picture.headlines) append(wrapped(line, inner, 2), body);
  for (const auto& package : picture.packages) {
    const std::size_t box = package.title.empty() ? inner : inner - 4;
    Lines nodes;
    for (const auto& node : package.nodes)
      append(boxed(node.title, node_lines(node, box - 4), box), nodes);
    append(package.title.empty() ? std::move(nodes) : boxed(package.title, nodes, inner), body);
  }
  if (!picture.unplaced.empty()) {
    Lines loose;
    add_groups(picture.unplaced, inner - 4, loose);
    append(boxed("node unknown", loose, inner), body);
  }
  add_facts(picture.facts, inner, body);
  add_marks(pointers(picture.unplaced_marks), 0, inner, body);
  std::string out;
  for (const auto& line : boxed(picture.title, body, width)) out += line + "\n";
  return options.charset == Charset::kAscii ? to_ascii(std::move(out)) : out;
}

}  // namespace bedplate::host
