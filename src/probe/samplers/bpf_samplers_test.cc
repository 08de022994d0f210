// The BPF samplers against what is known otherwise: the kernel's own accounts, the number of reads
// made, the way a child was ended. They need root and a kernel with BTF; elsewhere each test says
// what is missing and is skipped.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/text.h"
#include "os/test_folder.h"
#include "probe/internal/bpf_signal.h"
#include "probe/samplers/bpf_fixture.h"

namespace bedplate::probe {

extern const SamplerPart kBpfSched, kBpfBlock, kBpfReclaim, kBpfDirty, kBpfJournal, kBpfTcp,
    kBpfExit, kBpfFuse;

namespace {

using ::testing::HasSubstr;

// With a group of the job's own, and without: then the set of processes decides.
class BpfSamplersTest : public BpfJobTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && !own_group()) GTEST_SKIP() << "no v2 control group can be made here";
  }
};

INSTANTIATE_TEST_SUITE_P(Job, BpfSamplersTest, ::testing::Values(true, false),
                         [](const auto& parameter) {
                           return parameter.param ? "WithGroup" : "WithoutGroup";
                         });

// Uses the processor for so long by its own account.
void compute(Nanos how_long) {
  while (std::clock() < how_long / (kSecond / CLOCKS_PER_SEC)) {
  }
}

std::int64_t own_run_delay() {
  const auto text = os::HostRoot().read("/proc/thread-self/schedstat").value_or("0 0 0");
  return to_int(words(text).at(1)).value_or(-1);
}

TEST_P(BpfSamplersTest, RunDelayAgreesWithTheSchedulersOwnAccount) {
  Shared delays;
  for (int i = 0; i < 2; ++i) {
    start([&delays, i] {
      cpu_set_t first;
      CPU_ZERO(&first);
      CPU_SET(0, &first);
      ::sched_setaffinity(0, sizeof first, &first);
      const std::int64_t before = own_run_delay();
      compute(400 * kMillisecond);
      delays[i] = own_run_delay() - before;
    });
  }
  OPEN_OR_SKIP(sampler, kBpfSched);
  const std::int64_t before = value("cgroup/job", "bpf.run_delay_ns");
  reap();
  sampler->sample(processes_, sink_);
  const std::int64_t ours = value("cgroup/job", "bpf.run_delay_ns") - before;
  const std::int64_t kernels = delays[0] + delays[1];
  std::printf("    run delay: BPF %.1f ms, schedstat %.1f ms\n", milliseconds(ours),
              milliseconds(kernels));
  EXPECT_GT(kernels,
            200 * kMillisecond);  // two of them on one processor: each waits while the other runs
  EXPECT_NEAR(static_cast<double>(ours), static_cast<double>(kernels),
              0.1 * static_cast<double>(kernels));
}

TEST_P(BpfSamplersTest, SleepIsTimeOffTheProcessor) {
  start([] {
    const timespec nap{.tv_sec = 0, .tv_nsec = 300 * kMillisecond};
    ::nanosleep(&nap, nullptr);
  });
  OPEN_OR_SKIP(sampler, kBpfSched);
  const std::int64_t before = value("cgroup/job", "bpf.offcpu_other_ns");
  const std::int64_t io_before = value("cgroup/job", "bpf.offcpu_io_ns");
  reap();
  sampler->sample(processes_, sink_);
  const std::int64_t slept = value("cgroup/job", "bpf.offcpu_other_ns") - before;
  EXPECT_GE(slept, 300 * kMillisecond);
  EXPECT_LT(slept, 2 * kSecond);
  EXPECT_LT(value("cgroup/job", "bpf.offcpu_io_ns") - io_before, 100 * kMillisecond);
}

// A file that is read past the page cache: each read is one request, whose time the reader is
// blocked for IO.
TEST_P(BpfSamplersTest, EveryDirectReadIsARequest) {
  constexpr int kReads = 200;
  constexpr std::size_t kBytes = 4096;
  const os::TestFolder folder;
  const std::string path = (folder.path() / "data").string();
  {
    std::ofstream(path) << std::string(kReads * kBytes, 'x');
    const int fd = ::open(path.c_str(), O_RDWR);
    ::fsync(fd);
    ::close(fd);
  }
  Shared result;
  start([&] {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT);
    void* block = std::aligned_alloc(kBytes, kBytes);
    if (fd < 0) {
      result[0] = -1;
      return;
    }
    for (int i = 0; i < kReads; ++i)
      result[0] += ::pread(fd, block, kBytes, i * static_cast<off_t>(kBytes)) == kBytes ? 1 : 0;
  });
  OPEN_OR_SKIP(sampler, kBpfBlock);
  auto sched = open(kBpfSched);
  EXPECT_EQ(value("cgroup/job", "bpf.requests"), 0);
  const std::int64_t io_before = value("cgroup/job", "bpf.offcpu_io_ns");
  reap();
  if (result[0] < 0) GTEST_SKIP() << "the temporary folder's file system has no O_DIRECT";
  ASSERT_EQ(result[0], kReads);
  sampler->sample(processes_, sink_);
  sched->sample(processes_, sink_);
  const std::int64_t requests = value("cgroup/job", "bpf.requests");
  const std::int64_t latency = value("cgroup/job", "bpf.latency_ns");
  const std::int64_t blocked = value("cgroup/job", "bpf.offcpu_io_ns") - io_before;
  std::printf(
      "    %d direct reads: %ld requests, %.2f ms in all, longest %.2f ms, blocked for IO %.2f "
      "ms\n",
      kReads, static_cast<long>(requests), milliseconds(latency),
      milliseconds(value("cgroup/job", "bpf.latency_max_ns")), milliseconds(blocked));
  EXPECT_GE(requests, kReads);
  EXPECT_LE(requests, kReads + 20);  // reading the file's own description
  EXPECT_GT(latency, requests * kMicrosecond);
  EXPECT_GE(value("cgroup/job", "bpf.latency_max_ns"), latency / requests);
  EXPECT_GT(blocked, 0);
  bool on_a_disk = false;
  for (const auto& [key, found] : sink_.values) {
    on_a_disk = on_a_disk || (key.first.starts_with("disk/") && key.second == "bpf.requests" &&
                              found.value >= kReads);
  }
  EXPECT_TRUE(on_a_disk);
  sampler->sample(processes_, sink_);
  EXPECT_EQ(value("cgroup/job", "bpf.latency_max_ns"),
            0);  // of the last tick, in which there was none
}

