#include "probe/internal/recorder.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

constexpr Nanos kRecently = 5 * kSecond;         // what the live line speaks of
constexpr Nanos kHookPatience = 5 * kSecond;     // a Python that has not reported by then is asked why
constexpr Nanos kClockStep = 200 * kMillisecond; // more than NTP slews between two ticks
constexpr int kPeakMemoryEvery = 10;             // ticks

// Raw files that make a run readable without its machine.
constexpr std::string_view kMachineFiles[] = {"/proc/version", "/proc/cmdline", "/proc/meminfo", "/proc/mounts", "/proc/swaps",
                                              "/proc/sys/kernel/random/boot_id", "/proc/sys/vm/overcommit_memory"};

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
  processes_ = std::make_unique<JobProcesses>(host_, options_.job, root_pid, started_);
  const SampleContext context{.host = host_, .cgroups = *options_.cgroups, .job = options_.job, .root_pid = root_pid};
  for (const SamplerPart* part : options_.samplers) {
    SignalState state{.name = std::string(part->name), .seen = false, .why = {}};
    try {
      open_.push_back({.part = part, .sampler = part->open(context), .offset = static_cast<int>(open_.size())});
      state.seen = true;
    } catch (const Error& error) {
      state.why = fmt::format("{}{}", error.code() == Code::kPermission ? "not permitted: " : "", error.what());
    }
    writer_.signal(state);
  }
  sample();
}

void Recorder::drain() {
  sink_.set_now(run_time());
  ring_.drain(*this, started_, clock_.now());
}

void Recorder::sample() {
  drain();
  update_processes();
  run_samplers();
  write_totals();
  watch_clock();
  update_status();
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
  writer_.note({.pid = owner.pid, .t = sink_.now(), .key = std::string(key), .value = std::string(value)});
}

void Recorder::gone(const TraceOwner& owner) {
  // The builder stays: its process may claim another slot after a fork of an interpreter, and its sums go on.
  source_of(owner);
}

Recorder::Source& Recorder::source_of(const TraceOwner& owner) {
  hook_seen_ = true;
  Source& source = sources_.try_emplace(owner.pid, owner.pid).first->second;
  source.owner = owner;
  if (owner.rank >= 0) source.builder.set_rank(owner.rank);
  return source;
}

void Recorder::write_steps(Source& source) {
  for (Step& step : source.builder.take()) {
    // A job of one process has no RANK: it is rank 0 of one.
    if (step.rank < 0 && source.owner.world_size <= 1) step.rank = 0;
    writer_.step(step);
    recent_.push_back({.end = step.start + step.duration, .duration = step.duration, .input = step.phases[index(Phase::kInputWait)]});
  }
}

void Recorder::write_totals() {
  for (auto& [pid, source] : sources_) {
    const std::string subject = fmt::format("proc/{}", pid);
    for (const auto& [metric, value] : source.builder.totals()) sink_.counter(subject, metric, value, "hook");
  }
}

void Recorder::complete(Process& process, const Source& source) const {
  const TraceOwner& owner = source.owner;
  process.hook = "active";
  if (owner.rank >= 0) process.rank = owner.rank;
  if (owner.local_rank >= 0) process.local_rank = owner.local_rank;
  if (owner.world_size > 0) process.world_size = owner.world_size;
  if (owner.role == SlotRole::kWorker) {
    process.role = "worker";
    process.rank = -1;
  } else if (process.rank >= 0 || source.builder.steps() > 0) {
    process.role = "rank";
    if (process.rank < 0 && process.world_size <= 1) process.rank = 0;
  }
}

void Recorder::update_processes() {
  const Nanos now = run_time();
  processes_->update(now);
  for (const int pid : processes_->described()) {
    Process* process = processes_->find(pid);
    const auto source = sources_.find(pid);
    if (source != sources_.end()) complete(*process, source->second);
    writer_.process(*process);
  }
  for (auto& [pid, source] : sources_) {
    const bool rank_now = source.owner.rank >= 0 || source.builder.steps() > 0;
    Process* process = processes_->find(pid);
    if (process == nullptr || (source.written && (process->role == "rank" || process->role == "worker" || !rank_now))) continue;
    complete(*process, source);
    writer_.process(*process);
    source.written = true;
  }
  for (const Process& ended : processes_->ended()) write_ended(ended);
  mark_hooks();
}

void Recorder::mark_hooks() {
  for (const JobProcess& alive : processes_->alive()) {
    if (sources_.contains(alive.pid) || run_time() - alive.start < kHookPatience) continue;
    if (!asked_for_hook_.emplace(alive.pid, true).second) continue;
    Process* process = processes_->find(alive.pid);
    process->hook = to_utf8(processes_->why_no_hook(*process, options_.hook_folder.native()));
    if (!process->hook.empty()) writer_.process(*process);
  }
}

