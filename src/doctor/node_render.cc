// A node's report for people and for scripts.
#include <nlohmann/json.hpp>

#include "doctor/layout.h"
#include "doctor/node_checks.h"
#include "doctor/render_json.h"
#include "doctor/text_page.h"

namespace bedplate::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr CheckState kFindingStates[] = {CheckState::kFault, CheckState::kWarning,
                                         CheckState::kNote};

Ink ink_of(CheckState state) {
  switch (state) {
    case CheckState::kFault:
      return Ink::kRed;
    case CheckState::kWarning:
      return Ink::kYellow;
    case CheckState::kNote:
      return Ink::kCyan;
    case CheckState::kOk:
      return Ink::kGreen;
    case CheckState::kNotSeen:
    case CheckState::kNotApplicable:
      return Ink::kDim;
  }
  return Ink::kPlain;
}

std::string verdict_text(const NodeReport& report) {
  std::vector<std::string> parts;
  if (const auto n = report.count(CheckState::kFault))
    parts.push_back(plural(n, "fault", "faults"));
  if (const auto n = report.count(CheckState::kWarning))
    parts.push_back(plural(n, "warning", "warnings"));
  if (const auto n = report.count(CheckState::kNote)) parts.push_back(plural(n, "note", "notes"));
  parts.push_back(fmt::format("{} ok", report.count(CheckState::kOk)));
  if (const auto n = report.count(CheckState::kNotSeen))
    parts.push_back(fmt::format("{} could not be seen", n));
  std::string text;
  for (const auto& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

constexpr std::size_t kStateColumns = 9;  // "warning  "

void card(TextPage& page, const NodeReport::Entry& entry) {
  const auto& [check, result] = entry;
  page.hanging(0, name(result.state), kStateColumns,
               fmt::format("{} ({})", check->title, check->id), ink_of(result.state), Ink::kBold);
  page.paragraph(kStateColumns, result.text);
  const auto& evidence = result.evidence;
  // One piece of evidence is mostly the figure that the text already holds.
  const bool told = evidence.size() == 1 && result.text.find(evidence[0].text) != std::string::npos;
  for (const auto& item : evidence) {
    if (!told) page.hanging(kStateColumns, "-", 2, item.text, Ink::kDim);
  }
  page.hanging(kStateColumns, "verify", 8, result.verify, Ink::kDim, Ink::kPlain,
               TextPage::Wrap::kCommand);
  if (result.state != CheckState::kNote) {  // a note may well be meant; JSON has its fix, too
    page.hanging(kStateColumns, "fix", 8, result.fix, Ink::kDim);
    page.hanging(kStateColumns, "undo", 8, result.undo, Ink::kDim);
  }
  page.blank();
}

void list(TextPage& page, const NodeReport& report, CheckState state) {
  constexpr std::size_t kIdColumns = 18;
  for (const auto& [check, result] : report.entries) {
    if (result.state != state) continue;
    page.hanging(0, fmt::format("{:<9}{}", name(state), check->id), kStateColumns + kIdColumns,
                 result.text, ink_of(state));
  }
}

Json finding(const NodeReport::Entry& entry) {
  const auto& [check, result] = entry;
  Json evidence = Json::array();
  for (const auto& item : result.evidence)
    evidence.push_back({{"source", printable(item.source)}, {"text", printable(item.text)}});
  Json subjects = Json::array();
  for (const auto& mark : result.marks) subjects.push_back(printable(mark.subject));
  return {{"rule", check->id},
          {"state", name(result.state)},
          {"status", name(result.status)},
          {"role", "root"},
          {"because_of", nullptr},
          {"gain_ceiling", nullptr},
          {"title", check->title},
          {"layer", name(check->layer)},
          {"text", printable(result.text)},
          {"scope", {{"subjects", subjects}}},
          {"evidence", evidence},
          {"verify", result.verify},
          {"fix", result.fix},
          {"undo", result.undo},
          {"source", check->source},
          {"may_cause", check->may_cause.empty() ? Json(nullptr) : Json(check->may_cause)}};
}

}  // namespace

std::string render_node_text(const NodeReport& report, const TextOptions& options) {
  TextPage page(options.columns, options.colour);
  page.paragraph(0, report.machine, Ink::kBold);
  page.blank();
  for (const auto state : kFindingStates) {
    for (const auto& entry : report.entries) {
      if (entry.result.state == state) card(page, entry);
    }
  }
  list(page, report, CheckState::kOk);
  list(page, report, CheckState::kNotApplicable);
  list(page, report, CheckState::kNotSeen);
  page.blank();
  const CheckState worst = report.fitness == Fitness::kNo    ? CheckState::kFault
                           : report.fitness == Fitness::kYes ? CheckState::kOk
                                                             : CheckState::kWarning;
  const std::string end = fmt::format("fit for training: {}", name(report.fitness));
  page.hanging(0, end, columns(end) + 2, "(" + verdict_text(report) + ")", ink_of(worst));
  return page.text();
}

std::string render_node_json(const NodeReport& report) {
  Json findings = Json::array(), not_fired = Json::array(), not_seen = Json::array(),
       not_applicable = Json::array();
  for (const auto state : kFindingStates) {
    for (const auto& entry : report.entries) {
      if (entry.result.state == state) findings.push_back(finding(entry));
    }
  }
  for (const auto& [check, result] : report.entries) {
    if (result.state == CheckState::kOk) not_fired.push_back(check->id);
    if (result.state == CheckState::kNotSeen)
      not_seen.push_back({{"rule", check->id}, {"missing", {printable(result.text)}}});
    if (result.state == CheckState::kNotApplicable)
      not_applicable.push_back({{"rule", check->id}, {"why", printable(result.text)}});
  }
  const bool healthy = report.fitness == Fitness::kYes;
  const Json rule = healthy || findings.empty() ? Json(nullptr) : findings[0]["rule"];
  const Json status = healthy || findings.empty() ? Json("healthy") : findings[0]["status"];
  const Json all = {{"schema", kReportSchema},
                    {"version", report.version},
                    {"machine", printable(report.machine)},
                    {"verdict",
                     {{"rule", rule},
                      {"status", status},
                      {"text", verdict_text(report)},
                      {"fit", name(report.fitness)}}},
                    {"findings", findings},
                    {"not_fired", not_fired},
                    {"not_seen", not_seen},
                    {"not_applicable", not_applicable}};
  return all.dump(2) + "\n";
}

}  // namespace bedplate::doctor
