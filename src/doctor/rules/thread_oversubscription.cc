// More busy threads than processors. Ranks and workers each start a pool as wide as the machine,
// the pools take the processors from one another, and since a parallel region ends with its slowest
// thread, the others spin or sleep until that one has had its turn. torchtitan#4038: 360 busy cores
// for the work of 14, a step of 112 s in place of 87 s; Hy2DL#48: workers above 140 % of a
// processor each, and 20 cores more changed nothing.
//
// Ceiling: the time in which some thread of a rank was runnable but not running (rank_delay() in
// cpu_facts.cc), plus input wait as far as workers were delayed. A thread that waits at a region's
// end for one that is not running burns time too, and that time lies inside the other's delay: two
// ranks of two threads on two processors showed delays of one half each, a union of 75 %, and 67 to
// 73 % gained by one thread each. Two threads on one processor: all of the time one waits, and 96 %
// was gained. Many more threads than processors: at every moment some thread waits, and the ceiling
// is all of the step but the input that a single thread makes; it is not sharp then (measured: 32
// threads a rank, 80 % against 35 %). Ranks of one thread each have nothing to cut: then it is real
// need of processors.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "doctor/cite.h"
#include "doctor/cpu_facts.h"
#include "doctor/input_facts.h"
#include "doctor/rule.h"

