#include "doctor/render_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/text.h"
#include "doctor/data_plane.h"
#include "doctor/layout.h"
#include "doctor/phase_bar.h"
#include "doctor/text_page.h"
#include "doctor/time_strip.h"
#include "doctor/words.h"

namespace bedplate::doctor {
namespace {

constexpr std::size_t kMostColumns = 100;
constexpr std::size_t kFewestColumns = 40;
constexpr std::size_t kMostRanks = 8;

void head(TextPage& page, const Report& report) {
  std::vector<std::string> parts = {"run " + report.run_id};
  if (const auto date = date_text(report.started_unix); !date.empty()) parts.push_back(date);
  if (report.duration > 0) parts.push_back(human_duration(report.duration));
  parts.push_back(ending_text(report));
  const std::string name = report.version.empty() ? "Bedplate" : "Bedplate " + report.version;
  std::string command = shell_join(report.command);
  constexpr std::size_t kMostCommand =
      2 * kMostColumns;  // all of it is in the JSON and the HTML report
  if (command.size() > kMostCommand) command = fit(printable(command), page.width() * 3 / 2);
  page.hanging(0, name, columns(name) + 2, command, Ink::kBold);
  page.paragraph(0, fmt::format("{}", fmt::join(parts, " · ")), Ink::kDim);
  if (!report.complete)
    page.paragraph(0, "The recording was cut short: this is what it holds up to there.",
                   Ink::kYellow);
  page.blank();
  const Ink ink = report.verdict == Verdict::kHealthy   ? Ink::kGreen
                  : report.verdict == Verdict::kUnknown ? Ink::kYellow
                                                        : Ink::kRed;
  const std::string text = report.verdict_text.empty()
                               ? "There is nothing to judge: the recording is empty."
                               : report.verdict_text;
  page.hanging(0, verdict_word(report), 9, text, ink, Ink::kBold);
}

void steps(TextPage& page, const Report& report) {
  const StepSummary& all = report.steps;
  if (all.count == 0) {
    page.heading("STEPS", "none were seen; findings are shares of the run's wall time");
    for (const auto& line : hook_lines(report)) page.paragraph(2, line, Ink::kDim);
    return;
  }
  page.heading("STEPS",
               fmt::format("{} steps a rank, median {}, 99th percentile {}", thousands(all.count),
                           milliseconds_text(all.median_ms), milliseconds_text(all.p99_ms)));
  page.line("  " + phase_bar(page, all.phases, page.width() - 2));
  phase_legend(page, all.phases);
  if (all.ranks.size() < 2) return;
  const auto shown = ranks_to_show(all, kMostRanks);
  for (const RankSteps* rank : shown) {
    const std::string label = fmt::format(
        "  {} {} ",
        fit(rank->rank >= 0 ? fmt::format("rank {}", rank->rank) : fmt::format("pid {}", rank->pid),
            11),
        fit(milliseconds_text(rank->median_ms), 8));
    page.line(label + phase_bar(page, rank->phases, page.width() - columns(label)));
  }
  if (shown.size() < all.ranks.size()) {
    page.paragraph(2,
                   fmt::format("{} further ranks lie between these, the slowest and the fastest",
                               all.ranks.size() - shown.size()),
                   Ink::kDim);
  }
}

std::string sparkline(const std::vector<std::optional<double>>& values, double top) {
  static constexpr std::array<std::string_view, 8> kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string out;
  for (const auto& value : values) {
    if (!value || !(top > 0)) {
      out += value ? kBars[0] : " ";
      continue;
    }
    out += kBars[static_cast<std::size_t>(std::clamp(std::lround(*value / top * 7), 0L, 7L))];
  }
  return out;
}

void strip(TextPage& page, const probe::RunData& run) {
  constexpr std::size_t kLabel = 20;
  const std::size_t range = page.width() >= 80 ? 22 : 0;
  const std::size_t width = page.width() - 2 - kLabel - (range > 0 ? range + 1 : 0);
  const TimeStrip time = make_time_strip(run, width);
  const bool any = time.has_steps || std::any_of(time.lanes.begin(), time.lanes.end(),
                                                 [](const Lane& lane) { return !lane.quiet(); });
  if (!any) return;

  page.heading("TIME", fmt::format("{} from left to right, {} a column",
                                   human_duration(time.end - time.begin),
                                   human_duration(time.column_width())));
  const auto row = [&](std::string_view label, const std::string& picture, std::string_view scale,
                       Ink ink) {
    page.line("  " + fit(label, kLabel) + page.ink(picture, ink) +
              (range > 0 ? " " + page.ink(fit(scale, range), Ink::kDim) : ""));
  };
  if (time.has_steps) {
    std::vector<std::optional<double>> slowest;
    std::vector<std::optional<double>> waits;
    double most = 0;
    for (const auto& column : time.steps) {
      slowest.push_back(column ? std::optional(column->ms.high) : std::nullopt);
      waits.push_back(column ? std::optional(column->phases[probe::index(probe::Phase::kInputWait)])
                             : std::nullopt);
      if (column) most = std::max(most, *waits.back());
    }
    row("slowest step", sparkline(slowest, time.highest_ms),
        "0 … " + milliseconds_text(time.highest_ms), Ink::kPlain);
    if (most >= 0.01)
      row("input wait", sparkline(waits, 1), "highest " + human_share(most), Ink::kYellow);
  }
  std::vector<std::string> quiet;
  for (const auto& lane : time.lanes) {
    if (lane.quiet()) {
      quiet.push_back(lane.name);
      continue;
    }
    std::vector<std::optional<double>> values;
    for (const auto& column : lane.columns)
      values.push_back(column ? std::optional(column->mean) : std::nullopt);
    row(lane.name, sparkline(values, lane.top), "highest " + level_text(lane.unit, lane.highest),
        lane.group == "throttling" ? Ink::kRed : Ink::kCyan);
  }
  if (!quiet.empty())
    page.paragraph(
        2, fmt::format("quiet all the time (under 1 % or 1 MiB/s): {}", fmt::join(quiet, ", ")),
        Ink::kDim);
}

void data_plane(TextPage& page, const Report& report) {
  if (report.data.empty()) return;
  page.heading("DATA", "what bedplate.data's loaders, caches and remote stores counted");
  for (const DataPlane& one : shown_planes(report.data)) {
    bool first = true;
    for (const DataLine& line : data_lines(one)) {
      page.hanging(first ? 2 : 4, line.label, first ? 11 : 9, line.text, Ink::kDim);
      first = false;
    }
  }
}

void card_fields(TextPage& page, const Finding& finding, std::size_t indent, bool root) {
  constexpr std::size_t kLead = 9;
  const std::size_t room = page.width() - std::min(page.width(), indent + kLead);
  bool first = true;
  for (const auto& evidence : finding.evidence) {
    if (evidence.text.empty() && evidence.source.empty()) continue;
    const std::string text = printable(evidence.text);
    const std::string source =
        evidence.source.empty() ? "" : "[" + printable(evidence.source) + "]";
    const std::string_view lead = first ? "seen" : "";
    first = false;
    auto lines = wrap(text, room);
    const bool beside = columns(lines.back()) + 1 + columns(source) <= room;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      std::string line =
          std::string(indent, ' ') + page.ink(fit(i == 0 ? lead : "", kLead), Ink::kDim) + lines[i];
      if (beside && i + 1 == lines.size() && !source.empty())
        line += " " + page.ink(source, Ink::kDim);
      page.line(line);
    }
    if (!beside) page.hanging(indent, "", kLead, source, Ink::kDim, Ink::kDim);
  }
  first = true;
  for (const auto& other : finding.ruled_out) {
    if (!root) break;
    page.hanging(indent, first ? "not" : "", kLead, other.rule + ": " + other.text, Ink::kDim);
    first = false;
  }
  if (root && !finding.verify.empty())
    page.hanging(indent, "verify", kLead, finding.verify, Ink::kDim, Ink::kCyan,
                 TextPage::Wrap::kCommand);
  if (!finding.fix.empty()) page.hanging(indent, "fix", kLead, finding.fix, Ink::kDim);
  if (root && !finding.undo.empty()) page.hanging(indent, "undo", kLead, finding.undo, Ink::kDim);
}

void findings(TextPage& page, const Report& report) {
  if (report.findings.empty()) return;
  const auto roots = std::count_if(report.findings.begin(), report.findings.end(),
                                   [](const Finding& f) { return !f.because_of; });
  const auto rest = static_cast<std::ptrdiff_t>(report.findings.size()) - roots;
  page.heading(
      "FINDINGS",
      fmt::format("{} cause{}{}; shares are ceilings and do not add up", roots,
                  roots == 1 ? "" : "s",
                  rest == 0 ? "" : fmt::format(", {} consequence{}", rest, rest == 1 ? "" : "s")));
  int number = 0;
  for (const auto& finding : report.findings) {
    const bool root = !finding.because_of;
    const std::size_t indent = root ? 4 : 9;
    const std::string lead = root ? fmt::format("{:>2}", ++number) : "";
    const std::string gain = gain_text(finding);
    if (root) page.blank();
    std::string title = title_of(finding);
    if (!gain.empty()) title = gain + ": " + title;
    if (root) {
      page.hanging(0, lead, indent, title, Ink::kBold, Ink::kBold);
    } else {
      page.hanging(4, "so", 5, title, Ink::kDim);
    }
    std::vector<std::string> about = {finding.rule, std::string(name(finding.status))};
    if (const auto scope = scope_text(finding.scope); !scope.empty()) about.push_back(scope);
    const Ink sure = finding.status == Status::kEstablished ? Ink::kRed
                     : finding.status == Status::kSupported ? Ink::kYellow
                                                            : Ink::kDim;
    page.paragraph(indent, fmt::format("{}", fmt::join(about, " · ")), root ? sure : Ink::kDim);
    card_fields(page, finding, indent, root);
  }
}

void rules(TextPage& page, const Report& report) {
  if (report.not_fired.empty() && report.not_seen.empty()) return;
  page.heading("ALSO LOOKED FOR", "");
  if (!report.not_fired.empty()) {
    page.hanging(2, "not found", 16, fmt::format("{}", fmt::join(report.not_fired, ", ")),
                 Ink::kGreen, Ink::kDim);
  }
  for (const auto& group : grouped(report.not_seen)) {
    const std::string why = fmt::format("{}", fmt::join(group.missing, "; "));
    page.hanging(2, "could not see", 16,
                 fmt::format("{}{}{}", fmt::join(group.rules, ", "), why.empty() ? "" : ": ", why),
                 Ink::kYellow, Ink::kDim);
  }
}

void resources(TextPage& page, const Report& report) {
  constexpr std::size_t kLabel = 40;
  constexpr std::size_t kShortestLabel = 26;
  const std::size_t cell = page.width() >= 80 ? 12 : 11;
  const std::size_t fitting =
      std::max<std::size_t>((page.width() - std::min(page.width(), 2 + kShortestLabel)) / cell, 1);
  const ResourceTable table = resource_table(report, std::min<std::size_t>(fitting, 4));
  if (table.rows.empty()) return;
  page.heading("RESOURCES", table.over_ranks
                                ? fmt::format("as /usr/bin/time -v says them, over {} processes",
                                              report.resources.size())
                                : "as /usr/bin/time -v says them");
  const std::size_t cells = cell * table.heads.size();
  const std::size_t width =
      page.width() > cells + 3 ? std::min(kLabel, page.width() - cells - 2) : 1;
  const auto right = [&](const std::string& text) {
    return columns(text) >= cell ? " " + fit(text, cell - 1)
                                 : std::string(cell - columns(text), ' ') + text;
  };
  std::string head_line = std::string(2 + width, ' ');
  for (const auto& one : table.heads) head_line += right(one);
  page.line(page.ink(head_line, Ink::kDim));
  for (const auto& row : table.rows) {
    std::string line = "  " + fit(row.label, width);
    for (const auto& one : row.cells) line += right(one);
    page.line(line);
  }
  for (const auto& remark : report.resource_remarks) page.hanging(2, "→", 2, remark, Ink::kDim);
}

void foot(TextPage& page, const Report& report) {
  if (!report.remarks.empty()) page.heading("REMARKS", "");
  for (const auto& remark : report.remarks) page.hanging(2, "·", 2, remark, Ink::kDim);
  page.blank();
  page.paragraph(0, "Bedplate's own cost: " + own_cost_text(report) + ".", Ink::kDim);
}

}  // namespace

std::string render_text(const Report& report, const probe::RunData& run,
                        const TextOptions& options) {
  TextPage page(std::max(options.columns, kFewestColumns), options.colour);
  head(page, report);
  steps(page, report);
  strip(page, run);
  data_plane(page, report);
  findings(page, report);
  rules(page, report);
  resources(page, report);
  foot(page, report);
  return page.text();
}

TextOptions text_options_for(int fd) {
  TextOptions options;
  if (::isatty(fd) != 1) return options;
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    options.columns = std::clamp<std::size_t>(size.ws_col, kFewestColumns, kMostColumns);
  }
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb" ||
                    std::string_view(terminal).empty();
  if ((no_colour == nullptr || *no_colour == '\0') && !dumb) options.colour = Colour::kAnsi;
  return options;
}

}  // namespace bedplate::doctor
