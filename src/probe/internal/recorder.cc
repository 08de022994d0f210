#include "probe/internal/recorder.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

constexpr Nanos kRecently = 5 * kSecond;          // what the live line speaks of
constexpr Nanos kClockStep = 200 * kMillisecond;  // more than NTP slews between two ticks
constexpr int kPeakMemoryEvery = 10;              // ticks
constexpr int kOwnCostEvery = 20;                 // ticks

// Raw files that make a run readable without its machine.
constexpr std::string_view kMachineFiles[] = {"/proc/version",
                                              "/proc/cmdline",
                                              "/proc/meminfo",
                                              "/proc/mounts",
                                              "/proc/swaps",
                                              "/proc/sys/kernel/random/boot_id",
                                              "/proc/sys/vm/overcommit_memory"};

std::int64_t own_peak_bytes(const os::HostRoot& host) {
  const auto status = host.read("/proc/self/status");
  return status ? times(keyed(*status, "VmHWM:"), kKiB).value_or(0) : 0;
}

}  // namespace

Recorder::Recorder(const CollectorOptions& options)
    : options_(options),
      host_(*options.host),
      clock_(*options.clock),
      writer_(options.run_folder / "run.db", options.limits),
      ring_({},
            [this](int pid, int ppid) {
              return processes_ ? processes_->find_inside(pid, ppid) : PidAnswer{};
            }),
      sink_(writer_),
      started_(clock_.now()),
      wall_offset_(clock_.wall_now() - clock_.now()) {
  for (const auto& [key, value] : options_.meta) writer_.meta(key, value);
  writer_.meta(run_meta::kStartedUnixNs, std::to_string(clock_.wall_now()));
  writer_.meta(run_meta::kStartedMonotonicNs, std::to_string(started_));
  writer_.meta(run_meta::kSampleHz, fmt::format("{}", options_.hz));
  for (const auto& [path, text] : options_.machine) writer_.machine(path, text);
  for (const auto path : kMachineFiles) {
    if (const auto text = host_.read(path)) writer_.machine(path, *text);
  }
  writer_.flush();
}

Recorder::~Recorder() = default;

Nanos Recorder::run_time() const { return clock_.now() - started_; }

void Recorder::begin(int root_pid) {
  root_pid_ = root_pid;
  writer_.meta(run_meta::kRootPid, std::to_string(root_pid));
  writer_.signal({.name = "hook",
                  .seen = false,
                  .why = options_.hook_folder.empty()
                             ? "no hook was given"
                             : "no process of the job reported step events"});
  processes_ = std::make_unique<JobProcesses>(host_, options_.job, root_pid, started_);
  open_samplers();
  sample();
}

void Recorder::open_samplers() {
  const SampleContext context{
      .host = host_, .cgroups = *options_.cgroups, .job = options_.job, .root_pid = root_pid_};
  for (const SamplerPart* part : options_.samplers) {
    SignalState state{.name = std::string(part->name), .seen = false, .why = {}};
    try {
      open_.push_back(
          {.part = part, .sampler = part->open(context), .offset = static_cast<int>(open_.size())});
      state.seen = true;
    } catch (const Error& error) {
      state.why = fmt::format("{}{}", error.code() == Code::kPermission ? "not permitted: " : "",
                              error.what());
    } catch (const std::exception& error) {
      state.why = fmt::format("it failed: {}", error.what());
    }
    writer_.signal(state);
  }
}

void Recorder::drain() {
  sink_.set_now(run_time());
  ring_.drain(*this, started_, clock_.now());
}

void Recorder::sample() {
  // Ends are seen before the ring is drained: so all that a dead process said has been heard when
  // its books are closed.
  processes_->update(run_time());
  drain();
  write_processes();
  run_samplers();
  for (const auto& [pid, source] : sources_) write_totals(pid, source);
  write_late_ends();
  watch_memory();
  watch_clock();
  update_status();
  if (tick_ % kOwnCostEvery == 0) write_own_cost();
  writer_.flush();
  ++tick_;
}

void Recorder::events(const TraceOwner& owner, std::span<const Event> events) {
  Source& source = source_of(owner);
  source.builder.add(events);
  writer_.events(owner.pid, events);
  write_steps(source);
}

