#include "doctor/words.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/text.h"

namespace bedplate::doctor {
namespace {

using probe::ResourceUse;

std::tm utc(Nanos unix_time) {
  const std::time_t t = unix_time / kSecond;
  std::tm out{};
  ::gmtime_r(&t, &out);
  return out;
}

std::string list_of(std::string_view singular, std::string_view plural, std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return fmt::format("{} {}", numbers.size() == 1 ? singular : plural, format_cpu_list(numbers));
}

struct ResourceLine {
  std::string_view label;
  double (*value)(const ResourceUse&);
  std::string (*show)(double);
};

std::string show_seconds(double value) { return human_duration(static_cast<Nanos>(value)); }
std::string show_count(double value) { return thousands(static_cast<std::int64_t>(value)); }

constexpr ResourceLine kResourceLines[] = {
    {"User time", [](const ResourceUse& u) { return static_cast<double>(u.user); }, show_seconds},
    {"System time", [](const ResourceUse& u) { return static_cast<double>(u.system); },
     show_seconds},
    {"Maximum resident set size",
     [](const ResourceUse& u) { return static_cast<double>(u.peak_rss_bytes); }, human_bytes},
    {"Major (requiring I/O) page faults",
     [](const ResourceUse& u) { return static_cast<double>(u.major_faults); }, show_count},
    {"Minor (reclaiming a frame) page faults",
     [](const ResourceUse& u) { return static_cast<double>(u.minor_faults); }, show_count},
    {"Voluntary context switches",
     [](const ResourceUse& u) { return static_cast<double>(u.voluntary_switches); }, show_count},
    {"Involuntary context switches",
     [](const ResourceUse& u) { return static_cast<double>(u.involuntary_switches); }, show_count},
    {"File system inputs", [](const ResourceUse& u) { return static_cast<double>(u.read_bytes); },
     human_bytes},
    {"File system outputs", [](const ResourceUse& u) { return static_cast<double>(u.write_bytes); },
     human_bytes},
};

}  // namespace

std::string phase_label(std::string_view phase) {
  if (phase == "h2d") return "host to device";
  if (phase == "gc") return "Python GC";
  std::string label(phase);
  std::replace(label.begin(), label.end(), '_', ' ');
  return label;
}

std::string thousands(std::int64_t n) {
  std::string digits = fmt::format("{}", n);
  const std::size_t first = n < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string milliseconds_text(double ms) {
  return std::isfinite(ms) ? human_duration(static_cast<Nanos>(std::llround(ms * 1e6))) : "n/a";
}

std::string date_text(Nanos unix_time) {
  return unix_time == 0 ? "" : fmt::format("{:%d %b %Y %H:%M:%S} UTC", utc(unix_time));
}

std::string iso_date(Nanos unix_time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc(unix_time));
}

std::string ending_text(const Report& report) {
  if (report.signal) {
    const char* name = ::sigabbrev_np(*report.signal);
    return name == nullptr ? fmt::format("killed by signal {}", *report.signal)
                           : fmt::format("killed by signal {} ({})", *report.signal, name);
  }
  if (report.exit_code) return fmt::format("exit code {}", *report.exit_code);
  return "no end was recorded";
}

std::string title_of(const Finding& finding) {
  if (!finding.title.empty()) return finding.title;
  std::string title = finding.rule;
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

std::string gain_text(const Finding& finding) {
  return finding.gain_ceiling > 0 ? "at most " + human_share(std::min(finding.gain_ceiling, 1.0))
                                  : "";
}

std::string scope_text(const Scope& scope) {
  std::vector<std::string> parts;
  if (!scope.ranks.empty()) parts.push_back(list_of("rank", "ranks", scope.ranks));
  if (!scope.pids.empty() && scope.ranks.empty()) {
    parts.push_back(scope.pids.size() <= 8 ? list_of("pid", "pids", scope.pids)
                                           : fmt::format("{} processes", scope.pids.size()));
  }
  if (!scope.device.empty()) parts.push_back(scope.device);
  if (!scope.path.empty()) parts.push_back(scope.path);
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string verdict_word(const Report& report) {
  switch (report.verdict) {
    case Verdict::kHealthy:
      return "HEALTHY";
    case Verdict::kUnknown:
      return "UNKNOWN";
    case Verdict::kFinding:
      return "FOUND";
  }
  return "UNKNOWN";
}

std::string own_cost_text(const Report& report) {
  const std::string lost =
      report.events_lost == 0 ? "none lost" : thousands(report.events_lost) + " lost";
  return fmt::format(
      "{} of one core, {} of memory, {} events, {}", human_share(report.own_cpu_share),
      human_bytes(static_cast<double>(report.own_max_rss_bytes)), thousands(report.events), lost);
}

std::string rank_name(const Report& report, int pid) {
  for (const auto& rank : report.steps.ranks) {
    if (rank.pid == pid && rank.rank >= 0) return fmt::format("rank {}", rank.rank);
  }
  return fmt::format("pid {}", pid);
}

std::vector<std::string> hook_lines(const Report& report) {
  std::map<std::string, std::vector<int>> by_state;
  for (const auto& [pid, state] : report.hooks) by_state[state].push_back(pid);
  std::vector<std::string> lines;
  for (const auto& [state, pids] : by_state) {
    const std::string who =
        pids.size() <= 4 ? list_of("pid", "pids", pids) : fmt::format("{} processes", pids.size());
    lines.push_back(state == "active" ? fmt::format("hook active in {}", who)
                                      : fmt::format("no hook in {}: {}", who, state));
  }
  return lines;
}

std::vector<Unseen> grouped(const std::vector<NotSeen>& not_seen) {
  std::vector<Unseen> groups;
  for (const auto& one : not_seen) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Unseen& group) {
      return group.missing == one.missing;
    });
    if (same != groups.end()) {
      same->rules.push_back(one.rule);
    } else {
      groups.push_back({{one.rule}, one.missing});
    }
  }
  return groups;
}

ResourceTable resource_table(const Report& report, std::size_t most) {
  ResourceTable table;
  if (report.resources.empty()) return table;
  table.over_ranks = report.resources.size() > most;
  if (table.over_ranks) {
    table.heads = {"least", "median", "most"};
  } else {
    for (const auto& use : report.resources) table.heads.push_back(rank_name(report, use.pid));
  }
  for (const auto& line : kResourceLines) {
    std::vector<double> values;
    for (const auto& use : report.resources) values.push_back(line.value(use));
    if (table.over_ranks) {
      std::sort(values.begin(), values.end());
      values = {values.front(), values[values.size() / 2], values.back()};
    }
    ResourceTable::Row row{std::string(line.label), {}};
    for (const double value : values) row.cells.push_back(line.show(value));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<const RankSteps*> ranks_to_show(const StepSummary& steps, std::size_t most) {
  std::vector<const RankSteps*> ranks;
  for (const auto& rank : steps.ranks) ranks.push_back(&rank);
  if (ranks.size() > most && most > 0) {
    std::stable_sort(ranks.begin(), ranks.end(),
                     [](const auto* a, const auto* b) { return a->median_ms > b->median_ms; });
    ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(most) - 1, ranks.end() - 1);
  }
  std::stable_sort(ranks.begin(), ranks.end(),
                   [](const auto* a, const auto* b) { return a->rank < b->rank; });
  return ranks;
}

}  // namespace bedplate::doctor
