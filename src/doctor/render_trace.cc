#include "doctor/render_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "doctor/time_strip.h"
#include "doctor/words.h"
#include "probe/run_file.h"
#include "probe/trace_format.h"

namespace bedplate::doctor {
namespace {

using probe::EventKind;

constexpr int kMachine = 0;  // its pid in the trace: no process has it
constexpr int kFindingsTrack = 1;
constexpr int kStepsTrack = 1;
constexpr std::size_t kPiece = 64 * 1024;
constexpr Nanos kMostCounterPoints = 20'000;
constexpr Nanos kRounding =
    kMicrosecond;  // slices that overlap by less were cut apart by two readings of one clock

std::string json_text(std::string_view text) { return nlohmann::json(to_utf8(text)).dump(); }

// Microseconds with all their nanoseconds.
std::string micro(Nanos t) { return fmt::format("{}.{:03}", t / 1000, t % 1000); }

class Writer {
 public:
  explicit Writer(const TextSink& sink) : sink_(sink) {}

  template <typename... Args>
  void raw(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Args>(args)...);
    if (buffer_.size() >= kPiece) flush();
  }

  // One event; `rest` is what follows the common fields: "\"dur\":1.000,\"args\":{}".
  void event(char phase, int pid, int tid, Nanos t, std::string_view name, std::string_view rest) {
    raw("{}\n{{\"ph\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},\"name\":{}{}{}}}", first_ ? "" : ",",
        phase, pid, tid, micro(t), json_text(name), rest.empty() ? "" : ",", rest);
    first_ = false;
  }
  void slice(int pid, int tid, Nanos start, Nanos duration, std::string_view name,
             std::string_view category, std::string_view args) {
    event(
        'X', pid, tid, start, name,
        fmt::format("\"dur\":{},\"cat\":\"{}\",\"args\":{{{}}}", micro(duration), category, args));
  }
  void name_process(int pid, std::string_view name, int order) {
    event('M', pid, 0, 0, "process_name", fmt::format("\"args\":{{\"name\":{}}}", json_text(name)));
    event('M', pid, 0, 0, "process_sort_index",
          fmt::format("\"args\":{{\"sort_index\":{}}}", order));
  }
  void name_thread(int pid, int tid, std::string_view name) {
    event('M', pid, tid, 0, "thread_name",
          fmt::format("\"args\":{{\"name\":{}}}", json_text(name)));
    event('M', pid, tid, 0, "thread_sort_index",
          fmt::format("\"args\":{{\"sort_index\":{}}}", tid));
  }
  void flush() {
    if (!buffer_.empty()) sink_(buffer_);
    buffer_.clear();
  }

 private:
  const TextSink& sink_;
  std::string buffer_;
  bool first_ = true;
};

// Names that the job gave to numbers: of its own phases, of collectives.
using Names = std::map<std::pair<int, std::int64_t>, std::string>;

Names names_of(const probe::RunData& run, std::string_view key) {
  Names names;
  for (const auto& note : run.notes) {
    if (note.key != key) continue;
    const auto json = nlohmann::json::parse(note.value, nullptr, false);
    if (!json.is_object() || !json.contains("id") || !json.contains("name")) continue;
    if (!json["id"].is_number_integer() || !json["name"].is_string()) continue;
    names[{note.pid, json["id"].get<std::int64_t>()}] = json["name"].get<std::string>();
  }
  return names;
}

std::string named(const Names& names, int pid, std::int64_t id, std::string_view otherwise) {
  const auto found = names.find({pid, id});
  return found == names.end() ? std::string(otherwise) : found->second;
}

struct Slice {
  std::string name;
  const char* category = "";
  std::string args;
};

// What an event looks like; nullopt for those that are no slices of their own.
std::optional<Slice> slice_of(const probe::Event& event, int pid, const Names& phases,
                              const Names& operations) {
  const std::uint64_t arg = event.arg;
  switch (static_cast<EventKind>(event.kind)) {
    case EventKind::kOptimizer:
      return Slice{"optimizer", "optimizer", ""};
    case EventKind::kInputWait:
      return Slice{(arg & 1) != 0 ? "input wait (evaluation)" : "input wait", "input_wait",
                   fmt::format("\"loader\":{}", arg >> 8 & 0xFFFFFF)};
    case EventKind::kBackward:
      return Slice{"backward", "compute", ""};
    case EventKind::kCollective:
      return Slice{named(operations, pid, static_cast<std::int64_t>(arg & 0xFF), "collective") +
                       ((arg & 0x100) != 0 ? " (async)" : ""),
                   "communication",
                   fmt::format("\"group\":{},\"sequence\":{}", arg >> 9 & 0x7F, arg >> 16)};
    case EventKind::kDdpComm:
      return Slice{"DDP all-reduce, not hidden by backward", "communication",
                   fmt::format("\"all_of_it_ms\":{:.3f}", static_cast<double>(arg) / 1e6)};
    case EventKind::kCheckpoint:
      return Slice{"checkpoint", "checkpoint", arg == 0 ? "" : fmt::format("\"bytes\":{}", arg)};
    case EventKind::kGc:
      return Slice{"Python GC", "gc",
                   fmt::format("\"generation\":{},\"collected\":{}", arg & 0xFF, arg >> 8)};
    case EventKind::kFetch:
      return Slice{"fetch a batch", "input",
                   fmt::format("\"user_ms\":{:.3f},\"system_ms\":{:.3f}",
                               static_cast<double>(arg & 0xFFFFFFFF) / 1e3,
                               static_cast<double>(arg >> 32) / 1e3)};
    case EventKind::kH2d:
      return Slice{"host to device", "h2d", ""};
    case EventKind::kDeviceSync:
      return Slice{"device synchronisation", "sync", ""};
    case EventKind::kUserPhase:
      return Slice{named(phases, pid, static_cast<std::int64_t>(arg), fmt::format("phase {}", arg)),
                   "user", ""};
    case EventKind::kLoad:
      return Slice{"torch.load", "checkpoint", ""};
    case EventKind::kFsync:
      return Slice{"fsync", "checkpoint", ""};
    case EventKind::kValidation:
      return Slice{"validation", "user", ""};
    case EventKind::kGpuPhase:
      return Slice{"GPU", "gpu", fmt::format("\"kind\":{}", arg & 0xFF)};
    case EventKind::kStep:
    case EventKind::kUserStep:
    case EventKind::kFiles:
    case EventKind::kBytes:
    case EventKind::kData:
      break;
  }
  return std::nullopt;
}

// Tracks of one thread: a slice goes to the first on which it nests.
class Tracks {
 public:
  struct Place {
    std::size_t track;
    Nanos duration;  // without what hung over its parent's end by rounding
  };
  Place place(Nanos start, Nanos duration) {
    for (std::size_t i = 0;; ++i) {
      if (i == open_.size()) open_.emplace_back();
      auto& ends = open_[i];
      while (!ends.empty() && ends.back() <= start) ends.pop_back();
      if (!ends.empty() && start + duration > ends.back() + kRounding) continue;
      const Nanos end = ends.empty() ? start + duration : std::min(start + duration, ends.back());
      ends.push_back(end);
      return {i, end - start};
    }
  }

