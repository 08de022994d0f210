// cold_cache on runs that are its look-alikes: throttled and slow storage, a memory limit, small
// files, and caches of bedplate.data that are cold, too small, closed or missing.
#include "doctor/rules/rule_test.h"

namespace bedplate::doctor {
namespace {

using ::testing::HasSubstr;

// One worker reads 50 MB a second from the disk, blocked most of the time; the pages stay.
RunBuilder first_epoch() {
  auto run = RunBuilder::healthy(1, 1);
  run.all_phases({{Phase::kInputWait, 0.5}});
  run.cpu(1000, 0.2, 0.001).fetching(1000, 10, 98, 0.1, 0.1);
  run.counter("proc/1000", "io.read_bytes", 50e6).counter("proc/1000", "io.rchar", 50e6);
  std::vector<probe::Sample> cached;
  for (Nanos t = 0; t <= RunBuilder::kLength; t += kSecond)
    cached.push_back({t, static_cast<std::int64_t>(2e9 + 50e6 * seconds(t))});
  run.series("host", "mem.cached_bytes", probe::SeriesKind::kGauge, cached);
  return run;
}

TEST(ColdCache, FiresWhenWhatIsReadFromTheDiskStaysInMemory) {
  const Report report = judge(first_epoch().build());
  ASSERT_EQ(found(report), (std::vector<std::string>{"cold_cache", "input_workers"}));
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.status, Status::kSupported) << "no warm epoch was seen";
  EXPECT_NEAR(f.gain_ceiling, 0.45, 0.02);
  EXPECT_EQ(report.findings[1].because_of, "cold_cache");
  EXPECT_THAT(f.title, HasSubstr("100 % of 949 MiB that the loader read came from the disk"));
  EXPECT_THAT(evidence(f), HasSubstr("what was read has stayed"));
  EXPECT_THAT(ruled_out(f, "io_throttle"), HasSubstr("no IO limit"));
  EXPECT_THAT(ruled_out(f, "memcg_thrash"), HasSubstr("not limited"));
  EXPECT_NE(ruled_out(f, "readahead_amplification"), "");
  EXPECT_NE(ruled_out(f, "small_files"), "");
}

TEST(ColdCache, AWarmSecondEpochEstablishesItAndCostsNothingItself) {
  auto run = first_epoch();
  std::vector<probe::Sample> read;
  for (Nanos t = 0; t <= RunBuilder::kLength; t += RunBuilder::kTick)
    read.push_back({t, static_cast<std::int64_t>(50e6 * std::min(10.0, seconds(t)))});
  run.series("proc/1000", "io.read_bytes", probe::SeriesKind::kCounter, read);
  const Report report = judge(run.build());
  const Finding* f = finding(report, "cold_cache");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->status, Status::kEstablished);
  EXPECT_NEAR(f->gain_ceiling, 0.225, 0.02);
}

TEST(ColdCache, MappedFilesAreReadWithoutCalls) {
  auto run = first_epoch();
  run.counter("proc/1000", "io.rchar", 1000)
      .counter("proc/1000", "major_faults", 50e6 / 131072)
      .counter("proc/1000", "minor_faults", 50e6 / 65536);
  const Report report = judge(run.build());
  EXPECT_EQ(found(report).front(), "cold_cache");
  EXPECT_TRUE(quiet(report, "readahead_amplification")) << "from end to end";
}

TEST(ColdCache, PagesThatDoNotStayAreSlowStorageInEveryEpoch) {
  auto run = first_epoch();
  run.gauge("host", "mem.cached_bytes", 2e9);
  const Report report = judge(run.build());
  EXPECT_TRUE(quiet(report, "cold_cache"));
  EXPECT_EQ(found(report), std::vector<std::string>{"input_workers"});
}

TEST(ColdCache, RefaultsUnderALimitAreMemcgThrash) {
  auto run = first_epoch();
  run.gauge("cgroup/memory", "memory.limit_bytes", 40 << 20)
      .gauge("cgroup/memory", "memory.usage_bytes", (40 << 20) - 4096)
      .counter("cgroup/memory", "memory.refault_file_pages", 50e6 / 4096 * 0.9)
      .counter("cgroup/memory", "memory.limit_hits", 500);
  const Report report = judge(run.build());
  EXPECT_EQ(found(report).front(), "memcg_thrash");
  EXPECT_TRUE(quiet(report, "cold_cache"));
}

