// A process of the job died: of a signal, an exception, or with an exit code. In a distributed job
// the others then fail in their next collective, a launcher kills the rest, and the log holds many
// errors of which one is the cause: the first that is not itself an answer to another's death.
//
// Ceiling: 1. What a dead job lost is everything.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "doctor/cite.h"
#include "doctor/rule.h"
#include "doctor/run_view.h"
#include "probe/run_file.h"

namespace bedplate::doctor {
namespace {

using nlohmann::json;

struct Death {
  int pid = 0;
  Nanos t = 0;
  int signal = 0;
  int code = 0;
  bool out_of_memory = false;
  std::string type;  // of the exception
  std::string message;
  std::string traceback;  // its last line of the job's own code
  bool answer = false;    // to another's death
};

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

// Texts by which libraries tell that somebody else is gone.
constexpr std::string_view kAnswers[] = {"connection closed by peer",
                                         "connection reset by peer",
                                         "broken pipe",
                                         "socket timeout",
                                         "socket closed",
                                         "gloo/transport",
                                         "nccl communicator was aborted",
                                         "remote process exited",
                                         "heartbeat",
                                         "tcpstore",
                                         "watchdog",
                                         "exited unexpectedly",
                                         "connection refused",
                                         "is killed by signal"};
constexpr std::string_view kAnswerTypes[] = {
    "ChildFailedError",     "ProcessExitedException", "ProcessRaisedException",
    "DistNetworkError",     "DistBackendError",       "BrokenPipeError",
    "ConnectionResetError", "SignalException",        "KeyboardInterrupt"};

bool is_answer(const Death& death) {
  if (std::find(std::begin(kAnswerTypes), std::end(kAnswerTypes), death.type) !=
      std::end(kAnswerTypes))
    return true;
  std::string text = death.message;
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return std::any_of(std::begin(kAnswers), std::end(kAnswers),
                     [&](std::string_view part) { return text.find(part) != std::string::npos; });
}

// How others end a process: a launcher's SIGTERM, a user's Ctrl-C, a closed terminal or pipe.
bool is_request(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGPIPE ||
         signal == SIGQUIT;
}

// A message in one line of at most `most` bytes, whole characters. An exception that crossed a
// process brings the other side's traceback along: its first and its last line say what happened.
std::string brief(std::string_view message, std::size_t most) {
  std::string_view first;
  std::string_view last;
  for (const std::string_view line : split(message, '\n')) {
    if (trim(line).empty()) continue;
    if (first.empty()) first = trim(line);
    last = trim(line);
  }
  std::string text = first == last ? std::string(first) : fmt::format("{} … {}", first, last);
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return text.substr(0, most) + "…";
}

std::string last_line_of_code(std::string_view traceback) {
  std::string found;
  for (const std::string_view line : split(traceback, '\n')) {
    if (trim(line).starts_with("File \"")) found = trim(line);
  }
  return found;
}

void read_exceptions(const RunView& run, std::map<int, Death>& deaths) {
  for (const probe::Note* note : run.notes("exception")) {
    const json object = json::parse(note->value, nullptr, false);
    if (!object.is_object()) continue;
    const auto text = [&](const char* key) -> std::string {
      const auto it = object.find(key);
      return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
    };
    if (object.contains("thread")) continue;  // a thread's death does not end the process
    Death& death = deaths[note->pid];
    death.pid = note->pid;
    death.t = note->t;
    death.type = text("type");
    death.message = text("message");
    death.traceback = last_line_of_code(text("traceback"));
    death.code = std::max(death.code, 1);
  }
}

void read_exits(const RunView& run, std::map<int, Death>& deaths) {
  for (const probe::Note* note : run.notes("exit")) {
    const json object = json::parse(note->value, nullptr, false);
    if (!object.is_object()) continue;
    const auto number = [&](const char* key) -> int {
      const auto it = object.find(key);
      return it != object.end() && it->is_number_integer()
                 ? static_cast<int>(std::clamp<std::int64_t>(it->get<std::int64_t>(), -1, 1 << 30))
                 : 0;
    };
    const int pid = object.contains("pid") ? number("pid") : note->pid;
    if (number("signal") <= 0 && number("code") <= 0) continue;
    const bool known = deaths.count(pid) != 0;
    Death& death = deaths[pid];
    death.pid = pid;
    if (!known) death.t = note->t;
    death.signal = std::max(0, number("signal"));
    death.code = std::max(death.code, number("code"));
  }
}

std::vector<Death> deaths_in_order(const RunView& run) {
  std::map<int, Death> deaths;
  read_exceptions(run, deaths);
  read_exits(run, deaths);
  for (const auto& process : run.data().processes) {
    if (process.wait_status && *process.wait_status != 0) {
      const bool known = deaths.count(process.pid) != 0;
      Death& death = deaths[process.pid];
      death.pid = process.pid;
      if (!known) death.t = process.end.value_or(run.whole().end);
      if (WIFSIGNALED(*process.wait_status)) death.signal = WTERMSIG(*process.wait_status);
      if (WIFEXITED(*process.wait_status))
        death.code = std::max(death.code, WEXITSTATUS(*process.wait_status));
    }
    if (process.oom_killed) {
      const bool known = deaths.count(process.pid) != 0;
      Death& death = deaths[process.pid];
      death.pid = process.pid;
      if (!known) death.t = process.end.value_or(run.whole().end);
      death.signal = SIGKILL;
      death.out_of_memory = true;
    }
  }
  const auto root = run.meta_int(probe::run_meta::kRootPid);
  const auto exit_code = run.meta_int(probe::run_meta::kExitCode);
  if (root && exit_code && *exit_code != 0 && deaths.count(static_cast<int>(*root)) == 0) {
    Death& death = deaths[static_cast<int>(*root)];
    death.pid = static_cast<int>(*root);
    death.t = run.whole().end;
    death.signal = static_cast<int>(
        std::clamp<std::int64_t>(run.meta_int(probe::run_meta::kSignal).value_or(0), 0, 64));
    death.code =
        death.signal > 0 ? 0 : static_cast<int>(std::clamp<std::int64_t>(*exit_code, 0, 255));
  }
  std::vector<Death> out;
  for (auto& [pid, death] : deaths) {
    death.answer = is_answer(death);
    out.push_back(std::move(death));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Death& a, const Death& b) { return a.t < b.t; });
  return out;
}

// Processes whose end ends the job: ranks, their workers, Python, and the job's first process. A
// grep that found nothing is not one.
bool matters(const RunView& run, int pid) {
  const probe::Process* process = run.process(pid);
  const auto root = run.meta_int(probe::run_meta::kRootPid);
  if (root && *root == pid) return true;
  if (process == nullptr) return false;
  return process->role == "rank" || process->role == "worker" || process->role == "python" ||
         process->role == "launcher";
}

// The death that began it: the first that is neither a request nor an answer; a root process that
// only passes on an exit code comes last.
const Death* first_cause(const RunView& run, const std::vector<Death>& deaths) {
  const auto root = run.meta_int(probe::run_meta::kRootPid);
  const Death* best = nullptr;
  const auto weight = [&](const Death& d) {
    const probe::Process* process = run.process(d.pid);
    const bool passes_on = (root && *root == d.pid && d.signal == 0 && d.type.empty()) ||
                           (process != nullptr && process->role == "launcher");
    return (d.answer || is_request(d.signal) ? 2 : 0) + (passes_on ? 1 : 0);
  };
  for (const Death& death : deaths) {
    if (!matters(run, death.pid)) continue;
    if (best == nullptr || weight(death) < weight(*best)) best = &death;
  }
  return best;
}

double oom_kills(const RunView& run) {
  const double group =
      run.series().growth("cgroup/memory", "memory.oom_kills", run.whole()).value_or(0);
  return std::max(group, run.series().growth("host", "vm.oom_kill", run.whole()).value_or(0));
}

std::string title(const RunView& run, const Death& death) {
  const std::string who = run.label(death.pid);
  if (death.out_of_memory) return fmt::format("{} was killed because memory ran out", who);
  if (death.signal > 0) return fmt::format("{} was killed by {}", who, signal_name(death.signal));
  if (!death.type.empty())
    return fmt::format("{} died of {}: {}", who, death.type, brief(death.message, 160));
  return fmt::format("{} ended with exit code {}", who, death.code);
}

std::string fix(const RunView& run, const Death& death) {
  if (death.out_of_memory) {
    return "raise the memory limit, or use less: smaller batches, fewer or thinner loader workers "
           "(numpy arrays in place of lists of Python objects)";
  }
  switch (death.signal) {
    case SIGSEGV:
    case SIGILL:
    case SIGABRT:
    case SIGFPE:
      return "run again with python -X faulthandler to see where; suspect the last changed "
             "extension module or a mix of library versions";
    case SIGBUS:
      return "enlarge /dev/shm (docker --shm-size, --ipc=host), or "
             "torch.multiprocessing.set_sharing_strategy('file_system')";
    case SIGKILL:
      return "find who sent it: the out-of-memory killer (dmesg), a batch system's limit, a person";
    default:
      break;
  }
  if (!death.traceback.empty()) return fmt::format("mend the script: {}", death.traceback);
  return run.data().meta.count("id") != 0 ? "read the last lines of the job's own output"
                                          : "read the end of the job's own output";
}

std::optional<Finding> check(const RunView& run) {
  const auto exit_code = run.meta_int(probe::run_meta::kExitCode);
  auto deaths = deaths_in_order(run);
  const bool killed = std::any_of(deaths.begin(), deaths.end(), [&](const Death& d) {
    return matters(run, d.pid) && (d.out_of_memory || (d.signal > 0 && !is_request(d.signal)));
  });
  if (exit_code && *exit_code == 0 && !killed)
    return std::nullopt;  // whatever happened inside, the job calls it a success
  const double kills = oom_kills(run);
  for (Death& death : deaths) {
    if (death.signal == SIGKILL && kills > 0) death.out_of_memory = true;
  }
  const Death* first = first_cause(run, deaths);
  if (first == nullptr) return std::nullopt;
  // Ctrl-C, a launcher told to stop, `head` that had enough: ended, not crashed.
  if (is_request(first->signal) || first->type == "KeyboardInterrupt") return std::nullopt;
  // 128 + a request's number: a shell or launcher passes on that it was asked to end.
  if (first->signal == 0 && first->type.empty() && first->code > 128 &&
      is_request(first->code - 128))
    return std::nullopt;
  Finding f;
  f.gain_ceiling = 1;
  f.title = title(run, *first);
  f.status = first->signal > 0 || !first->type.empty() ? Status::kEstablished : Status::kSupported;
  f.scope.pids = {first->pid};
  const probe::Process* process = run.process(first->pid);
  if (process != nullptr && process->rank >= 0) f.scope.ranks = {process->rank};
  f.when = {{first->t, std::max(first->t, run.whole().end)}};
  const std::string at = human_duration(first->t);
  if (first->signal > 0)
    f.evidence.push_back(cite("wait status", "{} ended by {} after {}", run.label(first->pid),
                              signal_name(first->signal), at));
  if (first->signal == 0)
    f.evidence.push_back(cite("wait status", "{} ended with exit code {} after {}",
                              run.label(first->pid), first->code, at));
  if (!first->type.empty())
    f.evidence.push_back(
        cite("hook: excepthook", "{}: {}", first->type, brief(first->message, 300)));
  if (!first->traceback.empty())
    f.evidence.push_back(cite("hook: excepthook", "{}", first->traceback));
  if (first->signal == SIGKILL) {
    f.evidence.push_back(cite(
        run.series().source("cgroup/memory", "memory.oom_kills"), "{}",
        kills > 0
            ? counted(kills, "out-of-memory kill was counted", "out-of-memory kills were counted")
            : "no out-of-memory kill was counted: the signal came from outside"));
  }
  int others = 0;
  for (const Death& death : deaths) others += &death != first && matters(run, death.pid) ? 1 : 0;
  if (others > 0)
    f.evidence.push_back(cite("wait status", "{} failed after it",
                              counted(others, "other process", "other processes")));
  f.verify = first->signal == SIGKILL ? "dmesg | grep -i -E 'out of memory|killed process'"
                                      : "the last lines that the job wrote to its stderr";
  f.fix = fix(run, *first);
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  const auto exit_code = run.meta_int(probe::run_meta::kExitCode);
  if (!exit_code || *exit_code != 0) return std::nullopt;
  return "the job ended with exit code 0";
}

constexpr std::string_view kSymptoms[] = {
    "connection closed by peer",
    "collectives time out",
    "DataLoader worker exited unexpectedly",
    "the job ends without an error of its own",
};

}  // namespace

extern const Rule kCrash = {
    .id = "crash",
    .title = "a process of the job died",
    .layer = Layer::kCoordination,
    .needs = {},
    .look_alikes = {},
    .thresholds = {},
    .explanation =
        "One process dies, of a signal, an exception or the out-of-memory killer, and the others "
        "fail after it because it does not answer. The first "
        "death is the cause, the rest are its consequences.",
    .signals =
        "wait status of the job's processes, process exits (BPF), uncaught exceptions (hook), "
        "memory.oom_control and memory.events (oom_kill)",
    .symptoms = kSymptoms,
    .verify = "dmesg | grep -i 'killed process'; the last lines that the job wrote to its stderr",
    .fix = "Mend the first death; the later ones go with it.",
    .check = check,
    .rule_out = rule_out,
};

}  // namespace bedplate::doctor
