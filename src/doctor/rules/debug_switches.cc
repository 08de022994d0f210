// A switch for debugging was left on: it makes every kernel launch wait, every collective be
// checked, every allocation be traced, or a tracer stops the process at each system call.
//
// Without a run that has the switch off its price cannot be known; the report says so by never
// calling the finding established. Ceiling: of each phase that the switch works in, the largest
// share that its authors or our measurements give it (the `of_*` columns below); the phases are
// disjoint, so their sum is a union.
//   - CUDA_LAUNCH_BLOCKING: CUDA documentation, "disables asynchronous kernel launches"; launches
//   and kernels no longer overlap.
//   - TORCH_DISTRIBUTED_DEBUG=DETAIL: torch.distributed documentation, "may impact the application
//   performance": each collective is
//     preceded by a check of all ranks. Two gloo ranks: [own] 93 % of the time in collectives.
//   - PYTHONTRACEMALLOC: Python documentation, tracemalloc, overhead of every allocation; [own] 60
//   to 80 % of pure Python work.
//   - PYTHONMALLOC=debug, PYTHONDEVMODE: checks of every block; [own] up to a third of pure Python
//   work.
//   - PYTORCH_NO_CUDA_MEMORY_CACHING: each allocation becomes cudaMalloc, which synchronises.
//   - a tracer (strace, gdb): py-spy #872 measured 5 to 15 times slower.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "doctor/cite.h"
#include "doctor/rule.h"
#include "doctor/run_view.h"

