// The samplers of the whole machine, on hand-made machines with known figures and on this one.
#include <limits>

#include "base/text.h"
#include "probe/internal/sampling.h"
#include "probe/samplers/sampler_fixture.h"

namespace bedplate::probe {

extern const SamplerPart kHostCpu, kHostPsi, kHostMemory, kHostVm, kHostDisk, kHostNet;

namespace {

using ::testing::StartsWith;

TEST(Natural, IsANumberOrNothing) {
  EXPECT_EQ(natural("0"), 0);
  EXPECT_EQ(natural("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  for (const char* bad :
       {"", "-1", "+1", "1.5", "12x", "max", " 1", "18446744073709551616", "9223372036854775808"}) {
    EXPECT_EQ(natural(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(times(std::int64_t{3}, 1000), 3000);
  EXPECT_EQ(times(std::numeric_limits<std::int64_t>::max(), 2), std::nullopt);
  EXPECT_EQ(times(std::nullopt, 2), std::nullopt);
}

TEST(Keyed, WantsTheWholeKeyAtTheStartOfALine) {
  constexpr std::string_view kText = "total_cache 7\ncache 5\nMemFree:   12 kB\nempty\nhigh max\n";
  EXPECT_EQ(keyed(kText, "cache"), 5);
  EXPECT_EQ(keyed(kText, "MemFree"), 12);
  EXPECT_EQ(keyed(kText, "Mem"), std::nullopt);
  EXPECT_EQ(keyed(kText, "empty"), std::nullopt);
  EXPECT_EQ(keyed(kText, "high"), std::nullopt);
}

TEST(RisingCounter, NeverFalls) {
  Rising noise, replaced, wraps;
  EXPECT_EQ(noise.update(100, Rising::Fall::kNoise), 100);
  EXPECT_EQ(noise.update(98, Rising::Fall::kNoise), 100);
  EXPECT_EQ(noise.update(101, Rising::Fall::kNoise), 101);

  EXPECT_EQ(replaced.update(5000, Rising::Fall::kReplaced), 5000);
  EXPECT_EQ(replaced.update(10, Rising::Fall::kReplaced), 5000);
  EXPECT_EQ(replaced.update(15, Rising::Fall::kReplaced), 5005);

  EXPECT_EQ(wraps.update(4'294'967'290, Rising::Fall::kWraps32), 4'294'967'290);
  EXPECT_EQ(wraps.update(4, Rising::Fall::kWraps32), 4'294'967'300);
  EXPECT_EQ(wraps.update(2, Rising::Fall::kWraps32),
            4'294'967'300);  // from a small value: replaced

  Rising far;
  far.update(std::numeric_limits<std::int64_t>::max(), Rising::Fall::kReplaced);
  far.update(0, Rising::Fall::kReplaced);
  EXPECT_EQ(far.update(100, Rising::Fall::kReplaced), std::numeric_limits<std::int64_t>::max());
}

class HostSamplersTest : public SamplerTest {};

TEST_F(HostSamplersTest, ProcessorTimesAreExactNanoseconds) {
  put("/proc/stat",
      "cpu  10 2 3 400 5 6 7 8 9 0\ncpu0 4 1 1 200 5 6 7 8 0 0\ncpu2 6 1 2 200 0 0 0 0 0 0\n"
      "intr 5 1 2\nctxt 12\nprocs_running 3\nprocs_blocked 1\n");
  auto sampler = open(kHostCpu);
  tick(*sampler);
  const Nanos tick_ns = clock_tick();
  EXPECT_EQ(tick_ns, 10 * kMillisecond);  // USER_HZ is 100 on every machine of ours
  EXPECT_EQ(value("host", "cpu.user_ns"), 10 * tick_ns);
  EXPECT_EQ(value("host", "cpu.nice_ns"), 2 * tick_ns);
  EXPECT_EQ(value("host", "cpu.system_ns"), 3 * tick_ns);
  EXPECT_EQ(value("host", "cpu.idle_ns"), 400 * tick_ns);
  EXPECT_EQ(value("host", "cpu.iowait_ns"), 5 * tick_ns);
  EXPECT_EQ(value("host", "cpu.irq_ns"), 6 * tick_ns);
  EXPECT_EQ(value("host", "cpu.softirq_ns"), 7 * tick_ns);
  EXPECT_EQ(value("host", "cpu.steal_ns"), 8 * tick_ns);
  EXPECT_EQ(value("cpu/2", "cpu.user_ns"), 6 * tick_ns);
  EXPECT_EQ(value("cpu/1", "cpu.user_ns"), std::nullopt);  // not online: absent, not 0
  EXPECT_EQ(value("host", "cpu.online"), 2);
  EXPECT_EQ(value("host", "procs.running"), 3);
  EXPECT_EQ(value("host", "procs.blocked"), 1);
  EXPECT_EQ(kind("host", "cpu.user_ns"), SeriesKind::kCounter);
  EXPECT_EQ(kind("host", "cpu.online"), SeriesKind::kGauge);

  put("/proc/stat", "cpu  11 2 3 398 5 6 7 8 9 0\n");  // idle wobbles back
  tick(*sampler);
  EXPECT_EQ(value("host", "cpu.user_ns"), 11 * tick_ns);
  EXPECT_EQ(value("host", "cpu.idle_ns"), 400 * tick_ns);
}

TEST_F(HostSamplersTest, MalformedProcessorTimesAreLeftOut) {
  put("/proc/stat",
      "cpu  ten 2 18446744073709551616 4\ncpuX 1 2 3 4\ncpu99999999 1 2 3 4\ncpu1 "
      "9223372036854775807 3\n");
  auto sampler = open(kHostCpu);
  tick(*sampler);
  EXPECT_EQ(value("host", "cpu.user_ns"), std::nullopt);
  EXPECT_EQ(value("host", "cpu.nice_ns"), 2 * clock_tick());
  EXPECT_EQ(value("host", "cpu.system_ns"), std::nullopt);
  EXPECT_EQ(value("host", "cpu.idle_ns"), 4 * clock_tick());
  EXPECT_EQ(value("host", "cpu.iowait_ns"), std::nullopt);
  EXPECT_EQ(value("cpu/1", "cpu.user_ns"), std::nullopt);  // would not fit in nanoseconds
  EXPECT_EQ(value("cpu/1", "cpu.nice_ns"), 3 * clock_tick());
  EXPECT_EQ(value("host", "cpu.online"), 1);
  put("/proc/stat", "");
  tick(*sampler);
}

TEST_F(HostSamplersTest, ManyProcessorsTakeTurns) {
  std::string text = "cpu 1 1 1 1 1 1 1 1\n";
  for (int cpu = 0; cpu < 96; ++cpu) text += fmt::format("cpu{} 1 1 1 1 1 1 1 1\n", cpu);
  put("/proc/stat", text);
  auto sampler = open(kHostCpu);
  tick(*sampler);
  sink_.values.clear();
  tick(*sampler);
  EXPECT_EQ(sink_.values.size(), 8u + 1u + 32u * 8u);
  tick(*sampler);
  tick(*sampler);
  for (int cpu = 0; cpu < 96; ++cpu)
    EXPECT_TRUE(value(fmt::format("cpu/{}", cpu), "cpu.user_ns")) << cpu;
}

TEST_F(HostSamplersTest, PressureTotals) {
  put("/proc/pressure/cpu", "some avg10=1.50 avg60=0.00 avg300=0.00 total=445752397\n");
  put("/proc/pressure/memory",
      "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 "
      "total=7\n");
  put("/proc/pressure/io",
      "some avg10=0.00 total=word\nfull avg10=0.00 avg60=0.00 total=18446744073709551616\n");
  auto sampler = open(kHostPsi);
  tick(*sampler);
  EXPECT_EQ(value("host", "psi.cpu.some_us"), 445752397);
  EXPECT_EQ(value("host", "psi.cpu.full_us"), std::nullopt);  // older kernels have no such line
  EXPECT_EQ(value("host", "psi.memory.some_us"), 12);
  EXPECT_EQ(value("host", "psi.memory.full_us"), 7);
  EXPECT_EQ(value("host", "psi.io.some_us"), std::nullopt);
  EXPECT_EQ(value("host", "psi.io.full_us"), std::nullopt);
  EXPECT_EQ(sink_.values.at({"host", "psi.cpu.some_us"}).source, "/proc/pressure/cpu");
}

TEST_F(HostSamplersTest, AbsentFilesAreSaidPlainly) {
  EXPECT_THAT(refusal(kHostPsi), StartsWith("not supported: this kernel has no PSI"));
  EXPECT_THAT(refusal(kHostCpu), StartsWith("not supported: /proc/stat is absent"));
  EXPECT_THAT(refusal(kHostVm), StartsWith("not supported: this kernel has no /proc/vmstat"));
  EXPECT_THAT(refusal(kHostDisk), StartsWith("not supported: "));
  EXPECT_THAT(refusal(kHostNet), StartsWith("not supported: "));
  EXPECT_THAT(refusal(kHostMemory), StartsWith("not supported: "));
}

TEST_F(HostSamplersTest, MemoryInBytes) {
  put("/proc/meminfo",
      "MemTotal:       24117248 kB\nMemFree:         1000 kB\nMemAvailable:  2000 kB\nBuffers: 5 "
      "kB\nCached:  300 kB\n"
      "SwapCached: 9 kB\nSwapTotal:  100 kB\nSwapFree:  40 kB\nDirty:   8 kB\nWriteback: x "
      "kB\nWritebackTmp: 3 kB\n");
  auto sampler = open(kHostMemory);
  tick(*sampler);
  EXPECT_EQ(value("host", "mem.total_bytes"), 24117248LL * 1024);
  EXPECT_EQ(value("host", "mem.free_bytes"), 1000 * 1024);
  EXPECT_EQ(value("host", "mem.available_bytes"), 2000 * 1024);
  EXPECT_EQ(value("host", "mem.cached_bytes"), 300 * 1024);
  EXPECT_EQ(value("host", "mem.dirty_bytes"), 8 * 1024);
  EXPECT_EQ(value("host", "mem.writeback_bytes"), std::nullopt);
  EXPECT_EQ(value("host", "mem.swap_used_bytes"), 60 * 1024);
}

TEST_F(HostSamplersTest, VirtualMemoryCountersKeepTheKernelsUnits) {
  put("/proc/vmstat",
      "nr_dirty 30\nnr_writeback 2\nnr_dirty_threshold 999\npgpgin 2841181\npswpin 1\npgmajfault "
      "1627\n"
      "workingset_refault_file 73728\nworkingset_refault_anon 18446744073709551615\noom_kill "
      "1\nthp_fault_fallback two\n"
      "thp_fault_fallback_charge 44\n");
  auto sampler = open(kHostVm);
  tick(*sampler);
  EXPECT_EQ(value("host", "vm.nr_dirty"), 30);
  EXPECT_EQ(kind("host", "vm.nr_dirty"), SeriesKind::kGauge);
  EXPECT_EQ(value("host", "vm.nr_dirty_threshold"), 999);
  EXPECT_EQ(value("host", "vm.pgpgin"), 2841181);
  EXPECT_EQ(value("host", "vm.workingset_refault_file"), 73728);
  EXPECT_EQ(value("host", "vm.workingset_refault_anon"), std::nullopt);
  EXPECT_EQ(value("host", "vm.thp_fault_fallback"), std::nullopt);
  EXPECT_EQ(value("host", "vm.oom_kill"), 1);
  EXPECT_EQ(value("host", "vm.numa_hint_faults"), std::nullopt);
}

constexpr char kVda[] =
    " 254       0 vda 68670 15106 4368634 25045 29072 38539 6313600 15324 3 14748 41288 9599 26 "
    "2234544 780 3950 138\n";

TEST_F(HostSamplersTest, DisksInUseAndNoPartitions) {
  put("/proc/diskstats", std::string("   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n") +
                             kVda +
                             " 254       1 vda1 1 1 1 1 1 1 1 1 1 1 1\n"
                             "   1       0 ram0 0 0 0 0 0 0 0 0 0 0 0\n"
                             " 253       0 dm-0 10 0 8 4 0 0 0 0 0 4 4\n");
  put("/sys/block/vda/size", "100\n");
  put("/sys/block/loop0/size", "0\n");
  put("/sys/block/ram0/size", "8192\n");
  put("/sys/block/dm-0/size", "100\n");
  auto sampler = open(kHostDisk);
  tick(*sampler);
  EXPECT_EQ(value("disk/vda", "reads"), 68670);
  EXPECT_EQ(value("disk/vda", "read_bytes"), 4368634LL * 512);
  EXPECT_EQ(value("disk/vda", "read_ns"), 25045 * kMillisecond);
  EXPECT_EQ(value("disk/vda", "writes"), 29072);
  EXPECT_EQ(value("disk/vda", "write_bytes"), 6313600LL * 512);
  EXPECT_EQ(value("disk/vda", "write_ns"), 15324 * kMillisecond);
  EXPECT_EQ(value("disk/vda", "in_flight"), 3);
  EXPECT_EQ(value("disk/vda", "busy_ns"), 14748 * kMillisecond);
  EXPECT_EQ(value("disk/vda", "queue_ns"), 41288 * kMillisecond);
  EXPECT_EQ(value("disk/vda", "flushes"), 3950);
  EXPECT_EQ(value("disk/vda", "flush_ns"), 138 * kMillisecond);
  EXPECT_EQ(value("disk/dm-0", "reads"), 10);
  EXPECT_EQ(value("disk/dm-0", "flushes"), std::nullopt);  // an older kernel's line
  EXPECT_EQ(value("disk/vda1", "reads"), std::nullopt);
  EXPECT_EQ(value("disk/loop0", "reads"), std::nullopt);
  EXPECT_EQ(value("disk/ram0", "reads"), std::nullopt);
}

TEST_F(HostSamplersTest, ADisksReadAheadIsReadSeldomAndNotWhereThereIsNone) {
  put("/proc/diskstats",
      " 8 0 sda 5 0 8 1 0 0 0 0 0 0 0\n 9 0 cciss/c0 5 0 8 1 0 0 0 0 0 0 0\n"
      " 10 0 sdb 5 0 8 1 0 0 0 0 0 0 0\n");
  put("/sys/block/sda/queue/read_ahead_kb", "8192\n");
  put("/sys/block/cciss!c0/queue/read_ahead_kb", "128\n");
  put("/sys/block/sdb/size", "100\n");
  auto sampler = open(kHostDisk);
  tick(*sampler);
  EXPECT_EQ(value("disk/sda", "read_ahead_bytes"), 8192 * kKiB);
  EXPECT_EQ(kind("disk/sda", "read_ahead_bytes"), SeriesKind::kGauge);
  EXPECT_EQ(value("disk/cciss/c0", "read_ahead_bytes"), 128 * kKiB);
  EXPECT_EQ(value("disk/sdb", "read_ahead_bytes"), std::nullopt);
  put("/sys/block/sda/queue/read_ahead_kb", "16\n");
  tick(*sampler);
  EXPECT_EQ(value("disk/sda", "read_ahead_bytes"), 8192 * kKiB);
  for (int i = 0; i < 20; ++i) tick(*sampler);
  EXPECT_EQ(value("disk/sda", "read_ahead_bytes"), 16 * kKiB);
}

TEST_F(HostSamplersTest, ADiskThatIsReplacedOrWrapsGoesOnCounting) {
  put("/sys/block/sda/size", "100\n");
  put("/proc/diskstats", " 8 0 sda 100 0 800 4294967000 0 0 0 0 0 0 0\n");
  auto sampler = open(kHostDisk);
  tick(*sampler);
  put("/proc/diskstats", " 8 0 sda 110 0 880 704 0 0 0 0 0 0 0\n");
  tick(*sampler);
  EXPECT_EQ(value("disk/sda", "read_ns"), (4294967000LL + 1000) * kMillisecond);
  put("/proc/diskstats", " 8 0 sda 1 0 8 1 0 0 0 0 0 0 0\n");
  tick(*sampler);
  put("/proc/diskstats", " 8 0 sda 3 0 24 1 0 0 0 0 0 0 0\n");
  tick(*sampler);
  EXPECT_EQ(value("disk/sda", "reads"), 112);
  EXPECT_EQ(value("disk/sda", "read_bytes"), (880 + 16) * 512);
}

TEST_F(HostSamplersTest, PartitionsAreKnownByNameWhereThereIsNoSys) {
  put("/proc/diskstats",
      "259 0 nvme0n1 5 0 8 1 0 0 0 0 0 0 0\n259 1 nvme0n1p1 5 0 8 1 0 0 0 0 0 0 0\n8 0 sda 5 0 8 1 "
      "0 0 0 0 0 0 0\n"
      "8 1 sda1 5 0 8 1 0 0 0 0 0 0 0\n8 16 sdaa 5 0 8 1 0 0 0 0 0 0 0\n8 2 sda2 5 0 8\nx\n");
  auto sampler = open(kHostDisk);
  tick(*sampler);
  EXPECT_TRUE(value("disk/nvme0n1", "reads"));
  EXPECT_TRUE(value("disk/sdaa", "reads"));
  EXPECT_FALSE(value("disk/nvme0n1p1", "reads"));
  EXPECT_FALSE(value("disk/sda1", "reads"));
}

TEST_F(HostSamplersTest, NetworkAndTcp) {
  put("/proc/net/dev",
      "Inter-|   Receive                |  Transmit\n face |bytes    packets errs drop|bytes\n"
      "    lo: 869 18 1 2 0 0 0 0 870 19 3 4 0 0 0 0\n  ifb0:       0       0    0    0 0 0 0 0 0 "
      "0 0 0 0 0 0 0\n"
      "  eth0:147500750 2927 0 x 0 0 0 0 142625 1772\n");
  put("/proc/net/snmp",
      "Ip: a b\nIp: 1 2\nTcp: RtoMin MaxConn OutSegs RetransSegs\nTcp: 200 -1 278651 496\n");
  put("/proc/net/netstat",
      "TcpExt: A TCPTimeouts B\nTcpExt: 5 77 6\nIpExt: TCPTimeouts\nIpExt: 1\n");
  put("/sys/class/net/eth0/speed", "25000\n");
  put("/sys/class/net/lo/speed", "-1\n");
  auto sampler = open(kHostNet);
  tick(*sampler);
  EXPECT_EQ(value("net/lo", "rx_bytes"), 869);
  EXPECT_EQ(value("net/lo", "rx_packets"), 18);
  EXPECT_EQ(value("net/lo", "rx_errors"), 1);
  EXPECT_EQ(value("net/lo", "rx_drops"), 2);
  EXPECT_EQ(value("net/lo", "tx_bytes"), 870);
  EXPECT_EQ(value("net/lo", "tx_packets"), 19);
  EXPECT_EQ(value("net/lo", "tx_errors"), 3);
  EXPECT_EQ(value("net/lo", "tx_drops"), 4);
  EXPECT_EQ(value("net/lo", "speed_mbps"), std::nullopt);
  EXPECT_EQ(value("net/eth0", "rx_bytes"), 147500750);
  EXPECT_EQ(value("net/eth0", "rx_drops"), std::nullopt);
  EXPECT_EQ(value("net/eth0", "tx_errors"), std::nullopt);  // truncated
  EXPECT_EQ(value("net/eth0", "speed_mbps"), 25000);
  EXPECT_EQ(value("net/ifb0", "rx_bytes"), std::nullopt);
  EXPECT_EQ(value("host", "tcp.out_segs"), 278651);
  EXPECT_EQ(value("host", "tcp.retrans_segs"), 496);
  EXPECT_EQ(value("host", "tcp.timeouts"), 77);
}

// On the machine of the test itself: every sampler opens and writes something that can be true.
TEST(HostSamplersLive, ThisMachine) {
  const os::HostRoot host;
  const os::CgroupTree cgroups(host);
  const SampleContext context{.host = host, .cgroups = cgroups};
  RememberingSink sink;
  for (const SamplerPart* part : {&kHostCpu, &kHostMemory, &kHostVm, &kHostDisk, &kHostNet}) {
    auto sampler = part->open(context);
    const std::size_t before = sink.values.size();
    for (int i = 0; i < 3; ++i) sampler->sample({}, sink);
    EXPECT_GT(sink.values.size(), before) << part->name;
  }
  EXPECT_GT(sink.values.at({"host", "cpu.user_ns"}).value, 0);
  EXPECT_GE(sink.values.at({"host", "cpu.online"}).value, 1);
  EXPECT_GT(sink.values.at({"host", "mem.total_bytes"}).value, 64 * kMiB);
  EXPECT_GT(sink.values.at({"host", "vm.pgfault"}).value, 0);
}

}  // namespace
}  // namespace bedplate::probe
