// How the threads of each process were scheduled: time run, time spent waiting for a processor,
// switches, the processors they may use. Sums over threads, from /proc/PID/task/TID/schedstat and
// …/status.
//
// A thread's files cost some 20 µs to read, so each process is visited every two seconds, not every
// tick, and processes take turns. A thread that ends between two visits loses what it did since the
// last one. Of many threads a part is read and scaled: see `stride`. The main thread is always read
// and never scaled: it is the one that differs from the others.
#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "probe/internal/per_process.h"
#include "probe/internal/sampling.h"
#include "probe/internal/thread_folder.h"

namespace bedplate::probe {
namespace {

constexpr int kTurns = 4;  // ticks in which every process is visited once: 2 s at 2 Hz
constexpr std::size_t kThreadsOfProcess = 256;  // above it, threads of a process are sampled
constexpr std::size_t kThreadsOfJob =
    512;  // above it, threads of every process: 128 a tick cost about 3 ms

enum Sum { kRun, kRunDelay, kVoluntary, kInvoluntary, kSums };
constexpr std::array<std::string_view, kSums> kMetrics = {
    "cpu.run_ns", "cpu.run_delay_ns", "voluntary_switches", "involuntary_switches"};
using Values = std::array<std::int64_t, kSums>;

struct ThreadReading {
  std::array<std::optional<std::int64_t>, kSums> values;
  bool runnable = false;
};

class ProcSched final : public Sampler {
 public:
  explicit ProcSched(const SampleContext& context) : host_(context.host) {
    if (host_.live() && !host_.exists("/proc/self/schedstat")) {
      throw Error(Code::kUnsupported,
                  "this kernel keeps no /proc/PID/schedstat (CONFIG_SCHED_INFO)");
    }
  }

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    std::size_t threads_of_job = 0;
    table_.visit(processes,
                 [&](const JobProcess& process, const std::string& subject, State& state) {
                   // The first visit is at once, so that a short-lived process leaves a trace; then
                   // its turn comes by its number.
                   if (state.visited && (tick_ + process.pid) % kTurns != 0) {
                     threads_of_job += state.threads;
                     return;
                   }
                   visit(process.pid, subject, state, sink);
                   threads_of_job += state.threads;
                 });
    threads_of_job_ = threads_of_job;
    ++tick_;
  }

  std::string remark() const override {
    if (sampled_ == 0) return {};
    return fmt::format(
        "{} processes had more threads than are read one by one: their sums are scaled from a part",
        sampled_);
  }

 private:
  struct Thread {
    Values last{};
    bool read = false;  // false: seen in a listing, not among those that are read
    bool alive = true;
  };
  struct State {
    bool visited = false;
    bool told_sampled = false;
    std::size_t threads = 0;
    std::unordered_map<int, Thread> known;
    Values sums{};
    std::array<bool, kSums> written{};
    std::string schedstat_source, status_source;
  };

  // Every how many threads one is read.
  std::size_t stride(std::size_t threads) const {
    const auto over = [](std::size_t count, std::size_t limit) {
      return (count + limit - 1) / limit;
    };
    return std::max<std::size_t>(
        {1, over(threads, kThreadsOfProcess), over(threads_of_job_, kThreadsOfJob)});
  }

  // Which threads are read must not change while threads come and go: it depends on the thread's
  // own number.
  static bool chosen(int tid, int pid, std::size_t stride) {
    return tid == pid || stride == 1 ||
           (static_cast<std::uint32_t>(tid) * 2654435761u >> 8) % stride == 0;
  }