namespace bedplate::doctor {
namespace {

struct Pools {
  int in_ranks = 0;        // busy threads of all ranks together
  int widest = 0;          // of one rank
  int multi_threaded = 0;  // workers that use clearly more than one thread
  double cpus = 0;         // processors that the job may use
  int ranks = 0;
  int workers = 0;
};

// A worker whose threads together run and wait for more than one processor could give has a pool of
// its own.
bool worker_has_a_pool(const RunView& run, int pid) {
  const auto ran = run.series().growth(proc(pid), "cpu.run_ns", run.window());
  const auto delayed = run.series().growth(proc(pid), "cpu.run_delay_ns", run.window());
  const probe::Process* process = run.process(pid);
  if (!ran || !delayed || process == nullptr) return false;
  const Window alive =
      overlap(run.window(), {process->start, process->end.value_or(run.whole().end)});
  return length(alive) > 0 && (*ran + *delayed) / static_cast<double>(length(alive)) > 1.4;
}

std::optional<Pools> look(const RunView& run) {
  Pools pools;
  const auto cpus = usable_cpus(run);
  if (!cpus) return std::nullopt;
  pools.cpus = *cpus;
  pools.ranks = static_cast<int>(run.ranks().size());
  pools.workers = worker_count(run);
  for (const RankView& rank : run.ranks()) {
    const int busy = busy_threads(run, rank);
    pools.in_ranks += busy;
    pools.widest = std::max(pools.widest, busy);
    for (const int pid : rank.workers) pools.multi_threaded += worker_has_a_pool(run, pid) ? 1 : 0;
  }
  return pools;
}

bool too_many(const Pools& pools) {
  const bool ranks = pools.widest > 1 && pools.in_ranks > pools.cpus;
  const bool workers =
      pools.multi_threaded > 0 && pools.in_ranks + 2 * pools.multi_threaded > pools.cpus;
  return ranks || workers;
}

// The environment of the first rank that told it; null when none did, which is not the same as one
// in which nothing is set.
nlohmann::json environment(const RunView& run) {
  for (const RankView& rank : run.ranks()) {
    const auto notes = run.notes("env", rank.pid);
    if (notes.empty()) continue;
    auto env = nlohmann::json::parse(notes.back(), nullptr, false);
    if (env.is_object()) return env;
  }
  return nullptr;
}

std::optional<std::string> variable(const nlohmann::json& env, std::string_view name) {
  const auto it = env.find(name);
  if (it == env.end() || !it->is_string()) return std::nullopt;
  return it->get<std::string>();
}

// The variables that decide how wide pools are; "not set" is what matters most.
std::string thread_variables(const nlohmann::json& env) {
  const auto omp = variable(env, "OMP_NUM_THREADS");
  std::string out = omp ? "OMP_NUM_THREADS = " + *omp : "OMP_NUM_THREADS not set";
  for (const char* name : {"MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    if (const auto value = variable(env, name)) out += fmt::format(", {} = {}", name, *value);
  }
  return out;
}

std::string fix_of(const Pools& pools, const nlohmann::json& env) {
  const int wanted = std::max(1, static_cast<int>(pools.cpus) / std::max(1, pools.ranks));
  const auto omp = variable(env, "OMP_NUM_THREADS");
  std::string fix;
  if (pools.widest > 1 && omp == std::to_string(wanted)) {
    fix = fmt::format(
        "OMP_NUM_THREADS is {} already, so the script or a library starts more: "
        "torch.set_num_threads({}) after the imports",
        wanted, wanted);
  } else {
    fix = fmt::format(
        "OMP_NUM_THREADS={} (processors / ranks) and no torch.set_num_threads() above it", wanted);
  }
  if (pools.multi_threaded > 0) fix += ", and torch.set_num_threads(1) in a worker_init_fn";
  if (pools.ranks > 1 && wanted * pools.ranks > pools.cpus) fix += "; start fewer ranks";
  return fix;
}

LostTime lost_to_it(const RunView& run) {
  // What others on the machine took is not the job's own doing.
  LostTime lost =
      run.scaled(waiting_for_cpu(run), run.timeline([&](Window w) -> std::optional<double> {
        const auto usable = usable_cpus(run);
        const auto outside = outside_cpus(run, w);
        if (!usable || !outside || !(*usable > 0)) return 1.0;
        return std::max(0.0, 1 - *outside / *usable);
      }));
  if (worker_count(run) > 0) return lost;
  // A loop that makes its batches itself does so in one thread: while that one runs, however many
  // others wait, nothing is lost.
  const Fetches fetch = all_fetches(run);
  const double running = fetch.share(fetch.user_ns + fetch.system_ns);
  const LostTime making = scaled(run.phase_time(probe::Phase::kInputWait), running);
  return both(lost, less(run.during(run.timeline([](Window) { return 1.0; })), making));
}

std::optional<Finding> check(const RunView& run) {
  const auto pools = look(run);
  const auto ratio = delay_ratio(run);
  if (!pools || !ratio || !too_many(*pools)) return std::nullopt;
  if (*ratio < run.threshold("thread_oversubscription.delay_ratio")) return std::nullopt;
  const LostTime lost = lost_to_it(run);
  Finding f;
  f.gain_ceiling = run.share(lost);
  if (f.gain_ceiling < run.threshold("thread_oversubscription.lost_share")) return std::nullopt;
  f.when = run.when(lost);
  f.status = Status::kEstablished;
  const bool in_workers = pools->multi_threaded > 0;
  f.title = fmt::format("{} busy threads share {}", pools->in_ranks + 2 * pools->multi_threaded,
                        counted(pools->cpus, "processor", "processors"));
  f.evidence.push_back(cite(
      "/proc/PID/task/*/schedstat", "{} busy threads in {}{}", pools->in_ranks,
      counted(pools->ranks, "rank", "ranks"),
      in_workers
          ? fmt::format(", and {} loader workers with pools of their own", pools->multi_threaded)
          : ""));
  f.evidence.push_back(cite("/proc/PID/task/*/schedstat",
                            "threads waited for a processor {:.2f} times as long as they ran",
                            *ratio));
  const auto env = environment(run);
  if (env.is_object()) f.evidence.push_back(cite("/proc/PID/environ", "{}", thread_variables(env)));
  if (const auto used = job_cpus(run, run.window())) {
    f.evidence.push_back(cite(run.series().source("cgroup/job", "cpu.usage_ns"),
                              "the job kept {:.1f} processors busy", *used));
  }
  std::vector<int> pids;
  for (const RankView& rank : run.ranks()) {
    if (pids.size() < 8) pids.push_back(rank.pid);
  }
  f.scope.pids = pids;
  f.verify = fmt::format("ps -L -o pid,lwp,psr,pcpu -p {}   # many threads, each far below 100 %",
                         fmt::join(pids, ","));
  f.fix = fix_of(*pools, env);
  f.undo = "set the numbers of threads back";
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  const auto pools = look(run);
  if (pools && !too_many(*pools)) {
    if (pools->widest <= 1)
      return pools->ranks == 1
                 ? "the rank keeps one thread busy"
                 : fmt::format("each of {} ranks keeps one thread busy", pools->ranks);
    return fmt::format("{} busy threads on {} processors", pools->in_ranks,
                       human_count(pools->cpus));
  }
  const auto ratio = delay_ratio(run);
  if (!ratio || *ratio >= run.threshold("thread_oversubscription.delay_ratio") / 2)
    return std::nullopt;
  return fmt::format("threads waited for a processor only {:.2f} times as long as they ran",
                     *ratio);
}

constexpr std::string_view kNeeds[] = {"host.cpu", "proc.sched", "thread.cpu"};
constexpr std::string_view kLookAlikes[] = {"cpu_quota", "affinity_collapse", "noisy_neighbour"};
constexpr Threshold kThresholds[] = {
    {"thread_oversubscription.delay_ratio", 0.5, "ratio",
     "of waiting for a processor to running: [own] tuned on healthy runs"},
    {"thread_oversubscription.lost_share", 0.10, "share",
     "of step time: [own] tuned on healthy runs"},
};
constexpr std::string_view kSymptoms[] = {
    "all processors are busy, but little gets done",
    "two ranks on one machine are more than twice as slow as one",
    "more cores change nothing",
    "more threads or workers make it slower",
};

}  // namespace

extern const Rule kThreadOversubscription = {
    .id = "thread_oversubscription",
    .title = "more busy threads than processors",
    .layer = Layer::kCpu,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "Every rank and worker starts a pool of compute threads as wide as the machine. Together "
        "they are more than there are processors, "
        "so each parallel region waits for a thread that is not running, and the others burn "
        "processor time meanwhile.",
    .signals =
        "/proc/PID/task/*/schedstat (time run, time waited for a processor), runnable threads, "
        "OMP_NUM_THREADS and its kin in "
        "/proc/PID/environ, processors by affinity and quota",
    .symptoms = kSymptoms,
    .verify = "grep Threads /proc/PID/status; ps -L -o lwp,psr,pcpu -p PID",
    .fix =
        "OMP_NUM_THREADS = processors / ranks, torch.set_num_threads(1) in loader workers, "
        "OMP_WAIT_POLICY=passive where pools must share.",
    .check = check,
    .rule_out = rule_out,
};

}  // namespace bedplate::doctor
