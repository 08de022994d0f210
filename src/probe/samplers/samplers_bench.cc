// What watching costs: processor time of one tick of every sampler, over a job of 2 ranks with 4
// workers each and 100 threads, and what the BPF programs add to a switch between two tasks.
// Prints; judges nothing.
//
//   samplers_bench            both
//   samplers_bench tick       the first
//   samplers_bench switch     the second
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "os/cgroup.h"
#include "probe/sampler.h"

namespace bedplate::probe {
namespace {

class CountingSink final : public SampleSink {
 public:
  Nanos now() const override { return real_clock().now(); }
  void counter(std::string_view, std::string_view, std::int64_t, std::string_view) override {
    ++values;
  }
  void gauge(std::string_view, std::string_view, std::int64_t, std::string_view) override {
    ++values;
  }
  void note(int, std::string_view, std::string_view) override { ++values; }
  std::int64_t values = 0;
};

Nanos thread_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

double median(std::vector<double> of) {
  if (of.empty()) return 0;
  std::ranges::sort(of);
  return of[of.size() / 2];
}

// A process with so many threads, one of which computes now and then while the others sleep.
[[noreturn]] void member(int threads) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::vector<std::thread> all;
  for (int i = 1; i < threads; ++i) {
    all.emplace_back([] {
      for (;;) ::usleep(50'000);
    });
  }
  for (;;) {
    for (const Nanos end = real_clock().now() + kMillisecond; real_clock().now() < end;) {
    }
    ::usleep(20'000);
  }
}

class Job {
 public:
  Job(const os::HostRoot& host, const os::CgroupTree& tree)
      : group(host, tree, os::job_cgroup_name(host)) {}
  ~Job() {
    for (const JobProcess& process : processes) ::kill(process.pid, SIGKILL);
    for (const JobProcess& process : processes) ::waitpid(process.pid, nullptr, 0);
  }
  void add(int threads) {
    const pid_t child = ::fork();
    if (child == 0) {
      group.enter(0);
      member(threads);
    }
    processes.push_back({.pid = child, .start = 0, .appeared = true});
  }

  os::JobCgroup group;
  std::vector<JobProcess> processes;
};

void measure_tick() {
  const os::HostRoot host;
  const os::CgroupTree tree(host);
  Job job(host, tree);
  for (int rank = 0; rank < 2; ++rank) {
    job.add(30);
    for (int worker = 0; worker < 4; ++worker) job.add(5);
  }
  ::usleep(200'000);
  const SampleContext context{
      .host = host, .cgroups = tree, .job = &job.group, .root_pid = job.processes.front().pid};
  CountingSink sink;
  std::vector<std::unique_ptr<Sampler>> all;  // as in a run: what samplers share is made once
  constexpr int kTicks = 80;
  double total = 0;
  Nanos opening = 0;
  fmt::print("{:<16}{:>12}{:>14}{:>14}{:>12}\n", "sampler", "open µs", "a call µs", "a tick µs",
             "values");
  for (const SamplerPart* part : all_samplers()) {
    const Nanos before = thread_time();
    try {
      all.push_back(part->open(context));
    } catch (const Error& error) {
      fmt::print("{:<16}not seen: {}\n", part->name, error.what());
      continue;
    }
    const Nanos opened = thread_time() - before;
    opening += opened;
    Sampler& sampler = *all.back();
    // The first look at everything is dearer, and happens once.
    for (JobProcess& process : job.processes) process.appeared = true;
    sampler.sample(job.processes, sink);
    for (JobProcess& process : job.processes) process.appeared = false;
    sink.values = 0;
    const Nanos begin = thread_time();
    for (int i = 0; i < kTicks; ++i) {
      sampler.sample(job.processes, sink);
      ::usleep(2'000);
    }
    const double call = static_cast<double>(thread_time() - begin) / kTicks / 1e3;
    const double tick = call / part->every;
    total += tick;
    fmt::print("{:<16}{:>12.0f}{:>14.1f}{:>14.1f}{:>12.1f}\n", part->name,
               static_cast<double>(opened) / 1e3, call, tick,
               static_cast<double>(sink.values) / kTicks / part->every);
  }
  fmt::print(
      "{} processes: {:.2f} ms a tick, {:.2f} % of one processor at 2 Hz; opening all {:.0f} ms, "
      "once\n",
      job.processes.size(), total / 1e3, total * 2 / 1e4, milliseconds(opening));
}

// Nanoseconds of one hand-over between two processes on one processor, which pass a byte to and
// fro.
double ping_pong(os::JobCgroup* group) {
  constexpr int kRounds = 50'000;
  int there[2], back[2];
  if (::pipe(there) != 0 || ::pipe(back) != 0) throw errno_error(errno, "making pipes");
  cpu_set_t first;
  CPU_ZERO(&first);
  CPU_SET(0, &first);
  const auto begin_member = [&] {
    ::sched_setaffinity(0, sizeof first, &first);
    if (group) group->enter(0);
  };
  const pid_t partner = ::fork();
  if (partner == 0) {
    begin_member();
    ::close(there[1]);
    char byte;
    while (::read(there[0], &byte, 1) == 1 && ::write(back[1], &byte, 1) == 1) {
    }
    ::_exit(0);
  }
  int result[2];
  if (::pipe(result) != 0) throw errno_error(errno, "making pipes");
  const pid_t leader = ::fork();
  if (leader == 0) {
    begin_member();
    char byte = 0;
    const auto round = [&] {
      return ::write(there[1], &byte, 1) == 1 && ::read(back[0], &byte, 1) == 1;
    };
    for (int i = 0; i < 1000; ++i) round();
    const Nanos begin = real_clock().now();
    for (int i = 0; i < kRounds; ++i) round();
    const double ns = static_cast<double>(real_clock().now() - begin) / kRounds / 2;
    (void)!::write(result[1], &ns, sizeof ns);
    ::_exit(0);
  }
  for (const int fd : {there[0], there[1], back[0], back[1], result[1]}) ::close(fd);
  double ns = 0;
  (void)!::read(result[0], &ns, sizeof ns);
  ::close(result[0]);
  ::waitpid(leader, nullptr, 0);
  ::waitpid(partner, nullptr, 0);
  return ns;
}

void measure_switch() {
  const os::HostRoot host;
  const os::CgroupTree tree(host);
  os::JobCgroup group(host, tree, os::job_cgroup_name(host));
  const SampleContext context{.host = host, .cgroups = tree, .job = &group};
  const auto parts = all_samplers();
  const auto part = std::ranges::find(parts, std::string_view("bpf.sched"), &SamplerPart::name);
  if (part == parts.end()) {
    fmt::print("built without BPF\n");
    return;
  }
  std::vector<double> off, in_job, outside;
  constexpr int kTimes = 7;
  for (int i = 0; i < kTimes; ++i) {
    off.push_back(ping_pong(&group));
    try {
      const auto sampler = (*part)->open(context);
      in_job.push_back(ping_pong(&group));
      outside.push_back(ping_pong(nullptr));
    } catch (const Error& error) {
      fmt::print("bpf.sched: {}\n", error.what());
      return;
    }
  }
  const double base = median(off);
  const auto line = [&](const char* what, const std::vector<double>& times) {
    const auto [least, most] = std::ranges::minmax(times);
    fmt::print("{:<40}{:>8.0f} ns ({:.0f} … {:.0f}), {:+.0f} ns, {:+.1f} %\n", what, median(times),
               least, most, median(times) - base, (median(times) / base - 1) * 100);
  };
  fmt::print("one switch by a pipe on one processor, median of {} (least … most):\n", kTimes);
  line("  without BPF", off);
  line("  bpf.sched, a job that switches", in_job);
  line("  bpf.sched, others that switch", outside);
}

}  // namespace
}  // namespace bedplate::probe

int main(int count, char** arguments) {
  const std::string_view what = count > 1 ? arguments[1] : "";
  if (what.empty() || what == "tick") bedplate::probe::measure_tick();
  if (what.empty() || what == "switch") bedplate::probe::measure_switch();
  return 0;
}