TEST(ColdCache, UnderAnIoLimitItIsTheConsequence) {
  auto run = first_epoch();
  run.gauge("iolimit/vda", "io.read_bps", 50e6)
      .counter("cgroup/job", "psi.io.some_us", 0.9e6)
      .counter("cgroup/job", "psi.io.full_us", 0.4e6)
      .counter("disk/vda", "busy_ns", 0.02e9);
  const Report report = judge(run.build());
  EXPECT_EQ(found(report).front(), "io_throttle");
  const Finding* f = finding(report, "cold_cache");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->because_of, "io_throttle");
}

TEST(ColdCache, ALoaderThatReadsAheadFarEnoughLosesNothing) {
  auto run = first_epoch();
  run.all_phases({});
  EXPECT_TRUE(quiet(judge(run.build()), "cold_cache"));
}

TEST(ColdCache, ATrickleFromTheDiskIsNot) {
  auto run = first_epoch();
  run.counter("proc/1000", "io.read_bytes", 0.5e6);
  const Report report = judge(run.build());
  EXPECT_TRUE(quiet(report, "cold_cache"));
}

TEST(ColdCache, WithoutItsSignalsItCouldNotSee) {
  for (const char* signal : {"hook", "proc.io", "host.memory"}) {
    auto run = first_epoch();
    run.unseen(signal);
    EXPECT_TRUE(unseen(judge(run.build()), "cold_cache")) << signal;
  }
}

// A loader of bedplate.data whose threads wait for a remote store; the training process is 100.
RunBuilder remote(const std::string& cache) {
  auto run = RunBuilder::healthy(1, 0);
  run.all_phases({{Phase::kInputWait, 0.6}});
  std::erase_if(run.data().notes, [](const auto& note) { return note.key == "loader"; });
  run.note(100, "loader",
           R"({"id":1,"num_workers":2,"batch_size":8,"dataset":"bedplate.data.dataset.Dataset"})");
  run.note(100, "loader_data",
           R"({"url":"s3://corpus/train/","bytes":5000000000,"samples":900,"trouble":"","cache":)" +
               (cache.empty() ? "null" : "\"" + cache + "\"") + "}");
  run.fetching(100, 10, 180, 0.05, 0.0)
      .counter("proc/100", "trace.data_bytes", 20e6)
      .counter("proc/100", "trace.data_make_ns", 1.8e9)
      .counter("proc/100", "trace.data_read_ns", 1.6e9)
      .counter("proc/100", "trace.remote_reads", 20)
      .counter("proc/100", "trace.remote_ns", 1.6e9)
      .counter("proc/100", "trace.remote_bytes", 20e6);
  return run;
}

TEST(ColdCache, BedplatesOwnCacheOnItsFirstWayThroughTheData) {
  auto run = remote("/nvme/cache:200GB");
  run.counter("proc/100", "trace.cache_misses", 20)
      .counter("proc/100", "trace.cache_origin_bytes", 20e6)
      .counter("proc/100", "trace.cache_hit_bytes", 5e6)
      .counter("proc/100", "trace.cache_hits", 5);
  const Report report = judge(run.build());
  ASSERT_EQ(found(report), (std::vector<std::string>{"cold_cache", "input_workers"}));
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.status, Status::kEstablished);
  EXPECT_NEAR(f.gain_ceiling, 0.6 * 0.95 * 0.8, 0.02);
  EXPECT_THAT(f.title, HasSubstr("the cache is cold: 80 % of what was read came from the origin"));
  EXPECT_THAT(f.fix, HasSubstr("bedplate cache warm /nvme/cache:200GB s3://corpus/train/"));
  EXPECT_THAT(f.verify, HasSubstr("bedplate cache stat /nvme/cache "));
  EXPECT_THAT(evidence(f), HasSubstr("a read takes 80 ms"));
}

TEST(ColdCache, MemoryAloneGetsAFolderBehindIt) {
  auto run = remote("memory:4GB,CACHE");
  run.counter("proc/100", "trace.cache_misses", 20)
      .counter("proc/100", "trace.cache_origin_bytes", 20e6);
  const Report report = judge(run.build());
  const Finding* f = finding(report, "cold_cache");
  ASSERT_NE(f, nullptr);
  EXPECT_THAT(f->fix, HasSubstr("cache=\"memory:4GB,CACHE,/nvme/cache:200GB\""));
}