void Recorder::text(const TraceOwner& owner, std::string_view key, std::string_view value) {
  source_of(owner);
  writer_.note(
      {.pid = owner.pid, .t = sink_.now(), .key = std::string(key), .value = std::string(value)});
}

void Recorder::gone(const TraceOwner& owner) {
  // The builder stays while its process lives: it may have another slot, of the C++ header's.
  const auto source = sources_.find(owner.pid);
  if (source != sources_.end()) source->second.gone = true;
}

Recorder::Source& Recorder::source_of(const TraceOwner& owner) {
  if (!hook_seen_) writer_.signal({.name = "hook", .seen = true, .why = {}});
  hook_seen_ = true;
  const auto [found, fresh] = sources_.try_emplace(owner.pid, owner.pid);
  if (fresh && owner.here) processes_->adopt(owner.pid);
  Source& source = found->second;
  source.owner = owner;
  source.gone = false;
  if (owner.rank >= 0) source.builder.set_rank(owner.rank);
  return source;
}

// The last word on a process: nothing of it stays in memory.
void Recorder::finish(int pid) {
  const auto source = sources_.find(pid);
  if (source != sources_.end()) {
    write_totals(pid, source->second);
    most_steps_ = std::max(most_steps_, source->second.builder.steps());
    sources_.erase(source);
  }
  if (const ResourceUse* use = sink_.resource(pid)) writer_.resource(*use);
  sink_.forget(pid);
  asked_for_hook_.erase(pid);
}

void Recorder::write_steps(Source& source) {
  for (Step& step : source.builder.take()) {
    // A job of one process has no RANK: it is rank 0 of one.
    if (step.rank < 0 && source.owner.world_size <= 1) step.rank = 0;
    writer_.step(step);
    recent_.push_back({.end = step.start + step.duration,
                       .duration = step.duration,
                       .input = step.phases[index(Phase::kInputWait)]});
  }
}

void Recorder::write_totals(int pid, const Source& source) {
  const auto totals = source.builder.totals();
  if (totals.empty()) return;
  const std::string subject = fmt::format("proc/{}", pid);
  for (const auto& [metric, value] : totals) sink_.counter(subject, metric, value, "hook");
}

void Recorder::run_samplers() {
  sink_.set_now(run_time());
  for (Open& open : open_) {
    if (open.sampler != nullptr && (tick_ + open.offset) % open.part->every == 0) run_sampler(open);
  }
  if (tick_ % kPeakMemoryEvery != 0) return;
  for (const JobProcess& process : processes_->alive()) {
    if (process.pid == root_pid_ || sources_.contains(process.pid)) write_peak_memory(process.pid);
  }
}

// A sampler that fails is given up; a writer that fails ends the recording.
void Recorder::run_sampler(Open& open) {
  try {
    open.sampler->sample(processes_->alive(), sink_);
  } catch (const std::exception& error) {
    if (!writer_.is_open()) throw;
    writer_.signal({.name = std::string(open.part->name),
                    .seen = false,
                    .why = fmt::format("it failed: {}", error.what())});
    open.sampler.reset();
  }
}

// VmHWM catches peaks between samples. Written while the process lives, so that a killed recorder
// leaves them too.
void Recorder::write_peak_memory(int pid) {
  ResourceUse* use = sink_.resource(pid);
  if (use == nullptr) return;
  const auto status = host_.read(fmt::format("/proc/{}/status", pid));
  if (status)
    use->peak_rss_bytes =
        std::max(use->peak_rss_bytes, times(keyed(*status, "VmHWM:"), kKiB).value_or(0));
  writer_.resource(*use);
}

void Recorder::watch_clock() {
  const Nanos offset = clock_.wall_now() - clock_.now();
  const Nanos by = offset - wall_offset_;
  wall_offset_ = offset;
  if (std::abs(by) < kClockStep || clock_steps_.size() > 4096) return;
  clock_steps_ +=
      fmt::format(R"({}{{"t":{},"by":{}}})", clock_steps_.empty() ? "" : ",", run_time(), by);
  writer_.meta(run_meta::kClockSteps, "[" + clock_steps_ + "]");
}

