// The samplers of control groups on hand-made machines: v1, v2, both at once, inside a container;
// and on this machine.
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>

#include "base/clock.h"
#include "probe/internal/job_groups.h"
#include "probe/internal/sampling.h"
#include "probe/samplers/sampler_fixture.h"

namespace bedplate::probe {

extern const SamplerPart kCgroupPsi, kCgroupCpu, kCgroupQuota, kCgroupMemory, kCgroupIo,
    kCgroupOthers;

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class CgroupSamplersTest : public SamplerTest {
 protected:
  static constexpr int kRoot = 42;

  void mount(std::string_view lines) { put("/proc/self/mountinfo", lines); }
  void groups(std::string_view of_job, std::string_view of_us = "") {
    put("/proc/42/cgroup", of_job);
    put("/proc/self/cgroup", of_us);
  }

  // A v2 machine with the job in /a/b.
  void v2(std::string_view controllers = "cpuset cpu io memory pids") {
    mount("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/cgroup.controllers", std::string(controllers) + "\n");
    put("/sys/fs/cgroup/a/b/cgroup.procs", "42\n");
    groups("0::/a/b\n", "0::/bedplate\n");
    put("/sys/fs/cgroup/bedplate/cgroup.procs", "7\n");
  }
  // A v1 machine with the job in /a/b of each hierarchy.
  void v1() {
    std::string mounts, lines;
    int number = 1;
    for (const char* name : {"cpu", "cpuacct", "memory", "blkio"}) {
      mounts += fmt::format("{0} 23 0:{0} / /sys/fs/cgroup/{1} rw - cgroup cgroup rw,{1}\n",
                            30 + number, name);
      lines += fmt::format("{}:{}:/a/b\n", number++, name);
      put(fmt::format("/sys/fs/cgroup/{}/a/b/cgroup.procs", name), "42\n");
    }
    mount(mounts);
    groups(lines);
  }
};

TEST_F(CgroupSamplersTest, NoControlGroupsAtAll) {
  put("/proc/stat", "cpu 1 1 1 1\n");
  EXPECT_THAT(refusal(kCgroupQuota, kRoot),
              StartsWith("not supported: no control group hierarchy here has"));
  EXPECT_THAT(refusal(kCgroupMemory, kRoot), StartsWith("not supported: "));
  EXPECT_THAT(refusal(kCgroupIo, kRoot), StartsWith("not supported: "));
  EXPECT_THAT(refusal(kCgroupCpu, kRoot),
              StartsWith("not supported: the job has no control group of its own"));
  EXPECT_THAT(refusal(kCgroupPsi, kRoot),
              StartsWith("not supported: the job has no control group of its own"));
  EXPECT_EQ(refusal(kCgroupOthers, kRoot), "opened");  // processes will do
}

TEST_F(CgroupSamplersTest, QuotaV1) {
  v1();
  put("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "20000\n");
  put("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/cpu/a/cpu.stat",
      "nr_periods 21\nnr_throttled 20\nthrottled_time 1600000000\nnr_bursts 0\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  auto sampler = open(kCgroupQuota, kRoot);
  tick(*sampler);
  EXPECT_EQ(value("cgroup/cpu", "cpu.quota_us"), 20000);
  EXPECT_EQ(value("cgroup/cpu", "cpu.period_us"), 100000);
  EXPECT_EQ(value("cgroup/cpu", "cpu.periods"), 21);
  EXPECT_EQ(value("cgroup/cpu", "cpu.throttled_periods"), 20);
  EXPECT_EQ(value("cgroup/cpu", "cpu.throttled_ns"), 1'600'000'000);
  EXPECT_EQ(sink_.values.at({"cgroup/cpu", "cpu.periods"}).source, "/sys/fs/cgroup/cpu/a/cpu.stat");
}

TEST_F(CgroupSamplersTest, QuotaV2AndTheTightestOfTwo) {
  v2();
  put("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
  put("/sys/fs/cgroup/a/b/cpu.stat",
      "usage_usec 5\nnr_periods 9\nnr_throttled 0\nthrottled_usec 0\n");
  put("/sys/fs/cgroup/a/cpu.max", "200000 100000\n");
  put("/sys/fs/cgroup/a/cpu.stat", "nr_periods 1000\nnr_throttled 500\nthrottled_usec 7000\n");
  auto sampler = open(kCgroupQuota, kRoot);
  tick(*sampler);
  EXPECT_EQ(value("cgroup/cpu", "cpu.quota_us"), 150000);
  EXPECT_EQ(value("cgroup/cpu", "cpu.periods"), 9);

  // The wider quota, shared with others, is the one that throttles now.
  put("/sys/fs/cgroup/a/cpu.stat", "nr_periods 1040\nnr_throttled 510\nthrottled_usec 8000\n");
  for (int i = 0; i < 4; ++i) tick(*sampler);
  EXPECT_EQ(value("cgroup/cpu", "cpu.quota_us"), 200000);
  EXPECT_EQ(value("cgroup/cpu", "cpu.throttled_periods"),
            0);  // another group: its past is not the job's
  put("/sys/fs/cgroup/a/cpu.stat", "nr_periods 1060\nnr_throttled 515\nthrottled_usec 9000\n");
  tick(*sampler);
  EXPECT_EQ(value("cgroup/cpu", "cpu.throttled_periods"), 5);
  EXPECT_EQ(value("cgroup/cpu", "cpu.throttled_ns"), 1'000'000);
}

TEST_F(CgroupSamplersTest, NoQuotaIsSaidAndOneThatComesIsSeen) {
  v2();
  put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  auto sampler = open(kCgroupQuota, kRoot);
  tick(*sampler);
  EXPECT_EQ(value("cgroup/cpu", "cpu.quota_us"), -1);
  EXPECT_EQ(value("cgroup/cpu", "cpu.periods"), std::nullopt);
  put("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  put("/sys/fs/cgroup/a/b/cpu.stat",
      "nr_periods 1\nnr_throttled x\nthrottled_usec 18446744073709551616\n");
  for (int i = 0; i < 4; ++i) tick(*sampler);
  EXPECT_EQ(value("cgroup/cpu", "cpu.quota_us"), 50000);
  EXPECT_EQ(value("cgroup/cpu", "cpu.periods"), 1);
  EXPECT_EQ(value("cgroup/cpu", "cpu.throttled_periods"), std::nullopt);
  EXPECT_EQ(value("cgroup/cpu", "cpu.throttled_ns"), std::nullopt);
}

TEST_F(CgroupSamplersTest, AProcessInAnotherGroupBringsItsQuota) {
  v2();
  auto sampler = open(kCgroupQuota, kRoot);
  put("/proc/43/cgroup", "0::/c\n");
  put("/sys/fs/cgroup/c/cpu.max", "10000 100000\n");
  put("/sys/fs/cgroup/c/cpu.stat", "nr_periods 3\nnr_throttled 2\nthrottled_usec 1\n");
  process(42);
  process(43);
  tick(*sampler);
  EXPECT_EQ(value("cgroup/cpu", "cpu.quota_us"), 10000);
  EXPECT_EQ(value("cgroup/cpu", "cpu.throttled_periods"), 2);
}

TEST_F(CgroupSamplersTest, QuotaOfAContainerThatSeesAPartOfTheTree) {
  mount("30 23 0:26 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n");
  groups("4:cpu,cpuacct:/docker/abc\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 2\nnr_throttled 1\nthrottled_time 5\n");
  auto sampler = open(kCgroupQuota, kRoot);
  tick(*sampler);
  EXPECT_EQ(value("cgroup/cpu", "cpu.quota_us"), 400000);
  EXPECT_EQ(value("cgroup/cpu", "cpu.throttled_ns"), 5);
  groups("4:cpu,cpuacct:/docker/other\n");
  EXPECT_THAT(refusal(kCgroupQuota, kRoot), HasSubstr("outside of what is mounted here"));
}

TEST_F(CgroupSamplersTest, CpuOfTheJobsOwnGroup) {
  v1();
  put("/proc/self/cgroup", "2:cpuacct:/\n");
  put("/sys/fs/cgroup/cpuacct/a/b/cpuacct.usage", "1000\n");
  put("/sys/fs/cgroup/cpuacct/a/b/cpuacct.usage_user", "700\n");
  auto sampler = open(kCgroupCpu, kRoot);
  tick(*sampler);
  EXPECT_EQ(value("cgroup/job", "cpu.usage_ns"), 1000);
  EXPECT_EQ(value("cgroup/job", "cpu.user_ns"), 700);
  EXPECT_EQ(value("cgroup/job", "cpu.system_ns"), std::nullopt);

  v2();
  put("/sys/fs/cgroup/a/b/cpu.stat", "usage_usec 150\nuser_usec 100\nsystem_usec 50\n");
  sampler = open(kCgroupCpu, kRoot);
  sink_.values.clear();
  tick(*sampler);
  EXPECT_EQ(value("cgroup/job", "cpu.usage_ns"), 150'000);
  EXPECT_EQ(value("cgroup/job", "cpu.user_ns"), 100'000);
  EXPECT_EQ(value("cgroup/job", "cpu.system_ns"), 50'000);
}

TEST_F(CgroupSamplersTest, AGroupThatBedplateSharesIsNotTheJobs) {
  v2();
  put("/proc/self/cgroup", "0::/a/b\n");
  put("/sys/fs/cgroup/a/b/cpu.stat", "usage_usec 150\n");
  EXPECT_THAT(refusal(kCgroupCpu, kRoot), HasSubstr("no control group of its own"));
}

TEST_F(CgroupSamplersTest, PressureOfTheJob) {
  v2();
  put("/sys/fs/cgroup/a/b/cpu.pressure", "some avg10=0.00 total=5\nfull avg10=0.00 total=4\n");
  put("/sys/fs/cgroup/a/b/io.pressure", "some avg10=0.00 total=3\nfull avg10=0.00 total=2\n");
  auto sampler = open(kCgroupPsi, kRoot);
  tick(*sampler);
  EXPECT_EQ(value("cgroup/job", "psi.cpu.some_us"), 5);
  EXPECT_EQ(value("cgroup/job", "psi.cpu.full_us"), 4);
  EXPECT_EQ(value("cgroup/job", "psi.io.some_us"), 3);
  EXPECT_EQ(value("cgroup/job", "psi.io.full_us"), 2);
  EXPECT_EQ(value("cgroup/job", "psi.memory.some_us"), std::nullopt);
  drop("/sys/fs/cgroup/a/b/cpu.pressure");
  drop("/sys/fs/cgroup/a/b/io.pressure");
  EXPECT_THAT(refusal(kCgroupPsi, kRoot), HasSubstr("no pressure files"));
}

TEST_F(CgroupSamplersTest, MemoryV1) {
  v1();
  const std::string root = "/sys/fs/cgroup/memory/";
  put(root + "a/b/memory.limit_in_bytes", "9223372036854771712\n");
  put(root + "a/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  put(root + "a/memory.limit_in_bytes", "41943040\n");
  put(root + "a/memory.usage_in_bytes", "41900000\n");
  put(root + "a/memory.failcnt", "1234\n");
  put(root + "a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  put(root + "a/memory.stat",
      "cache 1\nrss 2\npgmajfault 3\nworkingset_refault_file 4\ntotal_cache 10\ntotal_rss "
      "20\ntotal_pgmajfault 30\n"
      "total_workingset_refault_anon word\ntotal_workingset_refault_file 73728\n");
  put(root + "memory.limit_in_bytes", "9223372036854771712\n");
  put(root + "memory.oom_control", "oom_kill 100\n");  // above the limit: not the job's
  auto sampler = open(kCgroupMemory, kRoot);
  tick(*sampler);
  EXPECT_EQ(value("cgroup/memory", "memory.limit_bytes"), 40 * kMiB);
  EXPECT_EQ(value("cgroup/memory", "memory.usage_bytes"), 41900000);
  EXPECT_EQ(value("cgroup/memory", "memory.limit_hits"), 1234);
  EXPECT_EQ(value("cgroup/memory", "memory.high_hits"), std::nullopt);
  EXPECT_EQ(value("cgroup/memory", "memory.refault_file_pages"), 73728);
  EXPECT_EQ(value("cgroup/memory", "memory.refault_anon_pages"), std::nullopt);
  EXPECT_EQ(value("cgroup/memory", "memory.major_faults"), 30);
  EXPECT_EQ(value("cgroup/memory", "memory.file_bytes"), 10);
  EXPECT_EQ(value("cgroup/memory", "memory.anon_bytes"), 20);
  EXPECT_EQ(value("cgroup/memory", "memory.oom_kills"), 3);
  drop(root + "a/b");  // the job's own group ends: its kills stay counted
  put(root + "a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  tick(*sampler);
  EXPECT_EQ(value("cgroup/memory", "memory.oom_kills"), 4);
}

TEST_F(CgroupSamplersTest, MemoryV2WithHighBelowMax) {
  v2();
  put("/sys/fs/cgroup/a/b/memory.max", "max\n");
  put("/sys/fs/cgroup/a/memory.max", "200000000\n");
  put("/sys/fs/cgroup/a/memory.high", "100000000\n");
  put("/sys/fs/cgroup/a/memory.current", "99000000\n");
  put("/sys/fs/cgroup/a/memory.events",
      "low 0\nhigh 556267\nmax 1\noom 0\noom_kill 2\noom_group_kill 0\n");
  put("/sys/fs/cgroup/a/memory.stat",
      "anon 5\nfile 6\nworkingset_refault_anon 7\nworkingset_refault_file 8\npgmajfault 9\n");
  auto sampler = open(kCgroupMemory, kRoot);
  tick(*sampler);
  EXPECT_EQ(value("cgroup/memory", "memory.limit_bytes"), 100'000'000);
  EXPECT_EQ(sink_.values.at({"cgroup/memory", "memory.limit_bytes"}).source,
            "/sys/fs/cgroup/a/memory.high");
  EXPECT_EQ(value("cgroup/memory", "memory.usage_bytes"), 99'000'000);
  EXPECT_EQ(value("cgroup/memory", "memory.limit_hits"), 1);
  EXPECT_EQ(value("cgroup/memory", "memory.high_hits"), 556267);
  EXPECT_EQ(value("cgroup/memory", "memory.oom_kills"), 2);
  EXPECT_EQ(value("cgroup/memory", "memory.anon_bytes"), 5);
  EXPECT_EQ(value("cgroup/memory", "memory.file_bytes"), 6);
  EXPECT_EQ(value("cgroup/memory", "memory.refault_anon_pages"), 7);
  EXPECT_EQ(value("cgroup/memory", "memory.refault_file_pages"), 8);
  EXPECT_EQ(value("cgroup/memory", "memory.major_faults"), 9);
}

TEST_F(CgroupSamplersTest, MemoryWithoutALimit) {
  v2();
  put("/sys/fs/cgroup/a/memory.max", "max\n");
  put("/sys/fs/cgroup/a/memory.current", "12\n");
  put("/sys/fs/cgroup/a/memory.stat", "anon 5\n");
  auto sampler = open(kCgroupMemory, kRoot);
  tick(*sampler);
  EXPECT_EQ(value("cgroup/memory", "memory.limit_bytes"), -1);
  EXPECT_EQ(value("cgroup/memory", "memory.usage_bytes"), 12);
  EXPECT_EQ(value("cgroup/memory", "memory.limit_hits"), std::nullopt);
}

TEST_F(CgroupSamplersTest, IoLimitsV1BindTheirOwnGroupOnly) {
  v1();
  put("/sys/fs/cgroup/blkio/a/b/blkio.throttle.read_bps_device", "254:0 4194304\n8:0 word\n");
  put("/sys/fs/cgroup/blkio/a/blkio.throttle.read_bps_device", "254:0 1000\n");
  put("/sys/fs/cgroup/blkio/a/b/blkio.throttle.io_service_bytes",
      "254:0 Read 4096\n254:0 Write 100\n254:0 Sync 4196\n7:0 Read 1000\nTotal 5196\n");
  put("/sys/fs/cgroup/blkio/a/b/blkio.throttle.io_serviced",
      "254:0 Read 2\n254:0 Write 1\nTotal 3\n");
  std::filesystem::create_directories(folder_.path() / "sys/dev/block");
  std::filesystem::create_symlink("../../devices/virtio1/block/vda",
                                  folder_.path() / "sys/dev/block/254:0");
  auto sampler = open(kCgroupIo, kRoot);
  tick(*sampler);
  EXPECT_EQ(value("iolimit/vda", "io.read_bps"), 4194304);
  EXPECT_EQ(value("iolimit/vda", "io.write_bps"), std::nullopt);
  EXPECT_EQ(value("cgroup/io", "io.read_bytes"), 5096);
  EXPECT_EQ(value("cgroup/io", "io.write_bytes"), 100);
  EXPECT_EQ(value("cgroup/io", "io.reads"), 2);
  EXPECT_EQ(value("cgroup/io", "io.writes"), 1);

  put("/sys/fs/cgroup/blkio/a/b/blkio.throttle.read_bps_device", "");  // lifted
  for (int i = 0; i < 4; ++i) tick(*sampler);
  EXPECT_EQ(value("iolimit/vda", "io.read_bps"), -1);
}

TEST_F(CgroupSamplersTest, IoLimitsV2AreTheTightestOfAllParents) {
  v2();
  put("/sys/fs/cgroup/a/b/io.max", "254:0 rbps=2097152 wbps=max riops=max wiops=120\n");
  put("/sys/fs/cgroup/a/io.max",
      "254:0 rbps=1048576 wbps=max riops=18446744073709551616 wiops=200\n");
  put("/sys/fs/cgroup/a/io.stat",
      "254:0 rbytes=10 wbytes=20 rios=3 wios=4 dbytes=0 dios=0\n7:0 rbytes=1 rios=x\n");
  auto sampler = open(kCgroupIo, kRoot);
  tick(*sampler);
  EXPECT_EQ(value("iolimit/254:0", "io.read_bps"), 1048576);
  EXPECT_EQ(value("iolimit/254:0", "io.write_bps"), std::nullopt);
  EXPECT_EQ(value("iolimit/254:0", "io.read_iops"), std::nullopt);
  EXPECT_EQ(value("iolimit/254:0", "io.write_iops"), 120);
  EXPECT_EQ(value("cgroup/io", "io.read_bytes"), 11);
  EXPECT_EQ(value("cgroup/io", "io.reads"), 3);
}

TEST_F(CgroupSamplersTest, WhatIsNotTheJobs) {
  put("/proc/stat", "cpu  100 0 0 1000 50 0 0 0\n");
  put("/proc/42/stat", "42 (job) R 1 1 1 0 -1 0 0 0 0 0 60 0 0 0 20 0 1 0 5\n");
  put("/proc/77/stat", "77 (fio x) R 1 1 1 0 -1 0 0 0 0 0 500 0 0 0 20 0 1 0 5\n");
  process(42);
  auto sampler = open(kCgroupOthers, kRoot);
  sink_.now_ns = 100 * kSecond;
  int busy = 100, job = 60, other = 500;
  for (int i = 0; i < 4; ++i) {
    tick(*sampler);  // 0.5 s: the machine runs 100 ticks of 10 ms, the job 60, the other 40
    put("/proc/stat", fmt::format("cpu  {} 0 0 1000 50 0 0 0\n", busy += 100));
    put("/proc/42/stat",
        fmt::format("42 (job) R 1 1 1 0 -1 0 0 0 0 0 {} 0 0 0 20 0 1 0 5\n", job += 60));
    put("/proc/77/stat",
        fmt::format("77 (fio x) R 1 1 1 0 -1 0 0 0 0 0 {} 0 0 0 20 0 1 0 5\n", other += 40));
  }
  EXPECT_EQ(value("cgroup/others", "cpu.usage_ns"), 3 * 400 * kMillisecond);
  EXPECT_THAT(notes("top_outside"), ElementsAre("77 77 fio x 0.80"));
}

// This machine: a child in groups of its own, which computes; its group's account must agree with
// its process's.
TEST(CgroupSamplersLive, AJobOfOurOwn) {
  const os::HostRoot host;
  const os::CgroupTree cgroups(host);
  os::JobCgroup job(host, cgroups, os::job_cgroup_name(host));
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::close(ready[1]);
    job.enter(0);
    while (std::clock() < CLOCKS_PER_SEC / 4) {
    }
    char byte;
    (void)!::read(ready[0], &byte, 1);
    ::_exit(0);
  }
  ::close(ready[0]);
  const SampleContext context{.host = host, .cgroups = cgroups, .job = &job, .root_pid = child};
  RememberingSink sink;
  const std::vector<JobProcess> processes = {{.pid = child, .start = 0, .appeared = true}};
  const Nanos begin = real_clock().now();
  const auto value = [&](const char* subject, const char* metric) {
    const auto it = sink.values.find({subject, metric});
    return it == sink.values.end() ? std::int64_t{-2} : it->second.value;
  };
  std::vector<std::unique_ptr<Sampler>> samplers;
  std::vector<std::string> refused;
  for (const SamplerPart* part :
       {&kCgroupPsi, &kCgroupCpu, &kCgroupQuota, &kCgroupMemory, &kCgroupIo, &kCgroupOthers}) {
    try {
      samplers.push_back(part->open(context));
    } catch (const Error& error) {
      EXPECT_THAT(error.code(), ::testing::AnyOf(Code::kUnsupported, Code::kPermission))
          << part->name;
      refused.push_back(std::string(part->name) + ": " + error.what());
    }
  }
  while (value("cgroup/job", "cpu.usage_ns") < 200 * kMillisecond &&
         real_clock().now() - begin < 10 * kSecond) {
    sink.now_ns = real_clock().now() - begin;
    for (auto& sampler : samplers) sampler->sample(processes, sink);
    ::usleep(20'000);
    if (!job.group("cpuacct") && !job.group("")) break;
  }
  for (const std::string& line : refused) std::printf("    not seen here: %s\n", line.c_str());
  if (job.group("cpuacct") || job.group("")) {
    EXPECT_GE(value("cgroup/job", "cpu.usage_ns"), 200 * kMillisecond);
    EXPECT_GE(value("cgroup/others", "cpu.usage_ns"), 0);
  }
  if (job.group("")) {
    EXPECT_GE(value("cgroup/job", "psi.cpu.some_us"), 0);
  }
  if (cgroups.has("memory")) {
    EXPECT_GE(value("cgroup/memory", "memory.limit_bytes"), -1);
  }
  ::close(ready[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
}

}  // namespace
}  // namespace bedplate::probe
