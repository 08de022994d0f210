#include "doctor/render_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "doctor/words.h"

namespace bedplate::doctor {
namespace {

using Json = nlohmann::ordered_json;

Json rounded(double value, double places) {
  return std::isfinite(value) ? Json(std::round(value * places) / places) : Json();
}
Json share(double value) { return rounded(value, 1e4); }
Json time_ms(double value) { return rounded(value, 1e3); }

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json texts(const std::vector<std::string>& list) {
  Json out = Json::array();
  for (const auto& text : list) out.push_back(to_utf8(text));
  return out;
}

// All eight in the order of a step, those that are not of this version of Bedplate after them.
Json phases(const std::map<std::string, double>& shares) {
  Json out = Json::object();
  for (const auto name : probe::kPhaseNames) {
    if (const auto found = shares.find(std::string(name)); found != shares.end())
      out[found->first] = share(found->second);
  }
  for (const auto& [name, value] : shares) {
    if (!out.contains(name)) out[to_utf8(name)] = share(value);
  }
  return out;
}

Json run_of(const Report& report) {
  Json hooks = Json::object();
  for (const auto& [pid, state] : report.hooks) hooks[std::to_string(pid)] = to_utf8(state);
  return {{"id", to_utf8(report.run_id)},
          {"command", texts(report.command)},
          {"exit_code", or_null(report.exit_code)},
          {"signal", or_null(report.signal)},
          {"started", report.started_unix == 0 ? Json() : Json(iso_date(report.started_unix))},
          {"duration_s", rounded(seconds(report.duration), 1e6)},
          {"complete", report.complete},
          {"hooks", hooks}};
}

Json steps_of(const StepSummary& steps) {
  Json ranks = Json::array();
  for (const auto& rank : steps.ranks) {
    ranks.push_back({{"rank", rank.rank},
                     {"pid", rank.pid},
                     {"count", rank.count},
                     {"median_ms", rank.count > 0 ? time_ms(rank.median_ms) : Json()},
                     {"p99_ms", rank.count > 0 ? time_ms(rank.p99_ms) : Json()},
                     {"phases", phases(rank.phases)}});
  }
  return {{"count", steps.count},
          {"median_ms", steps.count > 0 ? time_ms(steps.median_ms) : Json()},
          {"p99_ms", steps.count > 0 ? time_ms(steps.p99_ms) : Json()},
          {"phases", phases(steps.phases)},
          {"ranks", ranks}};
}

Json verdict_of(const Report& report) {
  const Finding* top = report.verdict == Verdict::kFinding && !report.findings.empty()
                           ? &report.findings.front()
                           : nullptr;
  const std::string_view status = top != nullptr                        ? name(top->status)
                                  : report.verdict == Verdict::kHealthy ? "healthy"
                                                                        : "unknown";
  return {{"rule", top == nullptr ? Json() : Json(top->rule)},
          {"status", status},
          {"text", to_utf8(report.verdict_text)}};
}

Json finding_of(const Finding& finding) {
  Json evidence = Json::array();
  for (const auto& one : finding.evidence)
    evidence.push_back({{"source", to_utf8(one.source)}, {"text", to_utf8(one.text)}});
  Json ruled_out = Json::array();
  for (const auto& one : finding.ruled_out)
    ruled_out.push_back({{"rule", to_utf8(one.rule)}, {"text", to_utf8(one.text)}});
  return {{"rule", finding.rule},
          {"title", to_utf8(title_of(finding))},
          {"status", name(finding.status)},
          {"role", finding.because_of ? "consequence" : "root"},
          {"because_of", or_null(finding.because_of)},
          {"gain_ceiling", share(finding.gain_ceiling)},
          {"scope",
           {{"ranks", finding.scope.ranks},
            {"pids", finding.scope.pids},
            {"device", to_utf8(finding.scope.device)},
            {"path", to_utf8(finding.scope.path)}}},
          {"evidence", evidence},
          {"ruled_out", ruled_out},
          {"verify", to_utf8(finding.verify)},
          {"fix", to_utf8(finding.fix)},
          {"undo", to_utf8(finding.undo)}};
}

Json data_of(const DataPlane& data) {
  Json cache;
  if (data.counts_hits()) {
    cache = {{"cache", data.cache.empty() ? Json() : Json(to_utf8(data.cache))},
             {"window_bytes", data.window_bytes},
             {"hits", data.hits},
             {"hit_bytes", data.hit_bytes},
             {"memory_bytes", data.memory_bytes},
             {"misses", data.misses},
             {"origin_bytes", data.origin_bytes},
             {"evictions", data.evictions},
             {"pass_throughs", data.pass_throughs},
             {"waits", data.waits},
             {"trouble", to_utf8(data.trouble)}};
  }
  Json remote;
  if (data.remote_reads > 0) {
    remote = {{"reads", data.remote_reads},
              {"mean_ms", time_ms(static_cast<double>(data.remote_time) / 1e6 /
                                  static_cast<double>(data.remote_reads))},
              {"p99_ms",
               data.remote_p99 > 0 ? time_ms(static_cast<double>(data.remote_p99) / 1e6) : Json()},
              {"bytes", data.remote_bytes},
              {"retries", data.remote_retries},
              {"failures", data.remote_failures}};
  }
  return {{"rank", data.rank},
          {"pid", data.pid},
          {"url", to_utf8(data.url)},
          {"set_bytes", data.set_bytes},
          {"set_samples", data.set_samples},
          {"batches", data.batches},
          {"samples", data.samples},
          {"bytes", data.bytes},
          {"loop_wait_s", rounded(seconds(data.loop_wait), 1e6)},
          {"threads",
           {{"make_s", rounded(seconds(data.make), 1e6)},
            {"store_wait_s", rounded(seconds(data.store_wait), 1e6)},
            {"decode_s", rounded(seconds(data.decode), 1e6)},
            {"idle_s", rounded(seconds(data.idle), 1e6)}}},
          {"cache", cache},
          {"remote", remote}};
}

Json resource_of(const Report& report, const probe::ResourceUse& use) {
  Json rank;
  for (const auto& one : report.steps.ranks) {
    if (one.pid == use.pid && one.rank >= 0) rank = one.rank;
  }
  return {{"pid", use.pid},
          {"rank", rank},
          {"user_s", rounded(seconds(use.user), 1e6)},
          {"system_s", rounded(seconds(use.system), 1e6)},
          {"peak_rss_bytes", use.peak_rss_bytes},
          {"major_faults", use.major_faults},
          {"minor_faults", use.minor_faults},
          {"voluntary_switches", use.voluntary_switches},
          {"involuntary_switches", use.involuntary_switches},
          {"read_bytes", use.read_bytes},
          {"write_bytes", use.write_bytes}};
}

}  // namespace

std::string render_json(const Report& report) {
  Json findings = Json::array();
  for (const auto& finding : report.findings) findings.push_back(finding_of(finding));
  Json not_seen = Json::array();
  for (const auto& one : report.not_seen)
    not_seen.push_back({{"rule", to_utf8(one.rule)}, {"missing", texts(one.missing)}});
  Json resources = Json::array();
  for (const auto& use : report.resources) resources.push_back(resource_of(report, use));
  Json data = Json::array();
  for (const auto& one : report.data) data.push_back(data_of(one));

  const Json out = {{"schema", kReportSchema},
                    {"version", to_utf8(report.version)},
                    {"run", run_of(report)},
                    {"own_cost",
                     {{"cpu_share_of_core", share(report.own_cpu_share)},
                      {"max_rss_bytes", report.own_max_rss_bytes},
                      {"events", report.events},
                      {"events_lost", report.events_lost}}},
                    {"steps", steps_of(report.steps)},
                    {"verdict", verdict_of(report)},
                    {"findings", findings},
                    {"not_fired", texts(report.not_fired)},
                    {"not_seen", not_seen},
                    {"remarks", texts(report.remarks)},
                    {"resources", resources},
                    {"resource_remarks", texts(report.resource_remarks)},
                    {"data", data}};
  return out.dump(2) + "\n";
}

}  // namespace bedplate::doctor
