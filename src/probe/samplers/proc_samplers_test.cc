// The samplers of processes and threads, on hand-made process folders with known figures and on
// processes of this machine.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "probe/internal/proc_stat.h"
#include "probe/internal/sampling.h"
#include "probe/samplers/sampler_fixture.h"

namespace bedplate::probe {

extern const SamplerPart kProcCpu, kProcIo, kProcSched, kProcWait, kProcEnv, kThreadCpu;

namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string stat_line(int pid, std::string_view comm, char state, int user, int system,
                      int threads = 1) {
  return fmt::format(
      "{} ({}) {} 9397 9397 6438 0 -1 4194304 102 0 7 0 {} {} 0 0 20 0 {} 0 123260 3133440 418 "
      "18446744073709551615 "
      "94 94 14 0 0 0 0 0 0 0 0 0 17 1 0 0 25 0 0 94 94 94 14 14 14 14 0\n",
      pid, comm, state, user, system, threads);
}

TEST(ProcStatLine, SurvivesNamesWithBlanksAndParentheses) {
  const std::string line = stat_line(7, "a) R (b", 'S', 10, 20);
  const auto stat = parse_proc_stat(line);
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->comm, "a) R (b");
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->user_ticks, 10);
  EXPECT_EQ(stat->system_ticks, 20);
  EXPECT_EQ(stat->start_ticks, 123260);
  EXPECT_EQ(stat->resident_pages, 418);
  EXPECT_EQ(stat->io_delay_ticks, 25);
  for (const char* bad : {"", "7 (x", "7 x) S", "7 (x)", "7 )x( S", "7 (x) SS 1"})
    EXPECT_FALSE(parse_proc_stat(bad)) << bad;
  const auto truncated = parse_proc_stat("7 (x) R 1 2 3 4 5 6 11 12 13 18446744073709551616 word");
  ASSERT_TRUE(truncated);
  EXPECT_EQ(truncated->user_ticks, std::nullopt);
  EXPECT_EQ(truncated->threads, std::nullopt);
}

class ProcSamplersTest : public SamplerTest {
 protected:
  void SetUp() override { put("/proc/stat", "cpu 1\n"); }

  void put_thread(int pid, int tid, std::int64_t run, std::int64_t delay, int voluntary,
                  int involuntary, char state = 'S') {
    const std::string folder = fmt::format("/proc/{}/task/{}/", pid, tid);
    put(folder + "schedstat", fmt::format("{} {} 9\n", run, delay));
    put(folder + "status",
        fmt::format("Name:\tx\nState:\t{} (x)\nTgid:\t{}\nTracerPid:\t0\nCpus_allowed:\t5\n"
                    "Cpus_allowed_list:\t1,3-4\nvoluntary_ctxt_switches:\t{}\n"
                    "nonvoluntary_ctxt_switches:\t{}\n",
                    state, pid, voluntary, involuntary));
  }
};

