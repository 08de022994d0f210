#include "probe/internal/sample_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::probe {
namespace {

constexpr std::size_t kMostExits = 4'096;

struct ResourceField {
  std::string_view metric;
  std::int64_t ResourceUse::*field;
};
constexpr ResourceField kResourceFields[] = {
    {"major_faults", &ResourceUse::major_faults},
    {"minor_faults", &ResourceUse::minor_faults},
    {"voluntary_switches", &ResourceUse::voluntary_switches},
    {"involuntary_switches", &ResourceUse::involuntary_switches},
    {"io.read_bytes", &ResourceUse::read_bytes},
    {"io.write_bytes", &ResourceUse::write_bytes},
    {"cpu.user_ns", &ResourceUse::user},
    {"cpu.system_ns", &ResourceUse::system},
};

void join(std::string& key, std::string_view subject, std::string_view metric) {
  key.assign(subject);
  key += '\0';
  key += metric;
}

}  // namespace

void SampleWriter::counter(std::string_view subject, std::string_view metric, std::int64_t value,
                           std::string_view source) {
  put(subject, metric, SeriesKind::kCounter, value, source);
}

void SampleWriter::gauge(std::string_view subject, std::string_view metric, std::int64_t value,
                         std::string_view source) {
  put(subject, metric, SeriesKind::kGauge, value, source);
}

void SampleWriter::put(std::string_view subject, std::string_view metric, SeriesKind kind,
                       std::int64_t value, std::string_view source) {
  join(key_, subject, metric);
  auto it = series_.find(std::string_view(key_));
  if (it == series_.end())
    it = series_.emplace(key_, Entry{writer_.series(subject, metric, kind, source), value}).first;
  it->second.value = value;
  writer_.sample(it->second.id, now_, value);
  if (subject.starts_with("proc/")) tally(subject, metric, value);
}

void SampleWriter::tally(std::string_view subject, std::string_view metric, std::int64_t value) {
  const auto field =
      std::find_if(std::begin(kResourceFields), std::end(kResourceFields),
                   [metric](const ResourceField& candidate) { return candidate.metric == metric; });
  const bool resident = metric == "rss_bytes";
  if (field == std::end(kResourceFields) && !resident) return;
  const auto pid = to_int(subject.substr(5));
  if (!pid) return;
  ResourceUse& use = resources_[static_cast<int>(*pid)];
  use.pid = static_cast<int>(*pid);
  if (resident) {
    use.peak_rss_bytes = std::max(use.peak_rss_bytes, value);
  } else {
    use.*field->field = value;
  }
}

void SampleWriter::note(int pid, std::string_view key, std::string_view value) {
  writer_.note({.pid = pid, .t = now_, .key = std::string(key), .value = to_utf8(value)});
  if (key != "exit") return;
  const auto exit = nlohmann::json::parse(value, nullptr, false);
  if (!exit.is_object()) return;
  const auto number = [&](const char* name, int otherwise) {
    const auto found = exit.find(name);
    return found != exit.end() && found->is_number_integer() ? found->get<int>() : otherwise;
  };
  if (exits_.size() >= kMostExits) exits_.erase(exits_.begin());
  exits_[number("pid", pid)] = number("signal", 0) | number("code", 0) << 8;
}

void SampleWriter::forget(int pid) {
  const std::string subject = fmt::format("proc/{}", pid);
  const std::string threads = fmt::format("thread/{}/", pid);
  std::erase_if(series_, [&](const auto& entry) {
    const std::string_view name = std::string_view(entry.first).substr(0, entry.first.find('\0'));
    if (name != subject && !name.starts_with(threads)) return false;
    writer_.forget(name);
    return true;
  });
  resources_.erase(pid);
}

std::optional<std::int64_t> SampleWriter::last(std::string_view subject,
                                               std::string_view metric) const {
  std::string key;
  join(key, subject, metric);
  const auto it = series_.find(std::string_view(key));
  if (it == series_.end()) return std::nullopt;
  return it->second.value;
}

ResourceUse* SampleWriter::resource(int pid) {
  const auto it = resources_.find(pid);
  return it == resources_.end() ? nullptr : &it->second;
}

std::optional<int> SampleWriter::take_exit_status(int pid) {
  const auto it = exits_.find(pid);
  if (it == exits_.end()) return std::nullopt;
  const int status = it->second;
  exits_.erase(it);
  return status;
}

std::map<int, int> SampleWriter::take_exit_statuses(const std::map<int, Process>& wanted) {
  std::map<int, int> taken;
  if (exits_.empty()) return taken;
  for (const auto& [pid, process] : wanted) {
    if (const auto status = take_exit_status(pid)) taken.emplace(pid, *status);
  }
  return taken;
}

}  // namespace bedplate::probe
