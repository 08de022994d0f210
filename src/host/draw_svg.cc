#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "host/draw.h"
#include "host/internal/picture.h"
#include "host/internal/words.h"

namespace bedplate::host {
namespace {

// Colours by role, for both schemes; class names are prefixed because an inline <style> holds for
// the whole page.
constexpr std::string_view kStyle =
    "<style>"
    ".bph{--i:#1b2530;--s:#566270;--l:#b3bcc7;--b:#f4f6f8;--c:#fff;--k:#7f93a8;--g:#2f8558;--n:#"
    "2a69b0;--d:#86683a;"
    "--f:#c22f2f;--w:#b8520a;--t:#6a48b5;font-family:system-ui,-apple-system,'Segoe "
    "UI',Roboto,sans-serif;"
    "font-size:12px;fill:var(--i);max-width:100%;height:auto}"
    "@media(prefers-color-scheme:dark){.bph{--i:#e4e9ee;--s:#9aa7b4;--l:#4a5662;--b:#1a2129;--c:#"
    "232c36;--k:#7d90a4;"
    "--g:#4fb583;--n:#67a6ea;--d:#c9a466;--f:#f07070;--w:#f0964a;--t:#ab90f0}}"
    ".bph .m{fill:var(--b);stroke:var(--l)}.bph .x{fill:var(--c);stroke:var(--l)}"
    ".bph .o{fill:none;stroke:var(--l);stroke-dasharray:3 3}.bph .a{fill:var(--k);stroke:var(--k)}"
    ".bph .e{fill:none;stroke:var(--k)}.bph .h{font-weight:600}.bph "
    ".z{font-size:11px;fill:var(--s)}"
    ".bph .g{fill:var(--g)}.bph .n{fill:var(--n)}.bph .d{fill:var(--d)}"
    ".bph .f{fill:var(--f)}.bph .w{fill:var(--w)}.bph .t{fill:var(--t)}"
    ".bph .fo{fill:none;stroke:var(--f);stroke-width:2}.bph "
    ".wo{fill:none;stroke:var(--w);stroke-width:2}"
    ".bph .to{fill:none;stroke:var(--t);stroke-width:2}"
    "</style>";

constexpr double kLine = 16;  // height of a line of text
constexpr double kPad = 10;

// A piece of the drawing with its origin at its upper left corner.
struct Block {
  std::string svg;
  double width = 0;
  double height = 0;
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string at(double x, double y, const Block& block) {
  return fmt::format("<g transform=\"translate({:.0f} {:.0f})\">{}</g>", x, y, block.svg);
}

std::string rect(std::string_view kind, double x, double y, double width, double height,
                 double radius) {
  return fmt::format(
      "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "rx=\"{:.0f}\"/>",
      kind, x, y, width, height, radius);
}

// A generous mean width of a character, in pixels: nobody can measure text here.
double glyph(std::string_view kind) { return kind == "h" ? 8.1 : kind == "z" ? 6.5 : 6.7; }

std::vector<std::string> wrapped(std::string_view text, double width, std::string_view kind) {
  const auto columns = static_cast<std::size_t>(std::max(8.0, width / glyph(kind)));
  std::vector<std::string> out;
  std::string line;
  for (const auto& piece : unbreakable(text)) {
    if (piece.empty()) continue;
    if (!line.empty() && display_width(line) + 1 + display_width(piece) > columns) {
      out.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += shortened(piece, columns);
  }
  if (!line.empty()) out.push_back(std::move(line));
  return out;
}

// Lines of text in one class, each `kLine` high.
Block paragraph(std::string_view text, double width, std::string_view kind) {
  Block block{.svg = {}, .width = width, .height = 0};
  for (const auto& line : wrapped(text, width, kind)) {
    block.svg += fmt::format("<text class=\"{}\" x=\"0\" y=\"{:.0f}\">{}</text>", kind,
                             block.height + 12, escaped(line));
    block.height += kLine;
  }
  return block;
}

void put_below(const Block& next, double x, double gap, Block& into) {
  if (next.height == 0) return;
  if (into.height > 0) into.height += gap;
  into.svg += at(x, into.height, next);
  into.height += next.height;
}

std::string_view mark_class(MarkLevel level) {
  return level == MarkLevel::kFault ? "f" : level == MarkLevel::kWarning ? "w" : "t";
}

std::string mark_text(const Mark& mark) {
  const char* lead = mark.level == MarkLevel::kFault     ? "fault"
                     : mark.level == MarkLevel::kWarning ? "warning"
                                                         : "note";
  return fmt::format("▲ {}: {}", lead, mark.text);
}

Block marks_block(const std::vector<const Mark*>& marks, double width) {
  Block block{.svg = {}, .width = width, .height = 0};
  for (const Mark* mark : marks)
    put_below(paragraph(mark_text(*mark), width, mark_class(mark->level)), 0, 0, block);
  return block;
}

Block device_block(const PictureDevice& device, double width) {
  const std::string_view strip = device.kind == PictureDevice::Kind::kGpu       ? "g"
                                 : device.kind == PictureDevice::Kind::kNetwork ? "n"
                                                                                : "d";
  const double text_width = width - 22;
  Block text{.svg = {}, .width = text_width, .height = 0};
  put_below(paragraph(device.title, text_width, "h"), 0, 0, text);
  put_below(paragraph(device.detail, text_width, "z"), 0, 0, text);
  put_below(marks_block(device.marks, text_width), 0, 0, text);
  Block block{.svg = {}, .width = width, .height = text.height + 12};
  block.svg = rect("x", 0.5, 0.5, width - 1, block.height - 1, 4) +
              rect(strip, 0.5, 0.5, 5, block.height - 1, 2) + at(14, 5, text);
  if (!device.marks.empty()) {
    const auto worst =
        (*std::max_element(device.marks.begin(), device.marks.end(),
                           [](const Mark* a, const Mark* b) { return a->level < b->level; }))
            ->level;
    block.svg += rect(std::string(mark_class(worst)) + "o", 1, 1, width - 2, block.height - 2, 4);
  }
  return block;
}

// The devices behind one switch stand in a dashed frame.
Block group_block(const PictureGroup& group, double width) {
  if (group.devices.size() == 1) return device_block(group.devices[0], width);
  Block inside{.svg = {}, .width = width - 12, .height = 0};
  for (const auto& device : group.devices)
    put_below(device_block(device, width - 12), 0, 4, inside);
  const bool card =
      std::all_of(group.devices.begin(), group.devices.end(),
                  [&](const auto& device) { return device.kind == group.devices[0].kind; });
  Block block{.svg = {}, .width = width, .height = inside.height + 12 + kLine};
  block.svg = rect("o", 0.5, 0.5, width - 1, block.height - 1, 4) + at(6, 6, inside) +
              at(8, inside.height + 7,
                 paragraph(card ? "behind one PCIe port" : "behind one PCIe switch", width, "z"));
  return block;
}

// Blocks in columns of equal width; each row is as high as its highest block.
Block grid(const std::vector<Block>& blocks, std::size_t columns, double column_width, double gap) {
  Block all;
  for (std::size_t i = 0; i < blocks.size(); i += columns) {
    double height = 0;
    Block row;
    for (std::size_t k = i; k < std::min(i + columns, blocks.size()); ++k) {
      row.svg += at(static_cast<double>(k - i) * (column_width + gap), 0, blocks[k]);
      height = std::max(height, blocks[k].height);
    }
    row.height = height;
    put_below(row, 0, gap, all);
  }
  all.width = static_cast<double>(columns) * (column_width + gap) - gap;
  return all;
}

Block devices_block(const std::vector<PictureGroup>& groups, double width) {
  constexpr double kGap = 8, kNarrowest = 190;
  const auto columns =
      static_cast<std::size_t>(std::max(1.0, std::floor((width + kGap) / (kNarrowest + kGap))));
  const std::size_t used = std::max<std::size_t>(1, std::min(columns, groups.size()));
  const double column =
      std::min(340.0, (width - kGap * static_cast<double>(used - 1)) / static_cast<double>(used));
  std::vector<Block> blocks;
  for (const auto& group : groups) blocks.push_back(group_block(group, column));
  return grid(blocks, used, column, kGap);
}

// One last-level cache with a square for each core; hollow: not for this process.
Block domain_block(const PictureDomain& domain, double width) {
  constexpr double kCell = 10, kStep = 13;
  const int cells = domain.cores > 0 ? domain.cores : static_cast<int>(domain.cpus.size());
  const int solid = domain.cores > 0 ? domain.allowed_cores : cells;
  const int a_row = std::max(1, static_cast<int>((width - 14) / kStep));
  const std::string label = domain.cache.empty() ? "cores" : domain.cache;
  const double label_width = static_cast<double>(display_width(label)) * glyph("z");
  Block block;
  block.width = std::max(label_width, std::min(cells, a_row) * kStep) + 14;
  const int rows = (cells + a_row - 1) / a_row;
  block.height = kLine + rows * kStep + 9;
  block.svg = rect("x", 0.5, 0.5, block.width - 1, block.height - 1, 4) +
              at(7, 3, paragraph(label, width, "z"));
  for (int i = 0; i < cells; ++i) {
    block.svg += rect(i < solid ? "a" : "e", 7.5 + (i % a_row) * kStep,
                      kLine + 5.5 + (i / a_row) * kStep, kCell - 1, kCell - 1, 2);
  }
  block.svg += fmt::format(
      "<title>{}: CPUs {}{}</title>", escaped(label), format_cpu_list(domain.cpus),
      solid < cells ? fmt::format("; {} of {} cores for this process", solid, cells) : "");
  return block;
}

// Blocks of various widths, left to right in lines.
Block flow(const std::vector<Block>& blocks, double width, double gap) {
  Block all;
  double x = 0, y = 0, line = 0;
  for (const auto& block : blocks) {
    if (x > 0 && x + block.width > width) {
      x = 0;
      y += line + gap;
      line = 0;
    }
    all.svg += at(x, y, block);
    x += block.width + gap;
    line = std::max(line, block.height);
  }
  all.width = width;
  all.height = y + line;
  return all;
}

Block framed(std::string_view title, const Block& inside, double width, std::string_view kind) {
  Block block{.svg = {}, .width = width, .height = 0};
  Block all{.svg = {}, .width = width - 2 * kPad, .height = 0};
  if (!title.empty()) put_below(paragraph(title, all.width, "h"), 0, 0, all);
  put_below(inside, 0, 6, all);
  block.height = all.height + 2 * kPad;
  block.svg = rect(kind, 0.5, 0.5, width - 1, block.height - 1, 6) + at(kPad, kPad, all);
  return block;
}

Block node_block(const PictureNode& node, double width) {
  const double inner = width - 2 * kPad;
  Block inside{.svg = {}, .width = inner, .height = 0};
  put_below(paragraph(node.cpus, inner, "z"), 0, 2, inside);
  put_below(paragraph(node.inner, inner, "z"), 0, 0, inside);
  std::vector<Block> domains;
  for (const auto& domain : node.domains) domains.push_back(domain_block(domain, inner));
  put_below(flow(domains, inner, 6), 0, 4, inside);
  put_below(marks_block(node.marks, inner), 0, 4, inside);
  put_below(devices_block(node.groups, inner), 0, 8, inside);
  return framed(node.title, inside, width, "m");
}

// Nodes side by side where there is room.
Block packages_block(const std::vector<PicturePackage>& packages, double width) {
  constexpr double kGap = 10;
  const bool wide = width >= 700;
  Block all;
  std::vector<Block> lone;  // packages of one node, side by side
  const std::size_t lone_count = static_cast<std::size_t>(std::count_if(
      packages.begin(), packages.end(), [](const auto& package) { return package.title.empty(); }));
  const std::size_t columns = wide && lone_count > 1 ? 2 : 1;
  const double column =
      (width - kGap * static_cast<double>(columns - 1)) / static_cast<double>(columns);
  for (const auto& package : packages) {
    if (package.title.empty()) {
      for (const auto& node : package.nodes) lone.push_back(node_block(node, column));
      continue;
    }
    const double inner = width - 2 * kPad;
    const std::size_t inner_columns = wide && package.nodes.size() > 1 ? 2 : 1;
    const double inner_column = (inner - kGap * static_cast<double>(inner_columns - 1)) /
                                static_cast<double>(inner_columns);
    std::vector<Block> nodes;
    for (const auto& node : package.nodes) nodes.push_back(node_block(node, inner_column));
    put_below(framed(package.title, grid(nodes, inner_columns, inner_column, kGap), width, "x"), 0,
              kGap, all);
  }
  put_below(grid(lone, columns, column, kGap), 0, kGap, all);
  return all;
}

Block facts_block(const std::vector<PictureFact>& facts, double width) {
  const bool wide = width >= 600;
  const double column = wide ? 100 : 0;  // on a phone the label stands above
  Block all;
  for (const auto& fact : facts) {
    Block text{.svg = {}, .width = width - column, .height = 0};
    for (const auto& line : fact.lines) put_below(paragraph(line, width - column, ""), 0, 0, text);
    Block row;
    if (wide) {
      row.svg = at(0, 0, paragraph(fact.label, column, "z")) + at(column, 0, text);
      row.height = text.height;
    } else {
      put_below(paragraph(fact.label, width, "z"), 0, 0, row);
      put_below(text, 0, 0, row);
    }
    put_below(row, 0, 4, all);
  }
  return all;
}

}  // namespace

std::string draw_svg(const Host& host, std::span<const Mark> marks, const SvgOptions& options) {
  const double width = std::max(options.width, 320);
  const double inner = width - 2 * kPad;
  const Picture picture = arrange(host, marks);
  Block inside{.svg = {}, .width = inner, .height = 0};
  for (const auto& line : picture.headlines) put_below(paragraph(line, inner, ""), 0, 0, inside);
  put_below(packages_block(picture.packages, inner), 0, 8, inside);
  if (!picture.unplaced.empty()) {
    put_below(framed("node unknown", devices_block(picture.unplaced, inner - 2 * kPad), inner, "m"),
              0, 10, inside);
  }
  put_below(facts_block(picture.facts, inner), 0, 12, inside);
  put_below(marks_block(pointers(picture.unplaced_marks), inner), 0, 8, inside);
  const Block whole = framed(picture.title, inside, width, "x");
  return fmt::format(
      "<svg class=\"bph\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"the machine {2}\">{3}{4}</svg>",
      width, whole.height, escaped(picture.title), kStyle, whole.svg);
}

std::string draw_figure(const Host& host, std::span<const Mark> marks) {
  return fmt::format(
      "<div class=\"bph-wide\">{}</div><div class=\"bph-narrow\">{}</div>"
      "<style>.bph-narrow{{display:none}}@media(max-width:700px){{.bph-wide{{display:none}}"
      ".bph-narrow{{display:block}}}}</style>",
      draw_svg(host, marks, {.width = 920}), draw_svg(host, marks, {.width = 360}));
}

}  // namespace bedplate::host
