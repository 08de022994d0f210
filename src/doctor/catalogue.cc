#include "doctor/catalogue.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "doctor/rule.h"
#include "doctor/verdict.h"

namespace bedplate::doctor {
namespace {

// "a|b" among the needs is satisfied by either.
std::string needs_text(const Rule& rule) {
  std::string out;
  for (const std::string_view need : rule.needs) {
    std::string either(need);
    for (std::size_t at; (at = either.find('|')) != std::string::npos;)
      either.replace(at, 1, " or ");
    out += (out.empty() ? "" : ", ") + either;
  }
  return out.empty() ? "nothing but the run itself" : out;
}

std::string list(std::span<const std::string_view> names, std::string_view quote) {
  std::string out;
  for (const std::string_view name : names) {
    out += fmt::format("{}{}{}{}", out.empty() ? "" : ", ", quote, name, quote);
  }
  return out;
}

std::string brings_text(const Rule& rule, std::string_view quote) {
  std::string out;
  for (const Brings& brings : rule.brings) {
    out += fmt::format("{}{}{}{}", out.empty() ? "" : ", ", quote, brings.rule, quote);
  }
  return out;
}

// A cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

void rule_markdown(const Rule& rule, std::string& out) {
  out += fmt::format("### {}\n\n{} *({})*\n\n", rule.id, rule.title, name(rule.layer));
  out += fmt::format("{}\n\n", rule.explanation);
  out += fmt::format("- **Signals:** {}\n", rule.signals);
  out += fmt::format("- **Needs:** {}\n", needs_text(rule));
  if (!rule.look_alikes.empty())
    out += fmt::format("- **Look-alikes:** {}\n", list(rule.look_alikes, "`"));
  if (!rule.brings.empty()) out += fmt::format("- **Brings about:** {}\n", brings_text(rule, "`"));
  out += fmt::format("- **Verify:** `{}`\n", rule.verify);
  out += fmt::format("- **Fix:** {}\n", rule.fix);
  if (!rule.thresholds.empty()) {
    out += "\n| threshold | value | unit | source |\n|---|---|---|---|\n";
    for (const Threshold& t : rule.thresholds) {
      out += fmt::format("| `{}` | {} | {} | {} |\n", t.key, t.value, t.unit, cell(t.why));
    }
  }
  out += "\n";
}

void symptom_index(std::string& out) {
  std::map<std::string_view, std::vector<std::string_view>> index;
  for (const Rule* rule : all_rules()) {
    for (const std::string_view symptom : rule->symptoms) index[symptom].push_back(rule->id);
  }
  out += "## From symptom to cause\n\n| what you see | look at |\n|---|---|\n";
  for (const auto& [symptom, rules] : index) {
    std::string links;
    for (const std::string_view id : rules)
      links += fmt::format("{}[{}](#{})", links.empty() ? "" : ", ", id, id);
    out += fmt::format("| {} | {} |\n", cell(symptom), links);
  }
}

nlohmann::ordered_json thresholds_json(std::span<const Threshold> thresholds) {
  auto out = nlohmann::ordered_json::array();
  for (const Threshold& t : thresholds) {
    out.push_back({{"key", t.key}, {"value", t.value}, {"unit", t.unit}, {"why", t.why}});
  }
  return out;
}

std::string one_rule(const Rule& rule) {
  std::string out =
      fmt::format("{}: {} ({})\n\n{}\n\n", rule.id, rule.title, name(rule.layer), rule.explanation);
  out += fmt::format("signals      {}\n", rule.signals);
  out += fmt::format("needs        {}\n", needs_text(rule));
  if (!rule.look_alikes.empty())
    out += fmt::format("look-alikes  {}\n", list(rule.look_alikes, ""));
  if (!rule.brings.empty()) out += fmt::format("brings about {}\n", brings_text(rule, ""));
  out += fmt::format("symptoms     {}\n", list(rule.symptoms, "\""));
  out += fmt::format("verify       {}\n", rule.verify);
  out += fmt::format("fix          {}\n", rule.fix);
  for (const Threshold& t : rule.thresholds) {
    out += fmt::format("threshold    {} = {} {} ({})\n", t.key, t.value, t.unit, t.why);
  }
  return out;
}

}  // namespace

std::string catalogue_markdown() {
  std::string out = "## The causes\n\n";
  for (const Rule* rule : all_rules()) rule_markdown(*rule, out);
  out += "### The verdict\n\n| threshold | value | unit | source |\n|---|---|---|---|\n";
  for (const Threshold& t : verdict_thresholds()) {
    out += fmt::format("| `{}` | {} | {} | {} |\n", t.key, t.value, t.unit, cell(t.why));
  }
  out += "\n";
  symptom_index(out);
  return out;
}

std::string catalogue_json() {
  auto rules = nlohmann::ordered_json::array();
  for (const Rule* rule : all_rules()) {
    auto brings = nlohmann::ordered_json::array();
    for (const Brings& one : rule->brings) brings.push_back(one.rule);
    rules.push_back(
        {{"id", rule->id},
         {"title", rule->title},
         {"layer", name(rule->layer)},
         {"explanation", rule->explanation},
         {"signals", rule->signals},
         {"needs", std::vector<std::string_view>(rule->needs.begin(), rule->needs.end())},
         {"look_alikes",
          std::vector<std::string_view>(rule->look_alikes.begin(), rule->look_alikes.end())},
         {"brings", std::move(brings)},
         {"symptoms", std::vector<std::string_view>(rule->symptoms.begin(), rule->symptoms.end())},
         {"verify", rule->verify},
         {"fix", rule->fix},
         {"thresholds", thresholds_json(rule->thresholds)}});
  }
  const nlohmann::ordered_json all = {{"rules", std::move(rules)},
                                      {"verdict", thresholds_json(verdict_thresholds())}};
  return all.dump(2) + "\n";
}

std::string catalogue_text(std::string_view id) {
  std::vector<std::string_view> known;
  std::string out;
  for (const Rule* rule : all_rules()) {
    if (rule->id == id) return one_rule(*rule);
    known.push_back(rule->id);
    out += fmt::format("{:<24} {}\n", rule->id, rule->title);
  }
  if (id.empty()) return out;
  const std::string_view nearest = nearest_name(id, known);
  throw Error(Code::kNotFound, "there is no rule {}{}; `bedplate rules` lists them", id,
              nearest.empty() ? std::string() : fmt::format(" (did you mean {}?)", nearest));
}

}  // namespace bedplate::doctor
