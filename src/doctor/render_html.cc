#include "doctor/render_html.h"

#include <algorithm>

#include "base/embedded.h"
#include "base/error.h"
#include "base/text.h"
#include "doctor/data_plane.h"
#include "doctor/html.h"
#include "doctor/html_counters.h"
#include "doctor/html_strip.h"
#include "doctor/rule.h"
#include "doctor/words.h"
#include "host/draw.h"
#include "host/host_json.h"

namespace bedplate {
std::span<const EmbeddedFile> report_style();  // report.css
}

namespace bedplate::doctor {
namespace {

constexpr std::size_t kColumns = 900;  // of the time strip: about a pixel each on a wide page
constexpr std::size_t kMostRanks = 16;

// An argument goes to the next line as a whole: browsers break "--out" after its hyphens.
std::string command_words(const std::vector<std::string>& command) {
  std::string words;
  for (const auto& argument : command) {
    put(words, "{}<span>{}</span>", words.empty() ? "" : " ",
        escaped(shell_join(std::span(&argument, 1))));
  }
  return words;
}

void put_head(std::string& page, const Report& report) {
  put(page,
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n"
      "<title>Bedplate: {}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n",
      escaped(report.run_id), report_style().front().bytes);
  put(page, "<header><h1><span class=\"soft\">Bedplate report</span> &nbsp;<code>{}</code></h1>\n",
      command_words(report.command));
  put(page, "<p class=\"about\">run {}", escaped(report.run_id));
  if (report.started_unix != 0) put(page, " · {}", date_text(report.started_unix));
  put(page, " · {}</p></header>\n", escaped(ending_text(report)));
  const char* look = report.verdict == Verdict::kHealthy   ? "healthy"
                     : report.verdict == Verdict::kUnknown ? "unknown"
                                                           : "found";
  const std::string text = report.verdict_text.empty()
                               ? "There is nothing to judge: the recording is empty."
                               : report.verdict_text;
  put(page, "<div class=\"verdict {}\"><b>{}</b><p>{}</p></div>\n", look, verdict_word(report),
      escaped(text));
  if (!report.complete)
    put(page,
        "<p class=\"warn\">The recording was cut short: this is what it holds up to there.</p>\n");
}

void put_tiles(std::string& page, const Report& report) {
  const auto tile = [&](std::string_view label, const std::string& value) {
    put(page, "<div class=\"tile\"><b>{}</b><span>{}</span></div>", escaped(value), label);
  };
  put(page, "<div class=\"tiles\">");
  if (report.steps.count > 0) {
    tile("median step", milliseconds_text(report.steps.median_ms));
    tile("99th percentile", milliseconds_text(report.steps.p99_ms));
    tile("steps a rank", thousands(report.steps.count));
    tile(report.steps.ranks.size() == 1 ? "rank" : "ranks",
         thousands(static_cast<std::int64_t>(report.steps.ranks.size())));
  }
  tile("run time", human_duration(report.duration));
  const auto roots = std::count_if(report.findings.begin(), report.findings.end(),
                                   [](const Finding& f) { return !f.because_of; });
  tile(roots == 1 ? "cause found" : "causes found", thousands(roots));
  put(page, "</div>\n");
}

void put_bar(std::string& page, const std::map<std::string, double>& phases,
             std::string_view look) {
  put(page, "<div class=\"bar {}\">", look);
  for (std::size_t i = 0; i < probe::kPhaseCount; ++i) {
    const auto found = phases.find(std::string(probe::kPhaseNames[i]));
    if (found == phases.end() || !(found->second >= 0.0005)) continue;
    put(page, "<i class=\"p{}\" style=\"width:{:.2f}%\" title=\"{} {}\"></i>", i,
        std::min(found->second, 1.0) * 100, phase_label(found->first),
        escaped(human_share(found->second)));
  }
  put(page, "</div>");
}

void put_phases(std::string& page, const Report& report) {
  const StepSummary& steps = report.steps;
  if (steps.count == 0) {
    put(page,
        "<h2>Steps</h2>\n<div class=\"panel\"><p>None were seen; findings are shares of the run's "
        "wall time.</p>");
  } else {
    put(page, "<h2>Where a step's time goes</h2>\n<div class=\"panel\">");
    put_bar(page, steps.phases, "");
    put(page, "<div class=\"legend\">");
    for (std::size_t i = 0; i < probe::kPhaseCount; ++i) {
      const auto found = steps.phases.find(std::string(probe::kPhaseNames[i]));
      if (found == steps.phases.end() || !(found->second >= 0.0005)) continue;
      put(page, "<span><i class=\"p{}\"></i>{} {}</span>", i, phase_label(found->first),
          escaped(human_share(found->second)));
    }
    put(page, "</div>");
  }
  if (steps.ranks.size() > 1) {
    const auto shown = ranks_to_show(steps, kMostRanks);
    put(page, "<div class=\"ranks\">");
    for (const RankSteps* rank : shown) {
      put(page, "<span>{}</span><span>{}</span>",
          rank->rank >= 0 ? fmt::format("rank {}", rank->rank) : fmt::format("pid {}", rank->pid),
          milliseconds_text(rank->median_ms));
      put_bar(page, rank->phases, "thin");
    }
    put(page, "</div>");
    if (shown.size() < steps.ranks.size())
      put(page,
          "<p class=\"about\">{} further ranks lie between these, the slowest and the fastest.</p>",
          steps.ranks.size() - shown.size());
  }
  for (const auto& line : hook_lines(report)) put(page, "<p class=\"about\">{}</p>", escaped(line));
  put(page, "</div>\n");
}

void put_fields(std::string& page, const Finding& finding) {
  put(page, "<dl>");
  const auto field = [&](std::string_view name, const std::string& text, std::string_view tag) {
    if (!text.empty()) put(page, "<dt>{}</dt><dd><{}>{}</{}></dd>", name, tag, escaped(text), tag);
  };
  if (!finding.evidence.empty()) put(page, "<dt>seen</dt>");
  for (const auto& one : finding.evidence) {
    put(page, "<dd>{} <code class=\"source\">{}</code></dd>", escaped(one.text),
        escaped(one.source));
  }
  if (!finding.ruled_out.empty()) put(page, "<dt>ruled out</dt>");
  for (const auto& one : finding.ruled_out)
    put(page, "<dd><code>{}</code> {}</dd>", escaped(one.rule), escaped(one.text));
  field("verify", finding.verify, "pre");
  field("fix", finding.fix, "p");
  field("undo", finding.undo, "p");
  put(page, "</dl>");
}

void put_chips(std::string& page, const Finding& finding) {
  put(page, "<div class=\"chips\"><code class=\"chip\">{}</code><span class=\"chip {}\">{}</span>",
      escaped(finding.rule), name(finding.status), name(finding.status));
  if (const auto scope = scope_text(finding.scope); !scope.empty())
    put(page, "<span class=\"chip\">{}</span>", escaped(scope));
  put(page, "</div>");
}

void put_findings(std::string& page, const Report& report) {
  if (report.findings.empty()) return;
  put(page,
      "<h2>Findings <small>shares are ceilings: the most that mending it can give back; they do "
      "not add up</small></h2>\n");
  bool open = false;
  for (const auto& finding : report.findings) {
    const std::string gain =
        finding.gain_ceiling > 0 ? human_share(std::min(finding.gain_ceiling, 1.0)) : "";
    if (!finding.because_of) {
      if (open) put(page, "</article>\n");
      open = true;
      put(page, "<article class=\"card\" id=\"{}\"><div class=\"gain\">{}</div><div><h3>{}</h3>",
          escaped(finding.rule), gain.empty() ? "" : escaped(gain) + "<small>at most</small>",
          escaped(title_of(finding)));
      put_chips(page, finding);
      put_fields(page, finding);
      put(page, "</div>");
    } else {
      put(page, "<div class=\"so\" id=\"{}\"><p class=\"label\">and so{}</p><h3>{}</h3>",
          escaped(finding.rule), gain.empty() ? "" : ", at most " + escaped(gain),
          escaped(title_of(finding)));
      put_chips(page, finding);
      put_fields(page, finding);
      put(page, "</div>");
    }
  }
  if (open) put(page, "</article>\n");
}

void put_data(std::string& page, const Report& report) {
  if (report.data.empty()) return;
  put(page,
      "<h2>Data <small>what bedplate.data's loaders, caches and remote stores counted</small></h2>"
      "\n<div class=\"panel\">");
  for (const DataPlane& one : shown_planes(report.data)) {
    put(page, "<dl>");
    for (const DataLine& line : data_lines(one))
      put(page, "<dt>{}</dt><dd>{}</dd>", escaped(line.label), escaped(line.text));
    put(page, "</dl>");
  }
  put(page, "</div>\n");
}

std::string_view title_of_rule(std::string_view id) {
  for (const Rule* rule : all_rules()) {
    if (rule->id == id) return rule->title;
  }
  return {};
}

void put_rules(std::string& page, const Report& report) {
  if (report.findings.empty() && report.not_fired.empty() && report.not_seen.empty()) return;
  put(page,
      "<h2>Every rule <small>{} fired, {} did not, {} could not see</small></h2>\n<div "
      "class=\"panel\"><table class=\"rules\">\n",
      report.findings.size(), report.not_fired.size(), report.not_seen.size());
  const auto row = [&](std::string_view look, std::string_view state, std::string_view rule,
                       const std::string& about) {
    const std::string_view title = title_of_rule(rule);
    put(page,
        "<tr><td><span class=\"chip {}\">{}</span></td><td "
        "class=\"id\"><code>{}</code></td><td>{}{}{}</td></tr>\n",
        look, state, escaped(rule), escaped(title.empty() ? rule : title),
        about.empty() ? "" : " – ", about);
  };
  for (const auto& finding : report.findings)
    row("fired", "fired", finding.rule,
        fmt::format("<a href=\"#{}\">see above</a>", escaped(finding.rule)));
  for (const auto& rule : report.not_fired) row("quiet", "not found", rule, "");
  for (const auto& one : report.not_seen) {
    std::string why;
    for (const auto& missing : one.missing)
      put(why, "{}{}", why.empty() ? "" : "; ", escaped(missing));
    row("unseen", "could not see", one.rule, fmt::format("<span class=\"soft\">{}</span>", why));
  }
  put(page, "</table></div>\n");
}

void put_resources(std::string& page, const Report& report) {
  const ResourceTable table = resource_table(report, 8);
  if (table.rows.empty()) return;
  put(page,
      "<h2>Resources <small>as /usr/bin/time -v says them{}</small></h2>\n<div "
      "class=\"panel resources\"><div class=\"scroll\"><table><tr><th></th>",
      table.over_ranks ? fmt::format(", over {} processes", report.resources.size()) : "");
  for (const auto& head : table.heads) put(page, "<th class=\"n\">{}</th>", escaped(head));
  put(page, "</tr>\n");
  for (const auto& line : table.rows) {
    put(page, "<tr><td>{}</td>", escaped(line.label));
    for (const auto& cell : line.cells) put(page, "<td class=\"n\">{}</td>", escaped(cell));
    put(page, "</tr>\n");
  }
  put(page, "</table></div>");
  if (!report.resource_remarks.empty()) {
    put(page, "<ul>");
    for (const auto& remark : report.resource_remarks) put(page, "<li>{}</li>", escaped(remark));
    put(page, "</ul>");
  }
  put(page, "</div>\n");
}

// The machine as it was when the run began, with the devices that findings speak of marked.
void put_machine(std::string& page, const Report& report, const probe::RunData& run) {
  const auto recorded = run.machine.find("host.json");
  if (recorded == run.machine.end()) return;
  std::vector<host::Mark> marks;
  for (const auto& finding : report.findings) {
    if (finding.scope.device.empty()) continue;
    const auto level = finding.status == Status::kEstablished ? host::MarkLevel::kFault
                                                              : host::MarkLevel::kWarning;
    marks.push_back({finding.scope.device, level, title_of(finding)});
  }
  try {
    const std::string figure = host::draw_figure(host::from_json(recorded->second), marks);
    put(page, "<h2>Machine</h2>\n<div class=\"panel machine\">{}</div>\n", figure);
  } catch (const Error& error) {
    put(page, "<h2>Machine</h2>\n<div class=\"panel\"><p class=\"about\">Not drawn: {}</p></div>\n",
        escaped(error.what()));
  }
}

void put_foot(std::string& page, const Report& report) {
  put(page, "<footer>");
  for (const auto& remark : report.remarks) put(page, "<p>{}</p>", escaped(remark));
  put(page, "<p>Bedplate {}. Its own cost: {}.</p></footer>\n</main>\n</body>\n</html>\n",
      escaped(report.version), escaped(own_cost_text(report)));
}

}  // namespace

std::string render_html(const Report& report, const probe::RunData& run) {
  std::string page;
  put_head(page, report);
  put_tiles(page, report);
  put_phases(page, report);
  put_time_strip(page, make_time_strip(run, kColumns), report);
  put_data(page, report);
  put_findings(page, report);
  put_rules(page, report);
  put_resources(page, report);
  put_machine(page, report, run);
  put_counters(page, run);
  put_foot(page, report);
  return page;
}

}  // namespace bedplate::doctor
