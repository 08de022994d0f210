#include "doctor/judge.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "doctor/data_plane.h"
#include "doctor/run_view.h"
#include "doctor/summary.h"
#include "doctor/verdict.h"
#include "probe/run_file.h"

namespace bedplate::doctor {
namespace {

namespace meta = probe::run_meta;

const Rule* find_rule(std::string_view id) {
  for (const Rule* rule : all_rules()) {
    if (rule->id == id) return rule;
  }
  return nullptr;
}

std::vector<std::string> missing_signals(const RunView& run, const Rule& rule) {
  std::vector<std::string> missing;
  for (const std::string_view need : rule.needs) {
    if (!run.seen(need)) missing.push_back(run.why_not_seen(need));
  }
  return missing;
}

const Finding* find_finding(const std::vector<Finding>& findings, std::string_view rule) {
  const auto it = std::find_if(findings.begin(), findings.end(),
                               [&](const Finding& f) { return f.rule == rule; });
  return it == findings.end() ? nullptr : &*it;
}

// Look-alikes that fired are findings of their own. Of the others each is ruled out with its
// figures, or the finding is not established.
void rule_out_look_alikes(const RunView& run, std::vector<Finding>& findings) {
  for (Finding& finding : findings) {
    for (const std::string_view id : find_rule(finding.rule)->look_alikes) {
      const Rule* other = find_rule(id);
      if (other == nullptr || find_finding(findings, id) != nullptr) continue;
      std::optional<std::string> why;
      if (missing_signals(run, *other).empty() && other->rule_out != nullptr)
        why = other->rule_out(run);
      if (why) {
        finding.ruled_out.push_back({std::string(id), *why});
      } else {
        finding.status = std::min(finding.status, Status::kSupported);
      }
    }
  }
}

bool stands_above(const std::vector<Finding>& findings, std::string_view ancestor,
                  std::string_view rule) {
  const Finding* at = find_finding(findings, rule);
  for (std::size_t depth = 0; at != nullptr && depth <= findings.size(); ++depth) {
    if (at->rule == ancestor) return true;
    at = at->because_of ? find_finding(findings, *at->because_of) : nullptr;
  }
  return false;
}

// A finding hangs below the strongest other finding whose rule brings it about; never in a circle.
void link_consequences(const RunView& run, std::vector<Finding>& findings) {
  for (Finding& finding : findings) {
    const Finding* best = nullptr;
    for (const Finding& root : findings) {
      if (&root == &finding || stands_above(findings, finding.rule, root.rule)) continue;
      for (const Brings& brings : find_rule(root.rule)->brings) {
        if (brings.rule != finding.rule) continue;
        if (brings.holds != nullptr && !brings.holds(run, finding, root)) continue;
        if (best == nullptr || root.gain_ceiling > best->gain_ceiling) best = &root;
      }
    }
    if (best == nullptr) continue;
    finding.because_of = best->rule;
    finding.fix = fmt::format("mend {} first; if this stays: {}", best->rule, finding.fix);
  }
}

// What is only a hypothesis never stands above what has evidence.
bool ranks_before(const Finding& a, const Finding& b) {
  const bool guess_a = a.status == Status::kHypothesis;
  const bool guess_b = b.status == Status::kHypothesis;
  if (guess_a != guess_b) return guess_b;
  if (a.gain_ceiling != b.gain_ceiling) return a.gain_ceiling > b.gain_ceiling;
  return a.status > b.status;
}

void append_with_consequences(const std::vector<Finding>& sorted, const Finding& finding,
                              std::vector<Finding>& out) {
  out.push_back(finding);
  for (const Finding& other : sorted) {
    if (other.because_of && *other.because_of == finding.rule)
      append_with_consequences(sorted, other, out);
  }
}

std::vector<Finding> ranked(std::vector<Finding> findings) {
  std::stable_sort(findings.begin(), findings.end(), ranks_before);
  std::vector<Finding> out;
  for (const Finding& finding : findings) {
    if (!finding.because_of) append_with_consequences(findings, finding, out);
  }
  return out;
}

void run_rules(const RunView& run, Report& report) {
  for (const Rule* rule : all_rules()) {
    auto missing = missing_signals(run, *rule);
    if (!missing.empty()) {
      report.not_seen.push_back({std::string(rule->id), std::move(missing)});
      continue;
    }
    auto finding = rule->check(run);
    if (!finding) {
      report.not_fired.emplace_back(rule->id);
      continue;
    }
    finding->rule = rule->id;
    if (finding->title.empty()) finding->title = rule->title;
    if (finding->verify.empty()) finding->verify = rule->verify;
    if (finding->fix.empty()) finding->fix = rule->fix;
    finding->gain_ceiling =
        std::isfinite(finding->gain_ceiling) ? std::clamp(finding->gain_ceiling, 0.0, 1.0) : 0;
    report.findings.push_back(std::move(*finding));
  }
  rule_out_look_alikes(run, report.findings);
  link_consequences(run, report.findings);
  report.findings = ranked(std::move(report.findings));
}

std::string text_of(const probe::RunData& run, std::string_view key) {
  const auto it = run.meta.find(std::string(key));
  return it == run.meta.end() ? std::string() : it->second;
}

std::optional<int> small_int(const RunView& run, std::string_view key) {
  const auto value = run.meta_int(key);
  if (!value || *value < 0 || *value > 1'000'000) return std::nullopt;
  return static_cast<int>(*value);
}

void describe_run(const RunView& run, Report& report) {
  const probe::RunData& data = run.data();
  report.version = text_of(data, meta::kVersion);
  report.run_id = text_of(data, meta::kId);
  const auto command = nlohmann::json::parse(text_of(data, meta::kCommand), nullptr, false);
  if (command.is_array()) {
    for (const auto& word : command) {
      if (word.is_string()) report.command.push_back(word.get<std::string>());
    }
  }
  report.exit_code = small_int(run, meta::kExitCode);
  report.signal = small_int(run, meta::kSignal);
  report.started_unix = run.meta_int(meta::kStartedUnixNs).value_or(0);
  report.duration = length(run.whole());
  report.complete = run.meta_int(meta::kDurationNs).has_value();
  for (const auto& process : data.processes) {
    if (!process.hook.empty()) report.hooks[process.pid] = process.hook;
  }
  const auto own_cpu = static_cast<double>(run.meta_int(meta::kOwnCpuNs).value_or(0));
  report.own_cpu_share =
      report.duration > 0 ? std::max(0.0, own_cpu / static_cast<double>(report.duration)) : 0;
  report.own_max_rss_bytes = run.meta_int(meta::kOwnMaxRssBytes).value_or(0);
  report.events = run.meta_int(meta::kEvents).value_or(0);
  report.events_lost = run.meta_int(meta::kEventsLost).value_or(0);
}

void remark_on_recording(const RunView& run, Report& report) {
  if (!report.complete)
    report.remarks.push_back(
        "the recording was cut short: the report covers what was written by then");
  if (report.events_lost > 0) {
    report.remarks.push_back(fmt::format(
        "{} of {} trace events were lost: phases of the busiest moments may be too short",
        report.events_lost, report.events + report.events_lost));
  }
  for (auto& remark : thread_remarks(run)) report.remarks.push_back(std::move(remark));
  for (auto& remark : permission_remarks(run)) report.remarks.push_back(std::move(remark));
  const auto hook_off = run.notes("hook_off");
  std::set<std::string_view> told;
  for (const probe::Note* note : hook_off) {
    if (told.insert(note->value).second)
      report.remarks.push_back(fmt::format("a hook switched itself off: {}", note->value));
  }
}

}  // namespace

Report judge(const probe::RunData& data, const Thresholds& overrides) {
  const RunView run(data, overrides);
  Report report;
  describe_run(run, report);
  report.steps = step_summary(run);
  report.data = data_planes(run, run.whole());
  run_rules(run, report);
  give_verdict(run, report);
  remark_on_recording(run, report);
  report.resources = main_resources(run);
  report.resource_remarks = resource_remarks(run, report.resources);
  return report;
}

Thresholds check_thresholds(const std::map<std::string, double>& given) {
  std::vector<std::string_view> known;
  for (const Rule* rule : all_rules()) {
    for (const Threshold& t : rule->thresholds) known.push_back(t.key);
  }
  for (const Threshold& t : verdict_thresholds()) known.push_back(t.key);
  Thresholds out;
  for (const auto& [key, value] : given) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const std::string_view nearest = nearest_name(key, known);
      throw Error(Code::kInvalid, "there is no threshold {}{}; `bedplate rules` lists them", key,
                  nearest.empty() ? std::string() : fmt::format(" (did you mean {}?)", nearest));
    }
    if (!std::isfinite(value) || value < 0) {
      throw Error(Code::kInvalid, "threshold {} is {}; it must be a number of at least 0", key,
                  value);
    }
    out.emplace(key, value);
  }
  return out;
}

}  // namespace bedplate::doctor
