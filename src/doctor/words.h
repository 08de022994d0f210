// What the text and the HTML report say in the same words.
//
// All texts returned are as the report holds them: a renderer makes them printable() or escapes
// them itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/finding.h"

namespace bedplate::doctor {

std::string phase_label(std::string_view phase);  // "input_wait" → "input wait"
std::string thousands(std::int64_t n);            // 12345 → "12,345"
std::string milliseconds_text(double ms);         // "48.2 ms"
std::string date_text(Nanos unix_time);           // "29 Nov 2026 21:52:03 UTC"; empty for 0
std::string iso_date(Nanos unix_time);            // "2026-11-29T21:52:03Z"
std::string ending_text(
    const Report& report);  // "exit code 1", "killed by signal 9 (KILL)", "no end was recorded"
std::string title_of(const Finding& finding);
std::string gain_text(const Finding& finding);   // "at most 41 %"; empty when it has no ceiling
std::string scope_text(const Scope& scope);      // "ranks 0-3, vda, /data"; empty: the whole job
std::string verdict_word(const Report& report);  // "FOUND", "HEALTHY", "UNKNOWN"
std::string own_cost_text(const Report& report);
std::string rank_name(const Report& report, int pid);  // "rank 3", or "pid 4242"

// "hook active in 3 processes", "no hook in 2 (python -I)": what was hooked, one line a reason.
std::vector<std::string> hook_lines(const Report& report);

// Rules that could not see for the same reasons, together.
struct Unseen {
  std::vector<std::string> rules;
  std::vector<std::string> missing;
};
std::vector<Unseen> grouped(const std::vector<NotSeen>& not_seen);

// The lines of /usr/bin/time -v, a column a rank; with more ranks than `most`, the columns are the
// least, the median and the most over the ranks, each row for itself.
struct ResourceTable {
  struct Row {
    std::string label;  // in time's words
    std::vector<std::string> cells;
  };
  std::vector<std::string> heads;
  std::vector<Row> rows;
  bool over_ranks = false;  // the three-column form
};
ResourceTable resource_table(const Report& report, std::size_t most);

// Ranks worth a line of their own when there are more than `most`: the slowest ones and the
// fastest, in rank order.
std::vector<const RankSteps*> ranks_to_show(const StepSummary& steps, std::size_t most);

}  // namespace bedplate::doctor
