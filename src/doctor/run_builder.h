// Made-up runs for tests: a healthy job of 20 seconds that a test spoils one figure at a time.
//
//   RunBuilder run = RunBuilder::healthy(2);                      // two ranks, two workers each,
//   four processors run.counter("cgroup/cpu", "cpu.throttled_ns", 0.4e9);         // grows by so
//   much a second run.phases(0, {{Phase::kInputWait, 0.5}});                    // of each step of
//   rank 0; what is left is compute const Report report = judge(run.build());
//
// Every signal counts as seen until unseen() takes it away. Test-only.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "probe/run_data.h"
#include "probe/run_file.h"
#include "probe/trace_format.h"

namespace bedplate::doctor {

class RunBuilder {
 public:
  using Shares = std::map<probe::Phase, double>;

  static constexpr Nanos kLength = 20 * kSecond;
  static constexpr Nanos kTick = kSecond / 2;

  static int rank_pid(int rank) { return 100 + rank; }
  static int worker_pid(int rank, int worker) { return 1000 + 100 * rank + worker; }

  // No process, no series, no steps; signals are seen.
  static RunBuilder empty() {
    RunBuilder b;
    b.meta("schema", "1")
        .meta("version", "0.1.0")
        .meta("id", "test")
        .meta("command", R"(["python","train.py"])");
    b.meta("sample_hz", "2")
        .meta("duration_ns", std::to_string(kLength))
        .meta("exit_code", "0")
        .meta("root_pid", "100");
    for (const char* name :
         {"host.cpu",  "host.psi",      "cgroup.psi", "host.memory",  "host.vm",
          "host.disk", "host.net",      "cgroup.cpu", "cgroup.quota", "cgroup.memory",
          "cgroup.io", "cgroup.others", "proc.cpu",   "proc.sched",   "proc.io",
          "proc.env",  "proc.wait",     "thread.cpu", "hook",         "bpf.exit"}) {
      b.seen(name);
    }
    return b;
  }

  // Ranks compute nine tenths of each 100 ms step; four processors, nobody else on the machine.
  static RunBuilder healthy(int ranks, int workers_each = 2) {
    RunBuilder b = empty();
    b.ranks_ = ranks;
    b.workers_ = workers_each;
    b.gauge("host", "cpu.online", 4)
        .counter("host", "cpu.idle_ns", 2e9)
        .counter("host", "cpu.user_ns", 2e9);
    b.counter("host", "cpu.system_ns", 0)
        .counter("host", "cpu.iowait_ns", 0)
        .counter("host", "cpu.steal_ns", 0);
    b.gauge("host", "mem.total_bytes", 16e9).gauge("host", "mem.available_bytes", 12e9);
    b.counter("cgroup/job", "cpu.usage_ns", 2e9).counter("cgroup/others", "cpu.usage_ns", 0.01e9);
    b.gauge("cgroup/cpu", "cpu.quota_us", -1);
    b.gauge("cgroup/memory", "memory.limit_bytes", -1)
        .counter("cgroup/memory", "memory.refault_file_pages", 0);
    for (const char* what : {"cpu.some", "memory.some", "memory.full", "io.some", "io.full"}) {
      b.counter("cgroup/job", fmt::format("psi.{}_us", what), 1000);
    }
    for (int rank = 0; rank < ranks; ++rank) b.add_rank(rank);
    return b;
  }

  RunBuilder& meta(const std::string& key, const std::string& value) {
    run_.meta[key] = value;
    return *this;
  }

  RunBuilder& seen(const std::string& signal) { return set_signal(signal, true, ""); }
  RunBuilder& unseen(const std::string& signal,
                     const std::string& why = "not permitted: needs root") {
    return set_signal(signal, false, why);
  }