void Recorder::write_ended(Process process) {
  const auto waited = wait_statuses_.find(process.pid);
  if (waited != wait_statuses_.end()) process.wait_status = waited->second;
  if (!process.wait_status) process.wait_status = sink_.exit_status(process.pid);
  const auto source = sources_.find(process.pid);
  if (source != sources_.end()) complete(process, source->second);
  writer_.process(process);
  if (const ResourceUse* use = sink_.resource(process.pid)) writer_.resource(*use);
  sink_.forget(process.pid);
  asked_for_hook_.erase(process.pid);
}

void Recorder::run_samplers() {
  sink_.set_now(run_time());
  for (Open& open : open_) {
    if (open.sampler == nullptr || (tick_ + open.offset) % open.part->every != 0) continue;
    try {
      open.sampler->sample(processes_->alive(), sink_);
    } catch (const Error& error) {
      if (error.code() == Code::kNoSpace || error.code() == Code::kIo) throw;  // the run file's
      writer_.signal({.name = std::string(open.part->name), .seen = false, .why = fmt::format("it failed: {}", error.what())});
      open.sampler.reset();
    }
  }
  if (tick_ % kPeakMemoryEvery != 0) return;
  for (const JobProcess& process : processes_->alive()) {
    if (process.pid == root_pid_ || sources_.contains(process.pid)) write_peak_memory(process.pid);
  }
}

// VmHWM catches peaks between samples. Written while the process lives, so that a killed recorder leaves them too.
void Recorder::write_peak_memory(int pid) {
  ResourceUse* use = sink_.resource(pid);
  if (use == nullptr) return;
  const auto status = host_.read(fmt::format("/proc/{}/status", pid));
  if (status) use->peak_rss_bytes = std::max(use->peak_rss_bytes, times(keyed(*status, "VmHWM:"), kKiB).value_or(0));
  writer_.resource(*use);
}

void Recorder::watch_clock() {
  const Nanos offset = clock_.wall_now() - clock_.now();
  const Nanos by = offset - wall_offset_;
  wall_offset_ = offset;
  if (std::abs(by) < kClockStep || clock_steps_.size() > 4096) return;
  clock_steps_ += fmt::format(R"({}{{"t":{},"by":{}}})", clock_steps_.empty() ? "" : ",", run_time(), by);
  writer_.meta(run_meta::kClockSteps, "[" + clock_steps_ + "]");
}

void Recorder::update_status() {
  const Nanos now = run_time();
  while (!recent_.empty() && recent_.front().end < now - kRecently) recent_.pop_front();
  status_.elapsed = now;
  status_.processes = static_cast<int>(processes_->alive().size());
  status_.ranks = 0;
  status_.steps = 0;
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
    std::nth_element(durations.begin(), durations.begin() + static_cast<std::ptrdiff_t>(durations.size() / 2), durations.end());
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
    return std::clamp(static_cast<double>(*value - was) * 1e3 / static_cast<double>(now - then), 0.0, 1.0);
  };
  status_.cpu_pressure = pressure("psi.cpu.some_us");
  status_.memory_pressure = pressure("psi.memory.some_us");
  status_.io_pressure = pressure("psi.io.some_us");
  status_.events = ring_.received();
  status_.events_lost = ring_.lost();
}

void Recorder::process_ended(int pid, int wait_status) { wait_statuses_[pid] = wait_status; }

void Recorder::note(int pid, std::string_view key, std::string_view value) {
  writer_.note({.pid = pid, .t = run_time(), .key = std::string(key), .value = to_utf8(value)});
}

std::vector<Collector::Inside> Recorder::inside() const {
  std::vector<Collector::Inside> all;
  for (const auto& one : ring_.inside(started_)) {
    all.push_back({.pid = one.owner.pid, .rank = one.owner.rank, .kind = static_cast<std::uint16_t>(one.kind),
                   .arg = one.arg, .since = one.since});
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
  writer_.signal({.name = "hook", .seen = hook_seen_,
                  .why = hook_seen_ ? "" : options_.hook_folder.empty() ? "no hook was given" : "no process of the job reported step events"});
  for (const Open& open : open_) {
    if (open.sampler == nullptr) continue;
    if (auto remark = open.sampler->remark(); !remark.empty()) {
      writer_.signal({.name = std::string(open.part->name), .seen = true, .why = std::move(remark)});
    }
  }
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  const auto time_of = [](const timeval& t) { return t.tv_sec * kSecond + t.tv_usec * kMicrosecond; };
  writer_.meta(run_meta::kOwnCpuNs, std::to_string(time_of(own.ru_utime) + time_of(own.ru_stime)));
  writer_.meta(run_meta::kOwnMaxRssBytes, std::to_string(own_peak_bytes(host_)));
  writer_.meta(run_meta::kEvents, std::to_string(ring_.received()));
  writer_.meta(run_meta::kEventsLost, std::to_string(ring_.lost()));
  writer_.meta(run_meta::kDurationNs, std::to_string(run_time()));
  open_.clear();
  writer_.close();
}

}  // namespace bedplate::probe
