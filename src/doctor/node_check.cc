#include "doctor/node_check.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "doctor/node_checks.h"

namespace bedplate::doctor {

std::string_view name(CheckState state) {
  switch (state) {
    case CheckState::kOk:
      return "ok";
    case CheckState::kNote:
      return "note";
    case CheckState::kWarning:
      return "warning";
    case CheckState::kFault:
      return "fault";
    case CheckState::kNotSeen:
      return "not seen";
    case CheckState::kNotApplicable:
      return "n/a";
  }
  return "";
}

std::string_view name(Fitness fitness) {
  switch (fitness) {
    case Fitness::kYes:
      return "yes";
    case Fitness::kWithRemarks:
      return "with remarks";
    case Fitness::kNo:
      return "no";
  }
  return "";
}

CheckResult all_well(std::string text) {
  return {.state = CheckState::kOk, .text = std::move(text)};
}

CheckResult not_seen(std::string why) {
  return {.state = CheckState::kNotSeen, .text = std::move(why)};
}

CheckResult not_applicable(std::string why) {
  return {.state = CheckState::kNotApplicable, .text = std::move(why)};
}

CheckResult found(CheckState state, std::string text, std::string source, std::string seen) {
  return {
      .state = state, .text = std::move(text), .evidence = {{std::move(source), std::move(seen)}}};
}

void add(CheckResult& result, CheckState state, std::string source, std::string seen,
         std::string subject) {
  if (state > result.state && state == CheckState::kFault) result.status = Status::kEstablished;
  if (state == CheckState::kWarning) result.status = Status::kEstablished;
  result.state = std::max(result.state, state);
  if (!subject.empty()) {
    const auto level = state == CheckState::kFault     ? host::MarkLevel::kFault
                       : state == CheckState::kWarning ? host::MarkLevel::kWarning
                                                       : host::MarkLevel::kNote;
    // Evidence begins with its subject ("vda: …"), beside which the mark will stand.
    const auto colon = seen.find(": ");
    result.marks.push_back(
        {std::move(subject), level, colon == std::string::npos ? seen : seen.substr(colon + 2)});
  }
  result.evidence.push_back({std::move(source), std::move(seen)});
}

CheckResult concluded(CheckResult result, std::string many, std::string well) {
  if (result.evidence.empty())
    result.text = std::move(well);
  else
    result.text = result.evidence.size() == 1 ? result.evidence[0].text : std::move(many);
  return result;
}

std::string bytes(std::int64_t value) {
  return value == host::kUnlimited ? std::string("unlimited")
                                   : human_bytes(static_cast<double>(value));
}

std::string plural(std::size_t n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", n, n == 1 ? one : many);
}

namespace {

template <class Visit>
void for_each_threshold(Visit visit) {
  for (const NodeCheck* check : all_node_checks()) {
    for (const auto& threshold : check->thresholds) visit(threshold);
  }
}

std::string machine_line(const host::Host& host) {
  std::vector<std::string> parts;
  parts.push_back(
      host.cpu.model.empty()
          ? plural(host.cpu.online.size(), "CPU", "CPUs")
          : fmt::format("{} ({})", plural(host.cpu.online.size(), "CPU", "CPUs"), host.cpu.model));
  if (host.nodes.size() > 1) parts.push_back(plural(host.nodes.size(), "NUMA node", "NUMA nodes"));
  if (host.memory.total_bytes) parts.push_back(bytes(*host.memory.total_bytes));
  const auto gpus = static_cast<std::size_t>(std::count_if(
      host.gpus.begin(), host.gpus.end(), [](const auto& gpu) { return gpu.compute; }));
  parts.push_back(gpus == 0 ? "no GPU" : plural(gpus, "GPU", "GPUs"));
  if (!host.rdma.empty()) parts.push_back(plural(host.rdma.size(), "RDMA device", "RDMA devices"));
  std::string line = host.system.hostname.empty() ? "this machine" : host.system.hostname;
  for (std::size_t i = 0; i < parts.size(); ++i) line += (i == 0 ? ": " : ", ") + parts[i];
  return line;
}

}  // namespace

std::vector<const NodeCheck*> all_node_checks() {
  std::vector<const NodeCheck*> all;
  for (const auto table : {cpu_checks(), memory_checks(), limit_checks(), io_checks(),
                           network_checks(), gpu_checks(), system_checks()}) {
    for (const auto& check : table) all.push_back(&check);
  }
  return all;
}

double NodeView::threshold(std::string_view key) const {
  if (const auto given = overrides_.find(key); given != overrides_.end()) return given->second;
  std::optional<double> value;
  for_each_threshold([&](const Threshold& threshold) {
    if (threshold.key == key) value = threshold.value;
  });
  BEDPLATE_CHECK(value.has_value());
  return *value;
}

std::size_t NodeReport::count(CheckState state) const {
  return static_cast<std::size_t>(
      std::count_if(entries.begin(), entries.end(),
                    [&](const Entry& entry) { return entry.result.state == state; }));
}

NodeReport check_node(const host::Host& host, const os::HostRoot* root,
                      const Thresholds& overrides) {
  const NodeView view(host, root, overrides);
  NodeReport report;
  report.machine = machine_line(host);
  for (const NodeCheck* check : all_node_checks()) {
    CheckResult result = check->check(view);
    if (result.verify.empty()) result.verify = check->verify;
    if (result.fix.empty()) result.fix = check->fix;
    if (result.undo.empty()) result.undo = check->undo;
    report.entries.push_back({check, std::move(result)});
  }
  if (report.count(CheckState::kFault) > 0)
    report.fitness = Fitness::kNo;
  else if (report.count(CheckState::kWarning) > 0)
    report.fitness = Fitness::kWithRemarks;
  return report;
}

std::vector<host::Mark> marks_of(const NodeReport& report) {
  std::vector<host::Mark> marks;
  for (const auto& entry : report.entries) {
    marks.insert(marks.end(), entry.result.marks.begin(), entry.result.marks.end());
  }
  return marks;
}

Thresholds node_thresholds(std::span<const std::string> texts) {
  std::vector<std::string_view> known;
  for_each_threshold([&](const Threshold& threshold) { known.push_back(threshold.key); });
  Thresholds overrides;
  for (const auto& text : texts) {
    const auto equals = text.find('=');
    const auto value = equals == std::string::npos
                           ? std::nullopt
                           : to_double(std::string_view(text).substr(equals + 1));
    if (!value)
      throw Error(Code::kInvalid, "threshold \"{}\" is not of the form key=number", to_utf8(text));
    const std::string key = text.substr(0, equals);
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      const auto nearest = nearest_name(key, known);
      throw Error(Code::kInvalid, "there is no threshold \"{}\"{}", to_utf8(key),
                  nearest.empty() ? std::string() : fmt::format("; did you mean {}?", nearest));
    }
    overrides[key] = *value;
  }
  return overrides;
}

}  // namespace bedplate::doctor
