// The training loop waits for its next batch because too little is done to make it in time: no
// workers, too few, or workers that already use all the processor they can get, in which case more
// of them are wrong advice.
//
// Ceiling: the input wait of the steady training steps. A loader that is always ahead leaves none
// of it, and nothing that is done to the loader can give back more. Ranks that meet in collectives
// lose in each step what the slowest loader loses.
//
// 10 % of the step: TraceML calls 10 % a warning and 20 % input-bound, the TensorFlow profiler 5 %
// minor and 20 % high, Kineto 5 %.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "doctor/cite.h"
#include "doctor/cpu_facts.h"
#include "doctor/data_plane.h"
#include "doctor/input_facts.h"
#include "doctor/rule.h"

namespace bedplate::doctor {
namespace {

enum class Kind { kAbsent, kTooFew, kPegged, kWaiting, kHandOver, kRestarting };

struct Input {
  Kind kind = Kind::kAbsent;
  double share = 0;
  int workers = 0;
  double free_cpus = 0;          // usable processors that nobody used
  std::optional<double> making;  // share of time that a worker spent making batches
  std::optional<double> cpu;     // processors a worker used
  Fetches fetch;
  bool bedplate = false;  // its loader is bedplate.data's: its workers are threads
};

// Processors that more workers could use: idle ones of the machine, as far as quota and affinity
// let the job have them.
double free_cpus(const RunView& run) {
  const auto usable = usable_cpus(run);
  const auto used = job_cpus(run, run.window());
  const auto idle = host_idle(run, run.window());
  const auto online = host_cpus(run);
  double free = usable.value_or(1e9);
  if (usable && used) free = std::min(free, std::max(0.0, *usable - *used));
  if (idle && online) free = std::min(free, *idle * *online);
  return free > 1e8 ? 0 : free;
}

// Input waits of all ranks and steps, longest first.
std::vector<double> waits_of(const RunView& run) {
  std::vector<double> waits;
  for (const auto& rank : run.phase_time(probe::Phase::kInputWait).ns)
    waits.insert(waits.end(), rank.begin(), rank.end());
  std::sort(waits.begin(), waits.end(), std::greater<>());
  return waits;
}

// Half or more of the input wait in a twentieth of the steps: the loader starts anew (an epoch's
// end) rather than being slow.
bool in_few_steps(const std::vector<double>& waits) {
  const auto few = waits.begin() + static_cast<std::ptrdiff_t>(waits.size() / 20);
  const double total = std::accumulate(waits.begin(), waits.end(), 0.0);
  return waits.size() >= 20 && total > 0 && std::accumulate(waits.begin(), few, 0.0) >= total * 0.6;
}

// The same in every step: what lies ready costs that much to take over.
bool in_all_steps_alike(const std::vector<double>& waits) {
  const double mean = std::accumulate(waits.begin(), waits.end(), 0.0) /
                      std::max(1.0, static_cast<double>(waits.size()));
  return waits.size() >= 20 && waits[waits.size() * 3 / 4] >= mean / 2;
}

Input look(const RunView& run) {
  Input in;
  const auto waits = waits_of(run);
  in.share = run.share(run.phase_time(probe::Phase::kInputWait));
  in.workers = worker_count(run);
  in.free_cpus = free_cpus(run);
  in.making = workers_making(run);
  in.cpu = workers_cpu(run);
  in.fetch = all_fetches(run);
  for (const RankView& rank : run.ranks()) {
    const auto loader = main_loader(run, rank);
    in.bedplate = in.bedplate || (loader && loader->dataset.starts_with("bedplate.data"));
  }
  const double pegged = run.threshold("input_workers.pegged_share");
  if (in.workers == 0) {
    in.kind = Kind::kAbsent;
  } else if (in_few_steps(waits)) {
    in.kind = Kind::kRestarting;
  } else if (in.free_cpus < run.threshold("input_workers.free_cpus") &&
             in.fetch.share(in.fetch.blocked_ns()) < 0.5) {
    in.kind = Kind::kPegged;
  } else if (in.making.value_or(1) >= pegged * 0.7 || in.cpu.value_or(0) >= pegged * 0.7) {
    in.kind = Kind::kTooFew;
  } else {
    in.kind = in_all_steps_alike(waits) ? Kind::kHandOver : Kind::kWaiting;
  }
  return in;
}

std::string title(const Input& in) {
  switch (in.kind) {
    case Kind::kAbsent:
      return "the training process makes its batches itself, without loader workers";
    case Kind::kTooFew:
      return fmt::format("{} cannot make batches as fast as the steps need them",
                         counted(in.workers, "loader worker", "loader workers"));
    case Kind::kPegged:
      return "the loader's workers are out of processors: more workers will not help";
    case Kind::kWaiting:
      return "the loop waits for batches although the loader's workers are not busy";
    case Kind::kHandOver:
      return "taking over a batch from the loader's workers costs time in each step";
    case Kind::kRestarting:
      return "the loop waits for the loader to start anew";
  }
  return {};
}

constexpr double kFreeForAWorker = 0.5;  // processors

// Of bedplate.data's loader: threads, not processes, and what they wait for is known.
std::string fix_of_ours(const Input& in) {
  if (in.kind == Kind::kRestarting)
    return "give Loader(prefetch=) room for more batches; a set of many shards opens faster with "
           "the manifest that bedplate data index writes";
  if (in.fetch.share(in.fetch.blocked_ns()) >= 0.5)
    return "the loader's threads wait most of the time, for the store or inside decode=: raise "
           "Loader(threads=), or keep remote shards nearer: Dataset(URL, "
           "cache=\"/nvme/cache:200GB\")";
  if (in.free_cpus >= kFreeForAWorker)
    return fmt::format("raise Loader(threads=): {:.1f} processors are free", in.free_cpus);
  return "the loader's threads are out of processors: make a sample cheaper to decode, ahead of "
         "the training";
}

std::string fix(const Input& in) {
  if (in.bedplate) return fix_of_ours(in);
  const double work = in.fetch.batches > 0 ? in.fetch.user_ns / in.fetch.wall_ns : 0;
  switch (in.kind) {
    case Kind::kAbsent:
      if (in.free_cpus >= kFreeForAWorker) {
        return fmt::format(
            "give the DataLoader num_workers={:.0f} and persistent_workers=True ({:.1f} processors "
            "are free)",
            std::max(1.0, std::ceil(in.free_cpus - 0.25)), in.free_cpus);
      }
      return "no processor is free for workers (num_workers=1 hides only what blocks): make a "
             "batch cheaper to make, such as by decoding or "
             "tokenising once, ahead of the training (bedplate data pack), and read it by "
             "bedplate.data.Loader in place of the DataLoader";
    case Kind::kTooFew:
      return fmt::format(
          "raise num_workers ({:.1f} processors are free), with persistent_workers=True; if that "
          "does not suffice make a "
          "batch cheaper to make: shards (bedplate data pack) and bedplate.data.Loader in place of "
          "the DataLoader",
          in.free_cpus);
    case Kind::kPegged:
      return work > 0.5
                 ? "more workers will not help: their transform is bound by the processor "
                   "and none is free. Decode or transform once, "
                   "ahead of the training, use a cheaper transform, move it to the GPU, or "
                   "get more processors"
                 : "more workers will not help: no processor is free. Make a batch cheaper "
                   "to make (shards of bedplate data pack, read by bedplate.data.Loader), or "
                   "get more processors";
    case Kind::kWaiting:
      return "raise prefetch_factor: batches take unevenly long to make; look for what some of "
             "them "
             "wait for";
    case Kind::kHandOver:
      return "batches lie ready, more workers or a longer queue bring nothing: hand over few large "
             "tensors, not many objects; num_workers=0 where data lie in memory; pin_memory=False "
             "without a GPU; bedplate.data.Loader makes batches in threads and hands over views";
    case Kind::kRestarting:
      return "keep the workers: persistent_workers=True, or one long epoch; make opening the data "
             "set cheap";
  }
  return {};
}

std::string undo(const Input& in) {
  if (in.bedplate) return "give Loader() the arguments it had";
  if (in.kind == Kind::kPegged) return "make the batches as before";
  if (in.kind != Kind::kAbsent)
    return "set num_workers, prefetch_factor and persistent_workers back";
  return in.free_cpus >= kFreeForAWorker ? "num_workers=0" : "make the batches as before";
}

// Who waited for whom, as the loader itself counted.
void add_loader_times(const RunView& run, const RankView& rank, Finding& f) {
  const auto data = data_plane_of(run, rank.pid, run.window());
  if (!data) return;
  f.evidence.push_back(cite("bedplate.data.Loader",
                            "its threads made batches for {}, of that {} reading and {} on the "
                            "processor, and waited {} for the loop, which waited {} for them",
                            human_duration(data->make), human_duration(data->store_wait),
                            human_duration(data->decode), human_duration(data->idle),
                            human_duration(data->loop_wait)));
}

void add_evidence(const RunView& run, const Input& in, Finding& f) {
  f.evidence.push_back(
      cite("hook: DataLoader", "the loop waits for input {} of the step", human_share(in.share)));
  for (const RankView& rank : run.ranks()) {
    const auto loader = main_loader(run, rank);
    if (!loader) continue;
    f.evidence.push_back(
        cite("hook: DataLoader", "{}: {}={}, {}{}data set {}", run.label(rank.pid),
             in.bedplate ? "bedplate.data.Loader, threads" : "num_workers", loader->workers,
             loader->batch_size > 0 ? fmt::format("batch_size={}, ", loader->batch_size) : "",
             in.bedplate          ? ""
             : loader->persistent ? "persistent_workers=True, "
                                  : "persistent_workers=False, ",
             loader->dataset));
    if (in.bedplate) add_loader_times(run, rank, f);
    break;
  }
  if (in.fetch.batches > 0) {
    f.evidence.push_back(cite(
        "hook: fetch",
        "a batch takes {} to make: {} in user code, {} in the kernel, {} waiting for a processor, "
        "{} blocked",
        human_duration(static_cast<Nanos>(in.fetch.wall_ns / in.fetch.batches)),
        human_share(in.fetch.share(in.fetch.user_ns)),
        human_share(in.fetch.share(in.fetch.system_ns)),
        human_share(in.fetch.share(in.fetch.delay_ns)),
        human_share(in.fetch.share(in.fetch.blocked_ns()))));
  }
  if (in.workers > 0 && in.making) {
    f.evidence.push_back(cite("hook: fetch, /proc/PID/stat",
                              "{}: making batches {} of the time, {} of a processor each",
                              counted(in.workers, "worker", "workers"), human_share(*in.making),
                              human_share(in.cpu.value_or(0))));
  }
  if (const auto idle = host_idle(run, run.window())) {
    f.evidence.push_back(
        cite("/proc/stat", "{} of the machine's processors idle; the job could use {} of them",
             human_share(*idle),
             in.free_cpus >= 0.05 ? fmt::format("{:.1f} more", in.free_cpus) : "no more"));
  }
}

std::optional<Finding> check(const RunView& run) {
  const Input in = look(run);
  if (in.share < run.threshold("input_workers.wait_share")) return std::nullopt;
  Finding f;
  LostTime lost = run.phase_time(probe::Phase::kInputWait);
  if (in.kind == Kind::kPegged) lost = run.either(lost, ranks_waiting_for_cpu(run));
  f.gain_ceiling = run.share(lost);
  f.when = run.when(lost);
  f.status = in.fetch.batches > 0 ? Status::kEstablished : Status::kSupported;
  f.title = title(in);
  for (const RankView& rank : run.ranks()) {
    const auto at = static_cast<std::size_t>(&rank - run.ranks().data());
    if (run.share_of(lost, at) >= in.share / 2) {
      if (rank.rank >= 0) f.scope.ranks.push_back(rank.rank);
      f.scope.pids.push_back(rank.pid);
    }
  }
  if (f.scope.ranks.size() == run.ranks().size()) f.scope.ranks.clear();
  add_evidence(run, in, f);
  std::vector<int> watched;
  for (const int pid : run.job_pids()) {
    if (watched.size() < 16) watched.push_back(pid);  // top takes 20
  }
  f.verify = fmt::format("top -b -n 1 -H -p {}   # while it runs; {}", fmt::join(watched, ","),
                         in.kind == Kind::kAbsent
                             ? "the thread near 100 % makes the batches too"
                             : "workers near 100 %: pegged; near 0 %: they wait themselves");
  f.fix = fix(in);
  f.undo = undo(in);
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  const double share = run.share(run.phase_time(probe::Phase::kInputWait));
  if (share >= run.threshold("input_workers.wait_share") / 2) return std::nullopt;
  return fmt::format("the loop waits for input only {} of the step", human_share(share));
}

constexpr std::string_view kNeeds[] = {"hook"};
constexpr std::string_view kLookAlikes[] = {"small_files", "memcg_thrash", "io_throttle",
                                            "cpu_quota", "python_gc"};
constexpr Threshold kThresholds[] = {
    {"input_workers.wait_share", 0.10, "share",
     "of step time: TraceML's warning (Kineto: 5 %, TensorFlow profiler: 5 and 20 %)"},
    {"input_workers.pegged_share", 0.90, "share",
     "of a processor that a worker uses: the catalogue's \"every worker > 90 % CPU\""},
    {"input_workers.free_cpus", 0.25, "processors",
     "below it nothing is left for more workers: [own] tuned on healthy runs"},
};
// A process that makes its batches itself and, for the greater part, waits for a processor while it
// does: with a worker that waiting is hidden beside the computing.
bool waits_mostly_in_fetches(const RunView& run, const Finding& consequence, const Finding& root) {
  if (worker_count(run) > 0 || root.gain_ceiling < consequence.gain_ceiling) return false;
  const Fetches fetch = all_fetches(run);
  const double inside = root.gain_ceiling * fetch.share(fetch.delay_ns);
  return inside >= 0.5 * consequence.gain_ceiling;
}
constexpr Brings kBrings[] = {{"noisy_neighbour", waits_mostly_in_fetches}};
constexpr std::string_view kSymptoms[] = {
    "GPU at 30 %",
    "the GPU is busy in bursts with gaps between the steps",
    "workers idle",
    "more workers do not help",
    "the first steps of every epoch are slow",
};

}  // namespace

extern const Rule kInputWorkers = {
    .id = "input_workers",
    .title = "the loop waits for its input",
    .layer = Layer::kFramework,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "The training loop stands still until its next batch is made. Either nobody makes it ahead "
        "of time (num_workers=0), or too few "
        "workers do, or the workers already use all the processor there is; in the last case more "
        "workers make it no faster and "
        "the report says so.",
    .signals =
        "time inside next() of the DataLoader's iterator and CPU time of each fetch (hook); CPU "
        "time of each worker "
        "(/proc/PID/stat); idle processors (/proc/stat), quota and affinity of the job",
    .symptoms = kSymptoms,
    .verify =
        "top -b -n 1 -H -p PID,PID   # rank and workers; and count samples a second of the loader "
        "alone",
    .fix =
        "num_workers up to the free processors, persistent_workers=True, a larger prefetch_factor; "
        "when the processors are used up: decode ahead of "
        "time, a cheaper transform, or the GPU.",
    .check = check,
    .rule_out = rule_out,
    .brings = kBrings,
};

}  // namespace bedplate::doctor
