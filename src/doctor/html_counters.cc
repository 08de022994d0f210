#include "doctor/html_counters.h"

#include <algorithm>
#include <set>

#include "doctor/html.h"
#include "doctor/words.h"

namespace bedplate::doctor {
namespace {

constexpr std::size_t kMostRows = 1500;

// The order in which subjects are of interest.
int importance(std::string_view subject, const std::set<std::string>& ranks) {
  if (subject.starts_with("cgroup/")) return 0;
  if (subject == "host") return 1;
  if (ranks.contains(std::string(subject))) return 2;
  if (subject.starts_with("disk/") || subject.starts_with("net/") || subject.starts_with("gpu/"))
    return 3;
  if (subject.starts_with("iolimit/")) return 4;
  if (subject.starts_with("cpu/")) return 5;
  return subject.starts_with("proc/") ? 6 : 7;
}

void put_row(std::string& page, const probe::Series& series) {
  const auto [low, high] =
      std::minmax_element(series.samples.begin(), series.samples.end(),
                          [](const auto& a, const auto& b) { return a.value < b.value; });
  const bool counter = series.kind == probe::SeriesKind::kCounter;
  const std::int64_t first = series.samples.front().value;
  const std::int64_t last = series.samples.back().value;
  const std::string range =
      counter ? "+" + thousands(last - first)
      : low->value == high->value
          ? thousands(last)
          : fmt::format("{} … {}", thousands(low->value), thousands(high->value));
  put(page,
      "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td><code "
      "class=\"soft\">{}</code></td></tr>\n",
      escaped(series.metric), range, thousands(last), escaped(series.source));
}

}  // namespace

void put_counters(std::string& page, const probe::RunData& run) {
  std::set<std::string> ranks;
  std::map<std::string, std::string> names;
  for (const auto& process : run.processes) {
    const std::string subject = fmt::format("proc/{}", process.pid);
    if (process.rank >= 0) ranks.insert(subject);
    names[subject] =
        process.rank >= 0 ? fmt::format("rank {}, {}", process.rank, process.comm) : process.comm;
  }
  std::vector<const probe::Series*> rows;
  for (const auto& series : run.series) {
    if (!series.samples.empty()) rows.push_back(&series);
  }
  if (rows.empty()) return;
  std::stable_sort(rows.begin(), rows.end(), [&](const auto* a, const auto* b) {
    return importance(a->subject, ranks) < importance(b->subject, ranks);
  });
  put(page,
      "<h2>Counters <small>{} series, as they were read</small></h2>\n<div class=\"panel "
      "counters\">\n",
      rows.size());
  std::size_t shown = 0;
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t end = i;
    while (end < rows.size() && rows[end]->subject == rows[i]->subject) ++end;
    if (shown + (end - i) > kMostRows) {
      put(page,
          "<p class=\"about\">{} further series, of single processes and threads, are in "
          "run.db.</p>\n",
          rows.size() - shown);
      break;
    }
    const auto named = names.find(rows[i]->subject);
    put(page,
        "<details><summary><code>{}</code>{} <span class=\"soft\">{} series</span></summary><div "
        "class=\"scroll\"><table>\n",
        escaped(rows[i]->subject), named == names.end() ? "" : " " + escaped(named->second),
        end - i);
    put(page,
        "<tr><th>metric</th><th class=\"n\">growth or range</th><th "
        "class=\"n\">last</th><th>file</th></tr>\n");
    for (; i < end; ++i, ++shown) put_row(page, *rows[i]);
    put(page, "</table></div></details>\n");
  }
  put(page, "</div>\n");
}

}  // namespace bedplate::doctor