namespace bedplate::doctor {
namespace {

using probe::Phase;

enum class On { kNotZero, kSet, kDebug, kDetail, kTrace, kZero };

struct Switch {
  std::string_view name;
  On on;
  double of_input;    // share of the phase that the switch may cost at most
  double of_compute;  // compute and optimizer
  double of_communication;
  double of_other;
  bool well_known;  // its cost is documented; else it is only worth a look
  std::string_view what;
};

constexpr Switch kSwitches[] = {
    {"CUDA_LAUNCH_BLOCKING", On::kNotZero, 0, 0.7, 0, 0.3, true,
     "every kernel launch waits until the kernel is done"},
    {"TORCH_DISTRIBUTED_DEBUG", On::kDetail, 0, 0.2, 0.95, 0.2, true,
     "every collective is checked across all ranks first"},
    {"NCCL_DEBUG", On::kTrace, 0, 0, 0.5, 0, true, "NCCL writes a line for every call"},
    {"GLOO_LOG_LEVEL", On::kTrace, 0, 0, 0.3, 0, false, "gloo writes a line for every call"},
    {"PYTHONTRACEMALLOC", On::kNotZero, 0.9, 0.9, 0.3, 0.9, true,
     "every Python allocation records where it was made"},
    {"PYTHONDEVMODE", On::kNotZero, 0.4, 0.2, 0.1, 0.4, true,
     "Python checks every block of memory and more"},
    {"PYTHONMALLOC", On::kDebug, 0.4, 0.2, 0.1, 0.4, true, "Python checks every block of memory"},
    {"PYTHONASYNCIODEBUG", On::kNotZero, 0.3, 0, 0, 0.3, false,
     "asyncio records where every task was made"},
    {"PYTORCH_NO_CUDA_MEMORY_CACHING", On::kNotZero, 0.2, 0.9, 0, 0.2, true,
     "every tensor is a cudaMalloc"},
    {"PYTORCH_JIT", On::kZero, 0, 0.5, 0, 0, false, "scripted functions run as plain Python"},
    {"TORCHDYNAMO_DISABLE", On::kNotZero, 0, 0.5, 0, 0, false, "torch.compile does nothing"},
    {"TORCH_COMPILE_DEBUG", On::kNotZero, 0, 0.3, 0, 0, false,
     "every compilation writes its intermediate code"},
    {"MALLOC_CHECK_", On::kNotZero, 0.3, 0.3, 0.1, 0.3, false,
     "the C library checks every block of memory"},
    {"MALLOC_PERTURB_", On::kNotZero, 0.3, 0.3, 0.1, 0.3, false,
     "the C library fills every block of memory"},
    {"LD_AUDIT", On::kSet, 0.2, 0.2, 0.2, 0.2, false, "the dynamic linker calls an auditor"},
};

constexpr std::string_view kCheckers[] = {"asan",      "tsan",        "msan",      "lsan",
                                          "ubsan",     "valgrind",    "vgpreload", "efence",
                                          "heaptrack", "libSegFault", "memusage"};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

bool is_on(const Switch& s, std::string_view value) {
  const std::string text = lower(value);
  switch (s.on) {
    case On::kNotZero:
      return !text.empty() && text != "0" && text != "false";
    case On::kSet:
      return !text.empty();
    case On::kDebug:
      return text.find("debug") != std::string::npos;
    case On::kDetail:
      return text == "detail";
    case On::kTrace:
      return text == "trace" || text == "debug";
    case On::kZero:
      return text == "0";
  }
  return false;
}

struct Found {
  std::vector<const Switch*> switches;
  std::vector<std::string> settings;  // "NAME=value"
  std::vector<int> pids;
  std::string checker;  // preloaded
  int tracer = 0;
  int traced = 0;       // the process it traces
  bool looked = false;  // some environment was recorded
};

void look_at(std::string_view note, int pid, Found& found) {
  const auto env = nlohmann::json::parse(note, nullptr, false);
  if (!env.is_object()) return;
  found.looked = true;
  const auto value = [&](std::string_view name) -> std::string {
    const auto it = env.find(std::string(name));
    return it != env.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  bool any = false;
  for (const Switch& s : kSwitches) {
    const std::string text = value(s.name);
    if (text.empty() || !is_on(s, text)) continue;
    any = true;
    if (std::find(found.switches.begin(), found.switches.end(), &s) != found.switches.end())
      continue;
    found.switches.push_back(&s);
    found.settings.push_back(fmt::format("{}={}", s.name, text));
  }
  const std::string preload = value("LD_PRELOAD");
  for (const std::string_view checker : kCheckers) {
    if (preload.find(checker) == std::string::npos) continue;
    any = true;
    found.checker = preload;
  }
  if (any) found.pids.push_back(pid);
}

Found look(const RunView& run) {
  Found found;
  for (const int pid : run.job_pids()) {
    const auto env = run.notes("env", pid);
    if (!env.empty()) look_at(env.back(), pid, found);
    // A tracer that came and went is no switch that was left on; what counts is the note at the
    // end.
    const auto tracer = run.notes("tracer", pid);
    if (tracer.empty()) continue;
    found.looked = true;
    const auto number = nlohmann::json::parse(tracer.back(), nullptr, false);
    if (number.is_number_integer() && number.get<std::int64_t>() > 0) {
      found.tracer = static_cast<int>(number.get<std::int64_t>());
      found.traced = pid;
    }
  }
  return found;
}

LostTime lost_to(const RunView& run, const Found& found) {
  std::array<double, 4> most{};  // input, compute, communication, other
  for (const Switch* s : found.switches) {
    const std::array<double, 4> one = {s->of_input, s->of_compute, s->of_communication,
                                       s->of_other};
    for (std::size_t i = 0; i < most.size(); ++i) most[i] = 1 - (1 - most[i]) * (1 - one[i]);
  }
  if (!found.checker.empty() || found.tracer != 0) most.fill(0.9);
  LostTime lost = scaled(run.phase_time(Phase::kInputWait), most[0]);
  for (const Phase phase : {Phase::kCompute, Phase::kOptimizer})
    lost = run.either(lost, scaled(run.phase_time(phase), most[1]));
  lost = run.either(lost, scaled(run.phase_time(Phase::kCommunication), most[2]));
  return run.either(lost, scaled(run.phase_time(Phase::kOther), most[3]));
}

std::optional<Finding> check(const RunView& run) {
  const Found found = look(run);
  if (found.switches.empty() && found.checker.empty() && found.tracer == 0) return std::nullopt;
  Finding f;
  const LostTime lost = lost_to(run, found);
  f.gain_ceiling = run.share(lost);
  f.scope.pids = found.pids;
  const bool known = std::any_of(found.switches.begin(), found.switches.end(),
                                 [](const Switch* s) { return s->well_known; });
  f.status = known || found.tracer != 0 || !found.checker.empty() ? Status::kSupported
                                                                  : Status::kHypothesis;
  if (f.gain_ceiling < run.threshold("debug_switches.share")) f.status = Status::kHypothesis;
  std::string names;
  for (std::size_t i = 0; i < found.switches.size(); ++i) {
    names += (i > 0 ? ", " : "") + found.settings[i];
    f.evidence.push_back(
        cite("/proc/PID/environ", "{}: {}", found.settings[i], found.switches[i]->what));
  }
  if (!found.checker.empty()) {
    names += (names.empty() ? "" : ", ") + fmt::format("LD_PRELOAD={}", found.checker);
    f.evidence.push_back(cite("/proc/PID/environ",
                              "LD_PRELOAD={}: a memory checker is loaded into every process",
                              found.checker));
  }
  if (found.tracer != 0) {
    names += (names.empty() ? "" : ", ") + fmt::format("a tracer (pid {})", found.tracer);
    f.evidence.push_back(cite("/proc/PID/status: TracerPid",
                              "{} is traced by pid {}: it stops at each system call or breakpoint",
                              run.label(found.traced), found.tracer));
    f.scope.pids.push_back(found.traced);
  }
  f.evidence.push_back({"",
                        "the environment is the one at the start of each process; the price is "
                        "known only after a run without"});
  f.title = "a switch for debugging is on: " + names;
  f.verify =
      "tr '\\0' '\\n' </proc/PID/environ | grep -E 'BLOCKING|DEBUG|MALLOC|PRELOAD'; grep TracerPid "
      "/proc/PID/status";
  std::string unset;
  for (const Switch* s : found.switches) unset += fmt::format(" {}", s->name);
  if (!found.checker.empty()) unset += " LD_PRELOAD";
  f.fix =
      unset.empty() ? "end the tracer" : fmt::format("unset{}, and compare the step time", unset);
  for (const auto& setting : found.settings) f.undo += (f.undo.empty() ? "export " : " ") + setting;
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  const Found found = look(run);
  if (!found.looked || !found.switches.empty() || !found.checker.empty() || found.tracer != 0)
    return std::nullopt;
  return "no switch for debugging is set and nobody traces the job";
}

constexpr std::string_view kNeeds[] = {"proc.env"};
constexpr std::string_view kLookAlikes[] = {"noisy_neighbour"};
constexpr Threshold kThresholds[] = {
    {"debug_switches.share", 0.05, "share",
     "of step time; below it a switch is only worth a look: [own]"},
};
constexpr std::string_view kSymptoms[] = {
    "everything is evenly slow",
    "slower since somebody looked for a bug",
    "GPU at 30 %",
};

}  // namespace

extern const Rule kDebugSwitches = {
    .id = "debug_switches",
    .title = "a switch for debugging is on",
    .layer = Layer::kFramework,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "An environment variable or a tracer that helps to find bugs makes kernels, collectives or "
        "allocations slow. It stays in a launch "
        "script long after the bug is gone.",
    .signals =
        "/proc/PID/environ as of exec (CUDA_LAUNCH_BLOCKING, TORCH_DISTRIBUTED_DEBUG, NCCL_DEBUG, "
        "PYTHONTRACEMALLOC, PYTHONDEVMODE, PYTHONMALLOC, "
        "MALLOC_*, LD_PRELOAD and others); TracerPid of /proc/PID/status",
    .symptoms = kSymptoms,
    .verify =
        "tr '\\0' '\\n' </proc/PID/environ | grep -E 'BLOCKING|DEBUG|MALLOC|PRELOAD'; grep "
        "TracerPid /proc/PID/status",
    .fix = "Unset the variable, end the tracer, and compare.",
    .check = check,
    .rule_out = rule_out,
};

}  // namespace bedplate::doctor