  // A counter that grows evenly from 0, sampled each half second.
  RunBuilder& counter(const std::string& subject, const std::string& metric, double per_second) {
    std::vector<probe::Sample> samples;
    for (Nanos t = 0; t <= kLength; t += kTick) {
      samples.push_back({t, static_cast<std::int64_t>(std::llround(per_second * seconds(t)))});
    }
    return series(subject, metric, probe::SeriesKind::kCounter, std::move(samples));
  }

  RunBuilder& gauge(const std::string& subject, const std::string& metric, double value) {
    return series(subject, metric, probe::SeriesKind::kGauge,
                  {{0, static_cast<std::int64_t>(value)}});
  }

  RunBuilder& series(const std::string& subject, const std::string& metric, probe::SeriesKind kind,
                     std::vector<probe::Sample> samples) {
    without(subject, metric);
    run_.series.push_back(
        {subject, metric, kind, fmt::format("/{}/{}", subject, metric), std::move(samples)});
    return *this;
  }

  RunBuilder& without(const std::string& subject, const std::string& metric) {
    std::erase_if(run_.series,
                  [&](const auto& s) { return s.subject == subject && s.metric == metric; });
    return *this;
  }

  // Shares of each step of a rank; compute takes what is left. `every`: only in each n-th step, the
  // others stay as they are.
  RunBuilder& phases(int rank, const Shares& shares, int every = 1) {
    for (probe::Step& step : run_.steps) {
      if (step.rank != rank || step.index % every != 0) continue;
      step.phases = {};
      Nanos left = step.duration;
      for (const auto& [phase, share] : shares) {
        step.phases[probe::index(phase)] =
            static_cast<Nanos>(share * static_cast<double>(step.duration));
        left -= step.phases[probe::index(phase)];
      }
      step.phases[probe::index(probe::Phase::kCompute)] += left;
    }
    return *this;
  }

  RunBuilder& all_phases(const Shares& shares, int every = 1) {
    for (int rank = 0; rank < ranks_; ++rank) phases(rank, shares, every);
    return *this;
  }

  RunBuilder& note(int pid, const std::string& key, const std::string& value) {
    run_.notes.push_back({pid, 0, key, value});
    return *this;
  }

  // As the hook says of a rank whose steps are too short to ask DDP in each of them.
  RunBuilder& ddp_asked_now_and_then() {
    for (int rank = 0; rank < ranks_; ++rank) note(rank_pid(rank), "ddp_asked", "now and then");
    return *this;
  }

  RunBuilder& loader(int rank, int workers, bool persistent = true) {
    std::erase_if(run_.notes,
                  [&](const auto& n) { return n.key == "loader" && n.pid == rank_pid(rank); });
    return note(
        rank_pid(rank), "loader",
        fmt::format(
            R"({{"id":1,"num_workers":{},"batch_size":16,"prefetch_factor":2,"persistent":{},"dataset":"__main__.Data"}})",
            workers, persistent));
  }

  // Batches made by one process: how many a second, how long each takes and the shares of that in
  // user code and in the kernel.
  RunBuilder& fetching(int pid, double per_second, double ms_each, double user, double system) {
    const std::string subject = fmt::format("proc/{}", pid);
    const double wall = per_second * ms_each * 1e6;
    counter(subject, "trace.fetches", per_second).counter(subject, "trace.fetch_wall_ns", wall);
    counter(subject, "trace.fetch_user_ns", wall * user)
        .counter(subject, "trace.fetch_system_ns", wall * system);
    return *this;
  }

  // CPU of a process, in processors used and waited for.
  RunBuilder& cpu(int pid, double used, double delayed = 0) {
    const std::string subject = fmt::format("proc/{}", pid);
    counter(subject, "cpu.user_ns", used * 1e9).counter(subject, "cpu.system_ns", 0);
    counter(subject, "cpu.run_ns", used * 1e9).counter(subject, "cpu.run_delay_ns", delayed * 1e9);
    return *this;
  }

