// The page cache of the job counts against the memory limit of its cgroup. Under a limit smaller
// than what is read again and again, each page is dropped before its next use and comes from the
// device once more: reads at full disk speed for ever, and the out-of-memory killer never fires
// (lxc#4122; Containarium#1454, frozen for 90 minutes in memory.high).
//
// Ceiling: input wait as far as making batches was not user code, in proportion to the reads that
// were refaults (a page that comes back within its working set, mm/workingset.c): with room enough
// those come from memory. Plus the time in which the whole job stood still for memory.
// Discriminator, measured: limit 40 MiB, a file of 96 MiB read four times: 73,728 refaults, which
// is 3 x 24,576 pages exactly.
#include <algorithm>

#include "doctor/cite.h"
#include "doctor/rule.h"
#include "doctor/rules/conditions.h"
#include "doctor/rules/io_facts.h"

namespace bedplate::doctor {
namespace {

constexpr std::string_view kGroup = "cgroup/memory";
constexpr double kPage = 4096;

std::optional<double> refault_bytes(const RunView& run, Window w) {
  const auto file = run.series().growth(kGroup, "memory.refault_file_pages", w);
  const auto anon = run.series().growth(kGroup, "memory.refault_anon_pages", w);
  if (!file && !anon) return std::nullopt;
  return (file.value_or(0) + anon.value_or(0)) * kPage;
}

// Of what was read from storage, the part that had been in memory a moment ago.
std::optional<double> refault_share(const RunView& run, Window w) {
  const auto refaults = refault_bytes(run, w);
  if (!refaults || length(w) == 0) return std::nullopt;
  if (*refaults / seconds(length(w)) <
      run.threshold("memcg_thrash.refault_mib") * static_cast<double>(kMiB))
    return 0;
  const auto read = storage_traffic(run, "io.read_bytes", w);
  if (!read || *read < *refaults) return 1;
  return *refaults / *read;
}

LostTime lost_to_it(const RunView& run) {
  const LostTime input = input_beyond_computing(run);
  const LostTime reads =
      run.scaled(input, run.timeline([&](Window w) { return refault_share(run, w); }));
  const LostTime stalls = run.during(run.timeline([&](Window w) -> std::optional<double> {
    if (refault_share(run, w).value_or(0) < 0.1) return std::nullopt;
    const auto memory = pressure(run, "memory", "full", w);
    const auto io = pressure(run, "io", "full", w);
    return std::max(memory.value_or(0), io.value_or(0));
  }));
  return larger(reads, stalls);
}

std::optional<Finding> check(const RunView& run) {
  const auto limit = run.series().last(kGroup, "memory.limit_bytes", run.window());
  const auto refaults = refault_bytes(run, run.window());
  const auto hits = run.series().growth(kGroup, "memory.limit_hits", run.window());
  const auto usage = run.series().highest(kGroup, "memory.usage_bytes", run.window());
  if (!limit || *limit <= 0 || !refaults) return std::nullopt;
  const bool full =
      (usage && *usage >= *limit * run.threshold("memcg_thrash.full_share")) || (hits && *hits > 0);
  if (!full ||
      refault_share(run, run.window()).value_or(0) < run.threshold("memcg_thrash.refault_share"))
    return std::nullopt;
  const LostTime lost = lost_to_it(run);
  Finding f;
  f.gain_ceiling = run.share(lost);
  if (f.gain_ceiling < run.threshold("memcg_thrash.lost_share")) return std::nullopt;
  f.status = Status::kEstablished;
  f.when = run.when(lost);
  const std::string stat = run.series().source(kGroup, "memory.refault_file_pages");
  f.scope.path = stat.substr(0, stat.rfind('/'));
  f.title = fmt::format("the cgroup's memory limit of {} drops pages that are read again at once",
                        human_bytes(*limit));
  const double length_s = seconds(length(run.window()));
  f.evidence.push_back(cite(stat, "{} of pages came back within their working set, {} a second",
                            human_bytes(*refaults), human_bytes(*refaults / length_s)));
  if (const auto read = storage_traffic(run, "io.read_bytes", run.window())) {
    f.evidence.push_back(cite("/proc/PID/io, blkio", "{} were read from storage in the same time",
                              human_bytes(*read)));
  }
  if (usage)
    f.evidence.push_back(cite(run.series().source(kGroup, "memory.usage_bytes"), "{} of {} used",
                              human_bytes(*usage), human_bytes(*limit)));
  if (hits)
    f.evidence.push_back(cite(run.series().source(kGroup, "memory.limit_hits"),
                              "the limit was hit {} times", human_count(*hits)));
  if (const auto memory = pressure(run, "memory", "some", run.window())) {
    f.evidence.push_back(cite(pressure_source(run, "memory", "some"),
                              "tasks stood still for memory {} of the time", human_share(*memory)));
  }
  f.verify = fmt::format("grep refault {0}; sleep 10; grep refault {0}", stat);
  f.fix =
      "raise the group's memory limit above what is read in one pass, or read less at a time: "
      "smaller shards, O_DIRECT, posix_fadvise(DONTNEED) for "
      "what is not read again";
  f.undo = fmt::format("set the limit back to {}", human_bytes(*limit));
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  const auto limit = run.series().last(kGroup, "memory.limit_bytes", run.window());
  if (limit && *limit <= 0) return "the job's memory is not limited";
  const auto refaults = refault_bytes(run, run.window());
  if (!refaults || length(run.window()) == 0) return std::nullopt;
  const double rate = *refaults / seconds(length(run.window()));
  if (rate >= run.threshold("memcg_thrash.refault_mib") * static_cast<double>(kMiB))
    return std::nullopt;
  return fmt::format("{} of pages a second came back within their working set", human_bytes(rate));
}

constexpr std::string_view kNeeds[] = {"cgroup.memory"};
constexpr std::string_view kLookAlikes[] = {"io_throttle", "small_files"};
constexpr Threshold kThresholds[] = {
    {"memcg_thrash.refault_mib", 1, "MiB/s",
     "of refaults that make a window count: [own] tuned on healthy runs"},
    {"memcg_thrash.refault_share", 0.3, "share",
     "of what is read from storage: the catalogue's \"refault rate near read rate\", halved [own]"},
    {"memcg_thrash.full_share", 0.9, "share", "of the limit in use: [own]"},
    {"memcg_thrash.lost_share", 0.05, "share", "of step time: [own] tuned on healthy runs"},
};
constexpr std::string_view kSymptoms[] = {
    "the second epoch is as slow as the first",
    "the disk is busy reading although the data would fit into memory",
    "slower in the container than on the same machine outside",
};
constexpr Brings kBrings[] = {{"input_workers", explains_slow_input},
                              {"cold_cache", mostly_explains},
                              {"small_files", mostly_explains}};

}  // namespace

extern const Rule kMemcgThrash = {
    .id = "memcg_thrash",
    .title = "the cgroup's memory limit drops pages that are read again",
    .layer = Layer::kMemory,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "Cached file pages count against the job's memory limit. What is read again in every epoch "
        "is dropped before that, and read from the "
        "device over and over; nothing is killed, it is only slow.",
    .signals =
        "memory.stat: workingset_refault_file (v1: workingset_refault), memory.failcnt (v1), "
        "memory.events high and max (v2), usage against limit; "
        "read_bytes of the job; memory.pressure",
    .symptoms = kSymptoms,
    .verify =
        "grep refault memory.stat; sleep 10; grep refault memory.stat   # in the group's folder",
    .fix = "Raise the limit, or read with O_DIRECT or posix_fadvise, from smaller shards.",
    .check = check,
    .rule_out = rule_out,
    .brings = kBrings,
};

}  // namespace bedplate::doctor