  void visit(int pid, const std::string& subject, State& state, SampleSink& sink) {
    const ThreadFolder folder(host_, pid);
    const std::vector<int>& tids = folder.threads();
    if (tids.empty()) return;
    if (state.schedstat_source.empty()) {
      state.schedstat_source = fmt::format("/proc/{}/task/*/schedstat", pid);
      state.status_source = fmt::format("/proc/{}/task/*/status", pid);
    }
    const std::size_t step = stride(tids.size());
    std::int64_t read_others = 0, runnable_others = 0, runnable = 0;
    Values grown{}, grown_main{};
    for (auto& [tid, thread] : state.known) thread.alive = false;
    for (const int tid : tids) {
      const auto [it, fresh] = state.known.try_emplace(tid);
      Thread& thread = it->second;
      thread.alive = true;
      if (!chosen(tid, pid, step)) {
        thread.read = false;
        continue;
      }
      const auto reading = read_thread(folder, tid, tid == pid ? &subject : nullptr, state, sink);
      if (!reading) continue;
      // A thread that was passed over until now only sets its base: its past belongs to no
      // interval.
      const bool base_only = !fresh && !thread.read;
      Values& into = tid == pid ? grown_main : grown;
      for (int i = 0; i < kSums; ++i) {
        if (!reading->values[i]) continue;
        if (!base_only) into[i] += std::max<std::int64_t>(0, *reading->values[i] - thread.last[i]);
        thread.last[i] = std::max(thread.last[i], *reading->values[i]);
        state.written[i] = true;
      }
      thread.read = true;
      if (tid != pid) {
        ++read_others;
        runnable_others += reading->runnable ? 1 : 0;
      } else {
        runnable += reading->runnable ? 1 : 0;
      }
    }
    std::erase_if(state.known, [](const auto& item) { return !item.second.alive; });

    const auto others = static_cast<std::int64_t>(tids.size()) - 1;
    const auto scaled = [&](std::int64_t sum) {
      if (step == 1 || read_others == 0) return sum;
      return static_cast<std::int64_t>(static_cast<double>(sum) * static_cast<double>(others) /
                                       static_cast<double>(read_others));
    };
    for (int i = 0; i < kSums; ++i) {
      state.sums[i] += grown_main[i] + scaled(grown[i]);
      if (!state.written[i]) continue;
      sink.counter(subject, kMetrics[i], state.sums[i],
                   i < kVoluntary ? state.schedstat_source : state.status_source);
    }
    sink.gauge(subject, "runnable_threads", runnable + scaled(runnable_others),
               state.status_source);
    if (step > 1 && !state.told_sampled) {
      state.told_sampled = true;
      ++sampled_;
      sink.note(pid, "sched_sampled",
                fmt::format("{} of {} threads are read, their sums are scaled", read_others + 1,
                            tids.size()));
    }
    state.visited = true;
    state.threads = tids.size();
  }

  std::optional<ThreadReading> read_thread(const ThreadFolder& folder, int tid,
                                           const std::string* main_subject, State& state,
                                           SampleSink& sink) {
    ThreadReading reading;
    bool any = false;
    if (const auto text = folder.read(tid, "schedstat", buffer_)) {
      if (const auto stat = parse_schedstat(*text)) {
        reading.values[kRun] = stat->run;
        reading.values[kRunDelay] = stat->run_delay;
        any = true;
      }
    }
    if (const auto text = folder.read(tid, "status", buffer_)) {
      for (Lines lines(*text); auto line = lines.next();) {
        Words words(*line);
        const std::string_view key = words.next();
        if (key == "State:") {
          reading.runnable = words.next() == "R";
        } else if (key == "voluntary_ctxt_switches:") {
          reading.values[kVoluntary] = natural(words.next());
        } else if (key == "nonvoluntary_ctxt_switches:") {
          reading.values[kInvoluntary] = natural(words.next());
        } else if (main_subject != nullptr && key == "Cpus_allowed_list:") {
          if (const auto cpus = parse_cpu_list(words.next()); cpus && !cpus->empty()) {
            sink.gauge(*main_subject, "allowed_cpus", static_cast<std::int64_t>(cpus->size()),
                       state.status_source);
            sink.gauge(*main_subject, "affinity_first_cpu", cpus->front(), state.status_source);
          }
        }
      }
      any = true;
    }
    return any ? std::optional(reading) : std::nullopt;
  }

  const os::HostRoot& host_;
  PerProcess<State> table_;
  std::string buffer_;
  std::size_t threads_of_job_ = 0;
  std::int64_t sampled_ = 0;
  int tick_ = 0;
};

}  // namespace

extern const SamplerPart kProcSched = {
    .name = "proc.sched",
    .what =
        "time that each process's threads ran and waited for a processor, their switches, the "
        "processors they may use",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<ProcSched>(context);
    },
};

}  // namespace bedplate::probe