  RunBuilder& thread(int pid, int tid, double used, double delayed) {
    const std::string subject = fmt::format("thread/{}/{}", pid, tid);
    return counter(subject, "cpu.run_ns", used * 1e9)
        .counter(subject, "cpu.run_delay_ns", delayed * 1e9);
  }

  RunBuilder& event(int pid, probe::EventKind kind, Nanos start, Nanos duration,
                    std::uint64_t arg = 0) {
    run_.events[pid].push_back(
        {start, duration, static_cast<std::uint16_t>(kind), static_cast<std::uint32_t>(pid), arg});
    return *this;
  }

  probe::Process& process(int pid) {
    for (auto& process : run_.processes) {
      if (process.pid == pid) return process;
    }
    run_.processes.push_back({});
    run_.processes.back().pid = pid;
    return run_.processes.back();
  }

  // A job without steps: not Python, or no optimizer.
  RunBuilder& no_steps() {
    run_.steps.clear();
    return *this;
  }

  probe::RunData& data() { return run_; }

  probe::RunData build() const {
    probe::RunData out = run_;
    std::sort(out.series.begin(), out.series.end(), [](const auto& a, const auto& b) {
      return std::pair(a.subject, a.metric) < std::pair(b.subject, b.metric);
    });
    std::stable_sort(out.steps.begin(), out.steps.end(), [](const auto& a, const auto& b) {
      return std::pair(a.pid, a.index) < std::pair(b.pid, b.index);
    });
    return out;
  }

 private:
  RunBuilder& set_signal(const std::string& name, bool is_seen, const std::string& why) {
    std::erase_if(run_.signals, [&](const auto& s) { return s.name == name; });
    run_.signals.push_back({name, is_seen, why});
    return *this;
  }

  void add_rank(int rank) {
    const int pid = rank_pid(rank);
    probe::Process& main = process(pid);
    main.comm = "python";
    main.role = "rank";
    main.rank = main.local_rank = rank;
    main.world_size = ranks_;
    main.hook = "active";
    run_.resources.push_back({pid, 800'000'000, 3, 90'000, 4000, 200, 0, 0, 15 * kSecond, kSecond});
    loader(rank, workers_);
    cpu(pid, 0.9, 0.005).thread(pid, pid, 0.9, 0.005);
    gauge(fmt::format("proc/{}", pid), "allowed_cpus", 4)
        .note(pid, "affinity", "0-3")
        .note(pid, "env", "{}");
    for (const char* metric :
         {"io.rchar", "io.syscr", "io.read_bytes", "io.write_bytes", "trace.checkpoints",
          "trace.checkpoint_ns", "trace.fsync_ns", "trace.gc_ns", "trace.collectives"}) {
      counter(fmt::format("proc/{}", pid), metric, 0);
    }
    for (int worker = 0; worker < workers_; ++worker) {
      const int child = worker_pid(rank, worker);
      probe::Process& p = process(child);
      p.ppid = pid;
      p.comm = "python";
      p.role = "worker";
      p.hook = "active";
      note(child, "affinity", "0-3").cpu(child, 0.2, 0.001).fetching(child, 5, 40, 0.95, 0.04);
      const std::string subject = fmt::format("proc/{}", child);
      counter(subject, "trace.files_opened", 0)
          .counter(subject, "io.rchar", 5e6)
          .counter(subject, "io.syscr", 50);
      counter(subject, "io.read_bytes", 0);
    }
    const Nanos step = 100 * kMillisecond;
    for (std::int64_t i = 0; i < kLength / step; ++i) {
      run_.steps.push_back({pid, rank, i, i * step, step, 1, step, {}, false});
    }
    phases(rank, {{probe::Phase::kInputWait, 0.01},
                  {probe::Phase::kOptimizer, 0.06},
                  {probe::Phase::kCommunication, ranks_ > 1 ? 0.02 : 0.0},
                  {probe::Phase::kOther, 0.01}});
  }

  probe::RunData run_;
  int ranks_ = 0;
  int workers_ = 0;
};

}  // namespace bedplate::doctor