TEST_P(BpfSamplersTest, HowProcessesEnd) {
  const pid_t killed = start([] {
    ::signal(SIGSEGV, SIG_DFL);
    ::raise(SIGSEGV);
  });
  const pid_t failed = start([] { ::_exit(3); });
  const pid_t fine = start([] {});
  OPEN_OR_SKIP(sampler, kBpfExit);
  reap();
  sampler->sample({}, sink_);
  std::map<int, nlohmann::json> ends;
  for (const Note& note : sink_.notes) {
    ASSERT_EQ(note.key, "exit");
    ends[note.pid] = nlohmann::json::parse(note.value);
  }
  ASSERT_TRUE(ends.contains(killed) && ends.contains(failed) && ends.contains(fine));
  EXPECT_EQ(ends[killed]["signal"], SIGSEGV);
  EXPECT_EQ(ends[killed]["code"], 0);
  EXPECT_EQ(ends[failed]["code"], 3);
  EXPECT_EQ(ends[failed]["signal"], 0);
  EXPECT_EQ(ends[fine]["code"], 0);
  EXPECT_EQ(ends[fine]["pid"], fine);
  EXPECT_EQ(ends[fine]["comm"], host_.read_line("/proc/self/comm").value_or(""));
  EXPECT_EQ(ends.size(), 3u);
}

// These need a machine in trouble; that they load, attach and begin at 0 can be seen anywhere.
TEST_P(BpfSamplersTest, TheOthersLoadAndBeginAtZero) {
  start([] {});
  OPEN_OR_SKIP(reclaim, kBpfReclaim);
  EXPECT_EQ(value("cgroup/job", "bpf.direct_reclaim_ns"), 0);
  EXPECT_EQ(value("cgroup/job", "bpf.direct_reclaims"), 0);
  auto journal = open(kBpfJournal);
  if (journal) {
    EXPECT_GE(value("host", "bpf.journal_commits"), 0);
  } else {
    EXPECT_THAT(reason_, HasSubstr("no such tracepoint"));
  }
  auto dirty = open(kBpfDirty);
  ASSERT_TRUE(dirty) << reason_;
  EXPECT_EQ(value("cgroup/job", "bpf.dirty_throttle_ns"), 0);
  auto tcp = open(kBpfTcp);
  ASSERT_TRUE(tcp) << reason_;
  EXPECT_GE(value("host", "bpf.tcp_retransmits"), 0);
  EXPECT_EQ(value("cgroup/job", "bpf.tcp_retransmits"), GetParam() ? 0 : -1);
  EXPECT_EQ(tcp->remark().empty(), GetParam());
  auto fuse = open(kBpfFuse);
  if (fuse) {
    EXPECT_GE(value("host", "bpf.fuse_requests"), 0);
  } else {
    EXPECT_THAT(reason_, HasSubstr("no such tracepoint"));
  }
}

TEST(BpfSamplers, RefuseWhatIsNotThisMachine) {
  const os::TestFolder folder;
  const os::HostRoot recorded(folder.path());
  const os::CgroupTree none(recorded);
  const SampleContext context{.host = recorded, .cgroups = none};
  try {
    kBpfSched.open(context);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
  }
}

// Without privileges: the reason is a plain one, and the code says that root would help.
TEST(BpfSamplers, SayWhatIsMissingWithoutRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give it up";
  if (!os::others_may_enter_root())
    GTEST_SKIP() << "other users may not enter this machine's root folder";
  if (::access("/sys/kernel/btf/vmlinux", R_OK) != 0) GTEST_SKIP() << "this kernel has no BTF";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::string said = "opened";
    if (::setuid(65534) == 0) {
      const os::HostRoot host;
      const os::CgroupTree tree(host);
      try {
        kBpfSched.open({.host = host, .cgroups = tree});
      } catch (const Error& error) {
        said = std::string(name(error.code())) + " | " + error.what();
      }
    }
    (void)!::write(ends[1], said.data(), said.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  char text[512];
  const ssize_t n = ::read(ends[0], text, sizeof text);
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(std::string(text, n > 0 ? static_cast<std::size_t>(n) : 0),
            "not permitted | not permitted: BPF needs root, or CAP_BPF and CAP_PERFMON");
}

}  // namespace
}  // namespace bedplate::probe