TEST_F(ProcSamplersTest, CpuOfAProcess) {
  put("/proc/42/stat", stat_line(42, "python3", 'R', 150, 50, 9));
  process(42);
  process(43);  // has no folder: it ended
  auto sampler = open(kProcCpu);
  tick(*sampler);
  EXPECT_EQ(value("proc/42", "cpu.user_ns"), 1'500'000'000);
  EXPECT_EQ(value("proc/42", "cpu.system_ns"), 500'000'000);
  EXPECT_EQ(value("proc/42", "minor_faults"), 102);
  EXPECT_EQ(value("proc/42", "major_faults"), 7);
  EXPECT_EQ(value("proc/42", "threads"), 9);
  EXPECT_EQ(value("proc/42", "rss_bytes"), 418 * page_size());
  EXPECT_EQ(value("proc/42", "io_delay_ns"), 250 * kMillisecond);
  EXPECT_EQ(value("proc/42", "state"), 'R');
  EXPECT_EQ(kind("proc/42", "threads"), SeriesKind::kGauge);
  EXPECT_EQ(kind("proc/42", "minor_faults"), SeriesKind::kCounter);
  EXPECT_EQ(value("proc/43", "threads"), std::nullopt);

  put("/proc/42/stat", "42 (python3) Z");
  tick(*sampler);
  EXPECT_EQ(value("proc/42", "state"), 'Z');
  EXPECT_EQ(value("proc/42", "cpu.user_ns"), 1'500'000'000);
}

TEST_F(ProcSamplersTest, AReusedNumberIsANewProcess) {
  put("/proc/42/stat", stat_line(42, "old", 'R', 150, 50));
  process(42);
  auto sampler = open(kProcCpu);
  tick(*sampler);
  processes_.clear();
  tick(*sampler);
  sink_.values.clear();
  drop("/proc/42");
  put("/proc/42/stat", stat_line(42, "new", 'R', 1, 0));
  process(42);
  tick(*sampler);
  EXPECT_EQ(value("proc/42", "cpu.user_ns"), 10 * kMillisecond);
}

TEST_F(ProcSamplersTest, IoOfAProcess) {
  put("/proc/42/io",
      "rchar: 6976\nwchar: 12\nsyscr: 10\nsyscw: 3\nread_bytes: 4096\nwrite_bytes: "
      "many\ncancelled_write_bytes: 9\n");
  process(42);
  auto sampler = open(kProcIo);
  tick(*sampler);
  EXPECT_EQ(value("proc/42", "io.rchar"), 6976);
  EXPECT_EQ(value("proc/42", "io.wchar"), 12);
  EXPECT_EQ(value("proc/42", "io.syscr"), 10);
  EXPECT_EQ(value("proc/42", "io.syscw"), 3);
  EXPECT_EQ(value("proc/42", "io.read_bytes"), 4096);
  EXPECT_EQ(value("proc/42", "io.write_bytes"), std::nullopt);
  EXPECT_EQ(sampler->remark(), "");
}

TEST_F(ProcSamplersTest, SchedulingIsSummedOverThreadsAndOutlivesThem) {
  put_thread(42, 42, 1000, 100, 5, 6, 'R');
  put_thread(42, 43, 2000, 200, 7, 8, 'S');
  process(42);
  auto sampler = open(kProcSched);
  tick(*sampler);
  EXPECT_EQ(value("proc/42", "cpu.run_ns"), 3000);
  EXPECT_EQ(value("proc/42", "cpu.run_delay_ns"), 300);
  EXPECT_EQ(value("proc/42", "voluntary_switches"), 12);
  EXPECT_EQ(value("proc/42", "involuntary_switches"), 14);
  EXPECT_EQ(value("proc/42", "runnable_threads"), 1);
  EXPECT_EQ(value("proc/42", "allowed_cpus"), 3);
  EXPECT_EQ(value("proc/42", "affinity_first_cpu"), 1);

  drop("/proc/42/task/43");
  put_thread(42, 42, 1500, 150, 5, 6);
  put_thread(42, 44, 10, 1, 1, 1);  // a new thread counts from its beginning
  for (int i = 0; i < 4; ++i) tick(*sampler);
  EXPECT_EQ(value("proc/42", "cpu.run_ns"), 3510);
  EXPECT_EQ(value("proc/42", "cpu.run_delay_ns"), 351);
  EXPECT_EQ(value("proc/42", "voluntary_switches"), 13);
  EXPECT_EQ(value("proc/42", "runnable_threads"), 0);
}

TEST_F(ProcSamplersTest, SchedulingIsReadEveryTwoSecondsInTurns) {
  for (int pid = 40; pid < 48; ++pid) {
    put_thread(pid, pid, 100, 0, 0, 0);
    process(pid);
  }
  auto sampler = open(kProcSched);
  tick(*sampler);
  for (int pid = 40; pid < 48; ++pid) put_thread(pid, pid, 200, 0, 0, 0);
  int seen = 0;
  for (int i = 0; i < 4; ++i) {
    tick(*sampler);
    int now = 0;
    for (int pid = 40; pid < 48; ++pid)
      now += value(fmt::format("proc/{}", pid), "cpu.run_ns") == 200 ? 1 : 0;
    EXPECT_EQ(now - seen, 2) << "tick " << i;
    seen = now;
  }
  EXPECT_EQ(seen, 8);
}

TEST_F(ProcSamplersTest, OfVeryManyThreadsAPartIsReadAndScaled) {
  constexpr int kThreads = 1025;
  for (int i = 0; i < kThreads; ++i)
    put_thread(2000, 2000 + i, i == 0 ? 7 : 1000, 10, 1, 1, i == 0 ? 'S' : 'R');
  process(2000);
  auto sampler = open(kProcSched);
  tick(*sampler);
  // All others did the same, so that the scaled sum is exact; the main thread is not scaled.
  EXPECT_EQ(value("proc/2000", "cpu.run_ns"), 7 + 1000 * (kThreads - 1));
  EXPECT_EQ(value("proc/2000", "cpu.run_delay_ns"), 10 * kThreads);
  EXPECT_EQ(value("proc/2000", "runnable_threads"), kThreads - 1);
  ASSERT_THAT(notes("sched_sampled"), SizeIs(1));
  EXPECT_THAT(notes("sched_sampled")[0], HasSubstr("of 1025 threads are read"));
  EXPECT_THAT(sampler->remark(), HasSubstr("scaled from a part"));

  // Fewer threads: those read only now add their growth, never their past.
  for (int i = 20; i < kThreads; ++i) drop(fmt::format("/proc/2000/task/{}", 2000 + i));
  for (int i = 0; i < 8; ++i) tick(*sampler);
  EXPECT_EQ(value("proc/2000", "cpu.run_ns"), 7 + 1000 * (kThreads - 1));
}

TEST_F(ProcSamplersTest, MalformedSchedulingIsLeftOut) {
  put("/proc/42/task/42/schedstat", "12\n");
  put("/proc/42/task/42/status", "State:\n");
  put("/proc/42/task/43/schedstat", "18446744073709551616 word 9\n");
  process(42);
  auto sampler = open(kProcSched);
  tick(*sampler);
  EXPECT_EQ(value("proc/42", "cpu.run_ns"), std::nullopt);
  EXPECT_EQ(value("proc/42", "voluntary_switches"), std::nullopt);
  EXPECT_EQ(value("proc/42", "allowed_cpus"), std::nullopt);
}

TEST_F(ProcSamplersTest, WaitsByTheKernelFunction) {
  process(42);
  auto sampler = open(kProcWait);
  put("/proc/42/wchan", "0");
  tick(*sampler);
  EXPECT_EQ(value("proc/42", "waits.other_samples"), std::nullopt);  // not known is not 0
  for (const char* channel :
       {"folio_wait_bit_common", "jbd2_log_wait_commit", "request_wait_answer", "futex_do_wait",
        "sk_wait_data", "poll_schedule_timeout.constprop.0", "0"}) {
    put("/proc/42/wchan", channel);
    tick(*sampler);
  }
  EXPECT_EQ(value("proc/42", "waits.disk_samples"), 3);
  EXPECT_EQ(value("proc/42", "waits.futex_samples"), 1);
  EXPECT_EQ(value("proc/42", "waits.net_samples"), 1);
  EXPECT_EQ(value("proc/42", "waits.other_samples"), 1);
}

TEST_F(ProcSamplersTest, UnnamedWaitsAreSaid) {
  process(42);
  put("/proc/42/wchan", "0");
  auto sampler = open(kProcWait);
  for (int i = 0; i < 20; ++i) tick(*sampler);
  EXPECT_THAT(sampler->remark(), HasSubstr("run as root"));
}

TEST_F(ProcSamplersTest, EnvironmentWithoutSecrets) {
  using namespace std::string_literals;
  put("/proc/42/environ",
      "PATH=/bin\0OMP_NUM_THREADS=4\0AWS_SECRET_ACCESS_KEY=hidden\0NCCL_DEBUG=TRACE\0broken\0KMP_AFFINITY=a=b\xff\0"s);
  put("/proc/42/status", "Name:\tx\nTracerPid:\t0\nCpus_allowed_list:\t0-1\n");
  put("/proc/42/limits",
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max stack size            8388608              unlimited            bytes     \n"
      "Max open files            20000                20000                files     \n"
      "Max locked memory         unlimited            8388608              bytes     \n"
      "Max core file size        word                 unlimited            bytes     \n");
  process(42);
  auto sampler = open(kProcEnv);
  for (int i = 0; i < 100; ++i) tick(*sampler);
  ASSERT_THAT(notes("env"), SizeIs(1));
  const auto env = nlohmann::json::parse(notes("env")[0].substr(3));
  EXPECT_EQ(env.size(), 3u);
  EXPECT_EQ(env["OMP_NUM_THREADS"], "4");
  EXPECT_EQ(env["NCCL_DEBUG"], "TRACE");
  EXPECT_EQ(env["KMP_AFFINITY"], "a=b\xEF\xBF\xBD");
  EXPECT_THAT(notes("affinity"), ElementsAre("42 0-1"));
  EXPECT_THAT(notes("tracer"), IsEmpty());
  ASSERT_THAT(notes("limits"), SizeIs(1));
  const auto limits = nlohmann::json::parse(notes("limits")[0].substr(3));
  EXPECT_EQ(limits,
            (nlohmann::json{
                {"stack_bytes", 8388608}, {"open_files", 20000}, {"locked_memory_bytes", -1}}));

  // A tracer comes and goes.
  put("/proc/42/status", "Name:\tx\nTracerPid:\t77\nCpus_allowed_list:\t0\n");
  for (int i = 0; i < 50; ++i) tick(*sampler);
  put("/proc/42/status", "Name:\tx\nTracerPid:\t0\nCpus_allowed_list:\t0\n");
  for (int i = 0; i < 50; ++i) tick(*sampler);
  EXPECT_THAT(notes("tracer"), ElementsAre("42 77", "42 0"));
  EXPECT_THAT(notes("affinity"), ElementsAre("42 0-1", "42 0"));
}

TEST_F(ProcSamplersTest, ABindingIsSeenBeforeTheProcessIsTwiceAsOldOrWithinFortyTicks) {
  constexpr int kProcesses = 100;  // process i binds itself before tick i
  const auto status = [](int i) { return fmt::format("/proc/{}/status", 100 + i); };
  for (int i = 0; i < kProcesses; ++i) {
    process(100 + i);
    put(status(i), "Cpus_allowed_list:\t0-1\n");
  }
  auto sampler = open(kProcEnv);
  for (int now = 0; now < 2 * kProcesses; ++now) {
    if (now < kProcesses) put(status(now), "Cpus_allowed_list:\t0\n");
    tick(*sampler);
    for (int i = 0; i < kProcesses; ++i) {
      if (now != std::max(2 * i, i + 40)) continue;
      EXPECT_THAT(notes("affinity"), Contains(fmt::format("{} 0", 100 + i))) << i;
    }
  }
}

TEST_F(ProcSamplersTest, OnlyBusyThreadsAreWritten) {
  process(42);
  for (int tid = 42; tid < 142; ++tid) put_thread(42, tid, 0, 0, 0, 0);
  put("/proc/42/task/121/comm", "pt_gloo_runloop\n");
  auto sampler = open(kThreadCpu);
  tick(*sampler);
  EXPECT_THAT(sink_.values, IsEmpty());
  // 80 threads run from 1 % to 80 % of a processor; the 20 others sleep.
  for (int tid = 42; tid < 122; ++tid) put_thread(42, tid, (tid - 41) * 5 * kMillisecond, 77, 0, 0);
  tick(*sampler);
  EXPECT_THAT(sink_.values, SizeIs(64 * 2));
  EXPECT_EQ(value("thread/42/121", "cpu.run_ns"), 400 * kMillisecond);
  EXPECT_THAT(notes("thread_name"), ElementsAre("42 121 pt_gloo_runloop"));
  EXPECT_EQ(value("thread/42/121", "cpu.run_delay_ns"), 77);
  EXPECT_EQ(value("thread/42/58", "cpu.run_ns"), 85 * kMillisecond);
  EXPECT_EQ(value("thread/42/57", "cpu.run_ns"), std::nullopt);
}

// A child with four threads that compute, and what the samplers say of it, against what the
// kernel's own account says.
TEST(ProcSamplersLive, AChildThatComputes) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::close(ready[1]);
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        while (!stop) {
        }
      });
    }
    char byte;
    (void)!::read(ready[0], &byte, 1);  // until the parent closes its end
    stop = true;
    for (auto& thread : threads) thread.join();
    ::_exit(0);
  }
  ::close(ready[0]);
  const os::HostRoot host;
  const os::CgroupTree cgroups(host);
  const SampleContext context{.host = host, .cgroups = cgroups, .root_pid = child};
  RememberingSink sink;
  std::vector<std::unique_ptr<Sampler>> samplers;
  for (const SamplerPart* part :
       {&kProcCpu, &kProcIo, &kProcSched, &kProcWait, &kProcEnv, &kThreadCpu}) {
    samplers.push_back(part->open(context));
  }
  const std::vector<JobProcess> processes = {{.pid = child, .start = 0, .appeared = true}};
  const std::string subject = fmt::format("proc/{}", child);
  const Nanos begin = real_clock().now();
  const auto value = [&](const char* metric) {
    const auto it = sink.values.find({subject, metric});
    return it == sink.values.end() ? std::int64_t{-1} : it->second.value;
  };
  // Until it has run for 300 ms of processor time, by two accounts that must agree.
  while (value("cpu.run_ns") < 300 * kMillisecond && real_clock().now() - begin < 30 * kSecond) {
    sink.now_ns = real_clock().now() - begin;
    for (auto& sampler : samplers) sampler->sample(processes, sink);
    ::usleep(20'000);
  }
  for (auto& sampler : samplers) sampler->sample(processes, sink);
  EXPECT_GE(value("cpu.run_ns"), 300 * kMillisecond);
  EXPECT_GE(value("cpu.user_ns") + value("cpu.system_ns"), 200 * kMillisecond);
#ifdef __SANITIZE_THREAD__
  EXPECT_EQ(value("threads"), 5 + 1);  // the sanitizer's own
#else
  EXPECT_EQ(value("threads"), 5);
#endif
  EXPECT_GT(value("runnable_threads"), 0);
  EXPECT_GT(value("allowed_cpus"), 0);
  EXPECT_GT(value("rss_bytes"), 0);
  EXPECT_GE(value("io.rchar"), 0);
  EXPECT_GT(value("waits.other_samples"), 0);  // its main thread reads a pipe
  EXPECT_TRUE(std::ranges::any_of(
      sink.values, [](const auto& item) { return item.first.first.starts_with("thread/"); }));
  EXPECT_TRUE(std::ranges::any_of(
      sink.notes, [&](const Note& note) { return note.pid == child && note.key == "limits"; }));
  ::close(ready[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  // It has ended and is still listed: skipped.
  for (auto& sampler : samplers) sampler->sample(processes, sink);
}

}  // namespace
}  // namespace bedplate::probe