void Recorder::update_status() {
  const Nanos now = run_time();
  while (!recent_.empty() && recent_.front().end < now - kRecently) recent_.pop_front();
  status_.elapsed = now;
  status_.processes = static_cast<int>(processes_->alive().size());
  status_.ranks = 0;
  status_.steps = most_steps_;
  for (const auto& [pid, source] : sources_) {
    status_.steps = std::max(status_.steps, source.builder.steps());
    if (source.builder.steps() > 0) ++status_.ranks;
  }
  status_.step_time.reset();
  status_.input_share.reset();
  if (!recent_.empty()) {
    std::vector<Nanos> durations;
    Nanos all = 0, input = 0;
    for (const Recent& step : recent_) {
      durations.push_back(step.duration);
      all += step.duration;
      input += step.input;
    }
    std::nth_element(durations.begin(),
                     durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 2),
                     durations.end());
    status_.step_time = durations[durations.size() / 2];
    if (all > 0) status_.input_share = static_cast<double>(input) / static_cast<double>(all);
  }
  const auto pressure = [&](std::string_view metric) -> std::optional<double> {
    const std::string_view subject = sink_.last("cgroup/job", metric) ? "cgroup/job" : "host";
    const auto value = sink_.last(subject, metric);
    if (!value) return std::nullopt;
    const auto [before, first] = pressure_.try_emplace(std::string(metric), now, *value);
    const auto [then, was] = std::exchange(before->second, {now, *value});
    if (first || now <= then) return std::nullopt;
    return std::clamp(static_cast<double>(*value - was) * 1e3 / static_cast<double>(now - then),
                      0.0, 1.0);
  };
  status_.cpu_pressure = pressure("psi.cpu.some_us");
  status_.memory_pressure = pressure("psi.memory.some_us");
  status_.io_pressure = pressure("psi.io.some_us");
  status_.events = ring_.received();
  status_.events_lost = ring_.lost();
}

void Recorder::note(int pid, std::string_view key, std::string_view value) {
  writer_.note({.pid = pid, .t = run_time(), .key = std::string(key), .value = to_utf8(value)});
}

std::vector<Collector::Inside> Recorder::inside() const {
  std::vector<Collector::Inside> all;
  for (const auto& one : ring_.inside(started_)) {
    all.push_back({.pid = one.owner.pid,
                   .rank = one.owner.rank,
                   .kind = static_cast<std::uint16_t>(one.kind),
                   .arg = one.arg,
                   .since = one.since});
  }
  return all;
}

void Recorder::end() {
  sample();
  for (const JobProcess& process : processes_->alive()) {
    if (const ResourceUse* use = sink_.resource(process.pid)) writer_.resource(*use);
  }
  // The job's first process was waited for, but its death may lie after the last look at /proc.
  for (const auto& [pid, status] : wait_statuses_) {
    Process* process = processes_->find(pid);
    if (process == nullptr) continue;
    process->wait_status = status;
    process->end = run_time();
    writer_.process(*process);
  }
  for (const Open& open : open_) {
    if (open.sampler == nullptr) continue;
    if (auto remark = open.sampler->remark(); !remark.empty()) {
      writer_.signal(
          {.name = std::string(open.part->name), .seen = true, .why = std::move(remark)});
    }
  }
  open_.clear();
  write_own_cost();
  writer_.meta(run_meta::kDurationNs, std::to_string(run_time()));
  writer_.close();
}

// Now and then, so that a recorder that is killed leaves it too.
void Recorder::write_own_cost() {
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  const auto time_of = [](const timeval& t) {
    return t.tv_sec * kSecond + t.tv_usec * kMicrosecond;
  };
  writer_.meta(run_meta::kOwnCpuNs, std::to_string(time_of(own.ru_utime) + time_of(own.ru_stime)));
  writer_.meta(run_meta::kOwnMaxRssBytes, std::to_string(own_peak_bytes(host_)));
  writer_.meta(run_meta::kEvents, std::to_string(ring_.received()));
  writer_.meta(run_meta::kEventsLost, std::to_string(ring_.lost()));
}

}  // namespace bedplate::probe