TEST(ColdCache, ACacheThatIsTooSmallIsToBeGrown) {
  auto run = remote("memory:1GB,/nvme/cache:1GB");
  run.counter("proc/100", "trace.cache_misses", 20)
      .counter("proc/100", "trace.cache_evictions", 19)
      .counter("proc/100", "trace.cache_origin_bytes", 20e6);
  const Report report = judge(run.build());
  const Finding* f = finding(report, "cold_cache");
  ASSERT_NE(f, nullptr);
  EXPECT_THAT(f->title, HasSubstr("is too small for the data"));
  EXPECT_THAT(f->fix, HasSubstr("Dataset(\"s3://corpus/train/\", cache=\"/nvme/cache:6GB\")"));
}

TEST(ColdCache, WithoutACacheEveryEpochIsTheFirst) {
  const Report report = judge(remote("").build());
  const Finding* f = finding(report, "cold_cache");
  ASSERT_NE(f, nullptr);
  EXPECT_THAT(f->title, HasSubstr("every epoch reads s3://corpus/train/ anew"));
  EXPECT_THAT(f->fix, HasSubstr("cache=\"/nvme/cache:200GB\""));
  EXPECT_NEAR(f->gain_ceiling, 0.57, 0.02);
}

// The set has 5 GB.
RunBuilder through_a_window(std::string_view bytes) {
  auto run = remote("");
  run.note(100, "loader_data",
           fmt::format(R"({{"url":"s3://corpus/train/","bytes":5000000000,"cache":null,)"
                       R"("window":{}}})",
                       bytes));
  run.counter("proc/100", "trace.cache_misses", 20)
      .counter("proc/100", "trace.cache_origin_bytes", 20e6)
      .counter("proc/100", "trace.cache_hit_bytes", 20e6);
  return run;
}

TEST(ColdCache, AWindowInMemoryTakesItsHitsOffTheCeiling) {
  const Report report = judge(through_a_window("1000000000").build());
  const Finding* f = finding(report, "cold_cache");
  ASSERT_NE(f, nullptr);
  EXPECT_THAT(f->title, HasSubstr("anew: there is no cache, and 954 MiB of memory hold"));
  EXPECT_THAT(evidence(*f), HasSubstr("954 MiB of memory: 50 % of"));
  EXPECT_NEAR(f->gain_ceiling, 0.57 / 2, 0.02);
}

TEST(ColdCache, AWindowThatHoldsAllIsColdOnceAJob) {
  const Report report = judge(through_a_window("6000000000").build());
  const Finding* f = finding(report, "cold_cache");
  ASSERT_NE(f, nullptr);
  EXPECT_THAT(f->title, HasSubstr("the cache is cold: 50 %"));
  EXPECT_THAT(f->fix, HasSubstr("memory alone is empty when a job begins; put a folder behind it, "
                                "Dataset(\"s3://corpus/train/\", cache=\"/nvme/cache:200GB\")"));
}

TEST(ColdCache, ACacheThatCannotBeUsedIsNamedWithTheReason) {
  auto run = remote("/nvme/cache:200GB");
  run.note(100, "loader_data",
           R"({"bytes":5000000000,"cache":"/nvme/cache:200GB","trouble":"the disk is full"})");
  run.counter("proc/100", "trace.cache_pass_throughs", 20);
  const Report report = judge(run.build());
  const Finding* f = finding(report, "cold_cache");
  ASSERT_NE(f, nullptr);
  EXPECT_THAT(f->title, HasSubstr("cannot be used"));
  EXPECT_THAT(evidence(*f), HasSubstr("the disk is full"));
}

TEST(ColdCache, AWarmCacheIsQuiet) {
  auto run = remote("/nvme/cache:200GB");
  run.counter("proc/100", "trace.cache_hits", 20)
      .counter("proc/100", "trace.cache_hit_bytes", 20e6)
      .without("proc/100", "trace.remote_reads")
      .without("proc/100", "trace.remote_bytes");
  EXPECT_TRUE(quiet(judge(run.build()), "cold_cache"));
}

}  // namespace
}  // namespace bedplate::doctor
