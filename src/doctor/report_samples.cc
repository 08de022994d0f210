#include "doctor/report_samples.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "probe/trace_format.h"

namespace bedplate::doctor {
namespace {

RankSteps rank_steps(int rank, std::int64_t count, double median_ms) {
  return {.rank = rank,
          .pid = 4242 + rank,
          .count = count,
          .median_ms = median_ms,
          .p99_ms = median_ms * 2.4,
          .phases = {{"input_wait", 0.4137},
                     {"h2d", 0.0},
                     {"compute", 0.3921},
                     {"communication", 0.0912},
                     {"optimizer", 0.0512},
                     {"checkpoint", 0.0111},
                     {"gc", 0.0007},
                     {"other", 0.04}}};
}

probe::ResourceUse resource(int pid) {
  return {.pid = pid,
          .peak_rss_bytes = 812 * kMiB + pid * kKiB,
          .major_faults = 12,
          .minor_faults = 1'204'551,
          .voluntary_switches = 24'010,
          .involuntary_switches = 98'220,
          .read_bytes = 3 * kGiB,
          .write_bytes = 41 * kMiB,
          .user = 61 * kSecond,
          .system = 4'200 * kMillisecond};
}

std::vector<Finding> sample_findings() {
  Finding quota;
  quota.rule = "cpu_quota";
  quota.status = Status::kEstablished;
  quota.title = "the cgroup's CPU quota stops the job";
  quota.gain_ceiling = 0.41372;
  quota.when = {{24 * kSecond, 40 * kSecond}, {41 * kSecond, 48 * kSecond}};
  quota.scope.ranks = {0, 1};
  quota.evidence = {{"/sys/fs/cgroup/cpu/job/cpu.stat", "39 of 44 periods throttled, 4.1 s lost"},
                    {"/proc/stat", "the machine's CPUs were 62 % idle meanwhile"}};
  quota.ruled_out = {
      {"thread_oversubscription", "2 threads ran on 2 CPUs; run delay was 1.2 % of their time"},
      {"affinity_collapse", "both ranks may use CPUs 0-1"},
      {"noisy_neighbour", "others used 0.1 of 2 CPUs"}};
  quota.verify =
      "cat /sys/fs/cgroup/cpu/job/cpu.stat; sleep 10; cat /sys/fs/cgroup/cpu/job/cpu.stat";
  quota.fix =
      "Raise the limit to 2 CPUs (cpu.cfs_quota_us = 200000), or start one thread a rank "
      "(OMP_NUM_THREADS=1).";
  quota.undo = "echo 50000 > /sys/fs/cgroup/cpu/job/cpu.cfs_quota_us";

  Finding starved;
  starved.rule = "input_workers";
  starved.status = Status::kSupported;
  starved.title = "the input workers are pegged: more of them would not help";
  starved.gain_ceiling = 0.2204;
  starved.when = {{24 * kSecond, 48 * kSecond}};
  starved.scope.ranks = {1};
  starved.evidence = {{"hook: fetch", "a batch takes 96 ms, 91 ms of it in the CPU"}};
  starved.verify = "top -H -p $(pgrep -d, -f train.py)";
  starved.fix = "Mend cpu_quota first: the workers wait for the same quota.";
  starved.because_of = "cpu_quota";

  Finding checkpoint;
  checkpoint.rule = "checkpoint_stall";
  checkpoint.status = Status::kHypothesis;
  checkpoint.title = "every 100th step waits for a checkpoint";
  checkpoint.gain_ceiling = 0.0111;
  checkpoint.when = {
      {10 * kSecond, 11 * kSecond}, {30 * kSecond, 31 * kSecond}, {50 * kSecond, 51 * kSecond}};
  checkpoint.scope.path = "/data/checkpoints/step-100.pt";
  checkpoint.evidence = {{"hook: checkpoint", "12 saves of 41.0 MiB, 0.8 s each"}};
  checkpoint.verify = "strace -f -e trace=fsync,write -c -p 4242";
  checkpoint.fix = "Save with torch.distributed.checkpoint.async_save, or less often.";
  checkpoint.undo = "git checkout train.py";
  return {quota, starved, checkpoint};
}

DataPlane data_of(int rank, int pid) {
  return {.rank = rank,
          .pid = pid,
          .url = "s3://corpus/train/",
          .cache = "memory:4GB,/nvme/cache:200GB",
          .set_bytes = 180'000'000'000,
          .set_samples = 1'281'167,
          .batches = 1000,
          .samples = 64'000,
          .bytes = 7'000'000'000,
          .loop_wait = 20 * kSecond,
          .make = 80 * kSecond,
          .store_wait = 50 * kSecond,
          .decode = 25 * kSecond,
          .idle = 20 * kSecond,
          .hits = 3000,
          .hit_bytes = 3'000'000'000,
          .memory_bytes = 1'000'000'000,
          .misses = 4000,
          .origin_bytes = 4'000'000'000,
          .evictions = 12,
          .pass_throughs = 7,
          .waits = 3,
          .trouble = "cannot write /nvme/cache: no space left on the device",
          .remote_reads = 600,
          .remote_time = 27 * kSecond,
          .remote_p99 = 190 * kMillisecond,
          .remote_bytes = 4'000'000'000,
          .remote_retries = 5,
          .remote_failures = 0};
}

Report full() {
  Report report;
  report.version = "0.1.0";
  report.run_id = "run-20260702-094103";
  report.command = {"torchrun", "--nproc-per-node=2", "train.py", "--data", "/data/my set"};
  report.exit_code = 0;
  report.started_unix = 1'782'985'263 * kSecond;
  report.duration = 72'400 * kMillisecond;
  report.hooks = {{4240, "python -I ignores PYTHONPATH"}, {4242, "active"}, {4243, "active"}};
  report.own_cpu_share = 0.0042;
  report.own_max_rss_bytes = 23 * kMiB;
  report.events = 12'345;
  report.steps = {.count = 1204,
                  .median_ms = 48.2,
                  .p99_ms = 112.4,
                  .phases = rank_steps(0, 0, 0).phases,
                  .ranks = {rank_steps(0, 1204, 48.2), rank_steps(1, 1204, 48.9)}};
  report.verdict = Verdict::kFinding;
  report.verdict_text =
      "The cgroup's CPU quota stops the job: at most 41 % of step time. Raise it to 2 CPUs.";
  report.findings = sample_findings();
  report.not_fired = {"thread_oversubscription",
                      "affinity_collapse",
                      "noisy_neighbour",
                      "python_gc",
                      "debug_switches",
                      "memcg_thrash",
                      "io_throttle",
                      "small_files",
                      "straggler",
                      "crash"};
  report.not_seen = {{"gpu_throttle", {"gpu.nvml: no NVIDIA driver on this machine"}},
                     {"gpu_fault", {"gpu.nvml: no NVIDIA driver on this machine"}},
                     {"direct_reclaim", {"bpf.reclaim: not permitted: needs CAP_BPF"}}};
  report.remarks = {
      "As root the report would also have block latency and the reason of each wait (BPF "
      "programs)."};
  report.resources = {resource(4242), resource(4243)};
  report.data = {data_of(0, 4242), {.rank = 1, .pid = 4243, .url = "/data/train/"}};
  report.resource_remarks = {
      "Involuntary context switches: 4 a CPU second more than voluntary ones: the ranks were "
      "stopped, they did not wait."};
  return report;
}

Report healthy() {
  Report report = full();
  report.verdict = Verdict::kHealthy;
  report.verdict_text = "Nothing is being lost: the steps compute for 96 % of their time.";
  report.findings.clear();
  report.remarks.clear();
  return report;
}

Report unknown() {
  Report report = healthy();
  report.verdict = Verdict::kUnknown;
  report.verdict_text = "12 % of step time is lost in `other`, and no rule explains it.";
  return report;
}

Report incomplete() {
  Report report = full();
  report.complete = false;
  report.exit_code.reset();
  report.findings.resize(1);
  report.findings[0].rule = "crash";
  report.findings[0].title = "rank 1 was killed for lack of memory";
  report.findings[0].gain_ceiling = 0;
  report.remarks = {"The recording ends before the job: what happened after 72.4 s is not known."};
  return report;
}

Report no_steps() {
  Report report = full();
  report.command = {"./simulate", "--grid=512"};
  report.exit_code.reset();
  report.signal = 9;
  report.hooks.clear();
  report.steps = {};
  report.findings.resize(1);
  report.findings[0].scope.ranks.clear();
  report.remarks = {
      "The program is not Python and calls no bedplate/trace.h: findings are shares of wall time, "
      "not of steps."};
  report.resources.resize(1);
  return report;
}

Report many_ranks() {
  Report report = full();
  report.steps.ranks.clear();
  report.resources.clear();
  report.data.clear();
  report.hooks.clear();
  for (int rank = 0; rank < 200; ++rank) {
    report.steps.ranks.push_back(rank_steps(rank, 1204, 48 + (rank * 37) % 200 * 0.01));
    report.resources.push_back(resource(4242 + rank));
    report.hooks[4242 + rank] = "active";
    report.findings[0].scope.ranks.push_back(rank);
  }
  return report;
}

Report hostile() {
  const std::string evil =
      "\x1b[2J\x1b]0;owned\x07\xc2\x9b"
      "31m<script>alert(1)</script>\r\n\"'&\xff\xfe\xe2\x80\xae"
      "txt";
  Report report = full();
  report.run_id = evil;
  report.command = {"python", evil, std::string(400, 'x'), "größe",
                    "漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢"
                    "字漢字漢字漢字"};
  report.hooks = {{7, evil}};
  report.verdict_text = evil + std::string(300, 'v');
  for (auto& finding : report.findings) {
    finding.title = evil;
    finding.scope.path = "/" + std::string(250, 'p') + evil;
    finding.scope.device = evil;
    finding.evidence = {{evil + std::string(200, 's'), evil}, {"", ""}};
    finding.ruled_out = {{"cpu_quota", evil}};
    finding.verify = "cat '" + evil;
    finding.fix = evil;
    finding.undo = evil;
  }
  for (auto& data : report.data) data.url = data.cache = data.trouble = evil;
  report.not_fired = {evil};
  report.not_seen = {{evil, {evil, evil}}};
  report.remarks = {evil};
  report.resource_remarks = {evil};
  report.steps.phases["\x1b[0m<b>"] = 0.1;
  return report;
}

// Counters that grow by `rate` a second, and by `busy` in the middle third.
probe::Series counter(std::string subject, std::string metric, std::string source, Nanos duration,
                      double rate, double busy) {
  probe::Series series{
      std::move(subject), std::move(metric), probe::SeriesKind::kCounter, std::move(source), {}};
  double value = 1e6;
  for (Nanos t = 0; t <= duration; t += 500 * kMillisecond) {
    const bool middle = t > duration / 3 && t <= 2 * duration / 3;
    if (t > 0) value += 0.5 * (middle ? busy : rate);
    // As the run file keeps it: an unchanged value is not stored again, but the last before a
    // change is.
    const probe::Sample now{t, static_cast<std::int64_t>(value)};
    auto& samples = series.samples;
    const std::size_t n = samples.size();
    const bool stands =
        n >= 2 && samples[n - 1].value == now.value && samples[n - 2].value == now.value;
    if (stands) samples.pop_back();
    samples.push_back(now);
  }
  return series;
}

void add_steps(probe::RunData& run, int rank, std::int64_t steps, Nanos duration) {
  const int pid = 4242 + rank;
  const Nanos each = duration / steps;
  auto& events = run.events[pid];
  for (std::int64_t i = 0; i < steps; ++i) {
    const Nanos start = i * each;
    const bool middle = i > steps / 3 && i <= 2 * steps / 3;
    const Nanos length =
        each - each / 10 + static_cast<Nanos>((i * 7919 + rank * 31) % 97) * each / 1000;
    probe::Step step{.pid = pid,
                     .rank = rank,
                     .index = i,
                     .start = start,
                     .duration = length,
                     .longest = length,
                     .evaluation = i + 5 > steps};
    const Nanos wait = middle ? length / 2 : length / 10;
    const Nanos optimizer = length / 20;
    const Nanos communication = length / 10;
    step.phases[index(probe::Phase::kInputWait)] = wait;
    step.phases[index(probe::Phase::kOptimizer)] = optimizer;
    step.phases[index(probe::Phase::kCommunication)] = communication;
    step.phases[index(probe::Phase::kCompute)] = length - wait - optimizer - communication;
    run.steps.push_back(step);
    if (i >= 2000) continue;  // as a long run keeps them
    const auto kind = [](probe::EventKind k) { return static_cast<std::uint16_t>(k); };
    events.push_back({start, wait, kind(probe::EventKind::kInputWait), 1, 0});
    events.push_back({start + 2 * wait, length / 3, kind(probe::EventKind::kBackward), 1, 0});
    events.push_back({start + 2 * wait + length / 3 - communication, communication,
                      kind(probe::EventKind::kDdpComm), 1, 0});
    events.push_back(
        {start + length - optimizer, optimizer, kind(probe::EventKind::kOptimizer), 1, 0});
    events.push_back({start + length, 0, kind(probe::EventKind::kStep), 1, 0});
  }
}

}  // namespace

std::vector<NamedReport> sample_reports() {
  return {{"full", full()},         {"healthy", healthy()},
          {"unknown", unknown()},   {"empty", {}},
          {"hostile", hostile()},   {"incomplete", incomplete()},
          {"no_steps", no_steps()}, {"many_ranks", many_ranks()}};
}

Report sample_report(std::string_view name) {
  for (auto& sample : sample_reports()) {
    if (sample.name == name) return sample.report;
  }
  BEDPLATE_CHECK(false && "no such sample report");
  return {};
}

probe::RunData sample_run(std::int64_t steps, Nanos duration) {
  probe::RunData run;
  run.meta = {{"sample_hz", "2"}, {"duration_ns", std::to_string(duration)}};
  run.processes = {{.pid = 4242,
                    .ppid = 1,
                    .comm = "python",
                    .command = "python train.py <&>",
                    .rank = 0,
                    .world_size = 2,
                    .role = "rank",
                    .hook = "active"},
                   {.pid = 4243,
                    .ppid = 1,
                    .comm = "python",
                    .command = "python train.py",
                    .rank = 1,
                    .world_size = 2,
                    .role = "rank",
                    .hook = "active"}};
  const std::string cpu = "/sys/fs/cgroup/cpu/job/cpu.stat";
  const std::string psi = "/sys/fs/cgroup/unified/job/";
  run.series = {
      counter("cgroup/cpu", "cpu.periods", cpu, duration, 10, 10),
      counter("cgroup/cpu", "cpu.throttled_ns", cpu, duration, 0, 9e8),
      counter("cgroup/cpu", "cpu.throttled_periods", cpu, duration, 0, 9),
      counter("cgroup/job", "cpu.usage_ns", "/sys/fs/cgroup/cpuacct/job/cpuacct.usage", duration,
              1.8e9, 0.5e9),
      counter("cgroup/job", "psi.cpu.some_us", psi + "cpu.pressure", duration, 2e4, 8e5),
      counter("cgroup/job", "psi.io.some_us", psi + "io.pressure", duration, 5e4, 6e4),
      counter("cgroup/job", "psi.memory.some_us", psi + "memory.pressure", duration, 0, 0),
      counter("disk/vda", "read_bytes", "/sys/block/vda/stat", duration, 4e7, 1e7),
      counter("disk/vda", "write_bytes", "/sys/block/vda/stat", duration, 1e6, 1e6),
      counter("host", "cpu.idle_ns", "/proc/stat", duration, 0.2e9, 1.4e9),
      counter("host", "cpu.system_ns", "/proc/stat", duration, 0.1e9, 0.1e9),
      counter("host", "cpu.user_ns", "/proc/stat", duration, 1.7e9, 0.5e9),
      counter("net/eth0", "rx_bytes", "/proc/net/dev", duration, 2e6, 1e6),
      counter("net/eth0", "tx_bytes", "/proc/net/dev", duration, 2e6, 1e6),
  };
  run.series.push_back({"host", "cpu.online", probe::SeriesKind::kGauge, "/proc/stat", {{0, 2}}});
  for (int rank = 0; rank < 2; ++rank) add_steps(run, rank, steps, duration);
  return run;
}

}  // namespace bedplate::doctor