 private:
  std::vector<std::vector<Nanos>> open_;  // by track: ends of the slices around, innermost last
};

void write_events(Writer& out, int pid, const std::vector<probe::Event>& events,
                  const Names& phases, const Names& operations) {
  std::map<std::uint32_t, std::vector<const probe::Event*>> by_thread;
  for (const auto& event : events) {
    const std::uint32_t thread =
        event.kind == static_cast<std::uint16_t>(EventKind::kGpuPhase) ? 0 : event.tid;
    by_thread[thread].push_back(&event);
  }
  int next = kStepsTrack + 1;
  for (auto& [thread, list] : by_thread) {
    std::stable_sort(list.begin(), list.end(), [](const auto* a, const auto* b) {
      return a->start != b->start ? a->start < b->start : a->duration > b->duration;
    });
    Tracks tracks;
    std::vector<int> ids;
    for (const auto* event : list) {
      const auto slice = slice_of(*event, pid, phases, operations);
      if (!slice || event->start < 0 || event->duration < 0) continue;
      const auto [track, duration] = tracks.place(event->start, event->duration);
      while (ids.size() <= track) {
        const std::string name =
            thread == 0 && event->kind == static_cast<std::uint16_t>(EventKind::kGpuPhase)
                ? "device"
            : static_cast<int>(thread) == pid ? "main thread"
                                              : fmt::format("thread {}", thread);
        out.name_thread(pid, next, ids.empty() ? name : name + ", meanwhile");
        ids.push_back(next++);
      }
      out.slice(pid, ids[track], event->start, duration, slice->name, slice->category, slice->args);
    }
  }
}

void write_step(Writer& out, const probe::Step& step) {
  const std::string name = step.weight > 1 ? fmt::format("{} steps", step.weight)
                                           : fmt::format("step {}{}", step.index,
                                                         step.evaluation ? " (evaluation)" : "");
  out.slice(step.pid, kStepsTrack, step.start, step.duration, name, "step",
            fmt::format("\"index\":{},\"steps\":{},\"longest_ms\":{:.3f}", step.index, step.weight,
                        milliseconds(step.longest)));
  Nanos at = step.start;
  const Nanos end = step.start + step.duration;
  for (std::size_t i = 0; i < probe::kPhaseCount; ++i) {
    const Nanos length = std::min(step.phases[i], end - at);
    if (length <= 0) continue;
    out.slice(step.pid, kStepsTrack, at, length, phase_label(probe::kPhaseNames[i]), "phase", "");
    at += length;
  }
}

void write_ranks(Writer& out, const probe::RunData& run) {
  const Names phases = names_of(run, "phase_name");
  const Names operations = names_of(run, "op_name");
  std::map<int, std::string> processes;
  std::map<int, int> ranks;
  for (const auto& process : run.processes) {
    processes[process.pid] = process.comm;
    if (process.rank >= 0) ranks[process.pid] = process.rank;
  }
  std::set<int> shown;
  for (const auto& step : run.steps) {
    shown.insert(step.pid);
    if (step.rank >= 0) ranks[step.pid] = step.rank;
  }
  for (const auto& [pid, unused] : run.events) shown.insert(pid);
  for (const int pid : shown) {
    if (pid == kMachine) continue;
    const auto rank = ranks.find(pid);
    const std::string name = processes.contains(pid) ? processes[pid] : "process";
    out.name_process(pid,
                     rank == ranks.end() ? name : fmt::format("rank {} {}", rank->second, name),
                     rank == ranks.end() ? 1'000'000 + pid : 1 + rank->second);
    out.name_thread(pid, kStepsTrack, "steps, and their phases by length");
  }
  // Steps of one process follow each other; one that would begin inside the one before (a clock
  // that was read twice) is cut.
  std::map<int, Nanos> until;
  for (probe::Step step : run.steps) {
    if (step.pid == kMachine || step.duration <= 0 || step.start < 0) continue;
    const Nanos end = step.start + step.duration;
    step.start = std::max(step.start, until[step.pid]);
    if (step.start >= end) continue;
    step.duration = end - step.start;
    until[step.pid] = end;
    write_step(out, step);
  }
  for (const auto& [pid, events] : run.events) {
    if (pid != kMachine) write_events(out, pid, events, phases, operations);
  }
  for (const auto& note : run.notes) {
    if (note.key == "exception" && shown.contains(note.pid) && note.t >= 0) {
      out.event('i', note.pid, kStepsTrack, note.t, "exception",
                fmt::format("\"s\":\"p\",\"args\":{{\"text\":{}}}", json_text(note.value)));
    }
  }
}

double in_unit(LaneUnit unit, double value) {
  return unit == LaneUnit::kShare            ? value * 100
         : unit == LaneUnit::kBytesPerSecond ? value / static_cast<double>(kMiB)
                                             : value;
}

std::string_view unit_name(LaneUnit unit) {
  switch (unit) {
    case LaneUnit::kShare:
      return "%";
    case LaneUnit::kCores:
      return "cores";
    case LaneUnit::kBytesPerSecond:
      return "MiB/s";
    case LaneUnit::kPerSecond:
      return "per second";
  }
  return "";
}

void write_counters(Writer& out, const probe::RunData& run) {
  const Nanos end = end_of(run);
  if (end <= 0) return;
  const Nanos points = std::clamp<Nanos>(end / (kSecond / 2), 1, kMostCounterPoints);
  const TimeStrip strip = make_time_strip(run, static_cast<std::size_t>(points));
  for (const auto& lane : strip.lanes) {
    const std::string name = fmt::format("{} ({})", lane.name, unit_name(lane.unit));
    std::optional<double> last;
    for (std::size_t i = 0; i < lane.columns.size(); ++i) {
      if (!lane.columns[i]) continue;
      const double value = in_unit(lane.unit, lane.columns[i]->mean);
      if (last && *last == value) continue;
      last = value;
      const Nanos t = static_cast<Nanos>(static_cast<double>(strip.end) * static_cast<double>(i) /
                                         static_cast<double>(lane.columns.size()));
      out.event('C', kMachine, 0, t, name,
                fmt::format("\"args\":{{\"{}\":{:.4f}}}", unit_name(lane.unit), value));
    }
  }
}

void write_findings(Writer& out, const Report& report) {
  int track = kFindingsTrack;
  for (const auto& finding : report.findings) {
    if (finding.when.empty()) continue;
    out.name_thread(kMachine, track, "finding: " + finding.rule);
    Nanos until = 0;
    for (const auto& [begin, end] : finding.when) {
      const Nanos start = std::max(begin, until);
      if (end <= start) continue;
      out.slice(kMachine, track, start, end - start, title_of(finding), "finding",
                fmt::format("\"status\":{}", json_text(name(finding.status))));
      until = end;
    }
    ++track;
  }
}

}  // namespace

void write_trace(const Report& report, const probe::RunData& run, const TextSink& sink) {
  Writer out(sink);
  out.raw(
      "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"run\":{},\"command\":{},\"verdict\":{}}},"
      "\n\"traceEvents\":[",
      json_text(report.run_id), json_text(shell_join(report.command)),
      json_text(report.verdict_text));
  out.name_process(kMachine, "machine", 0);
  write_counters(out, run);
  write_findings(out, report);
  write_ranks(out, run);
  out.raw("\n]}}\n");
  out.flush();
}

std::string render_trace(const Report& report, const probe::RunData& run) {
  std::string text;
  write_trace(report, run, [&](std::string_view piece) { text += piece; });
  return text;
}

}  // namespace bedplate::doctor
