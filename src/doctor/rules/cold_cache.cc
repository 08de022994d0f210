// The loop waits for reads that go to the disk or to a remote store because nobody has read those
// bytes here before; the next epoch finds them in a cache. That cache is the kernel's page cache,
// or bedplate.data's own (Dataset(cache=)). Also here, since it looks the same from the loop and
// the mending is a word in the same line: remote data that are read without any cache, a cache
// smaller than the data, and one that cannot be used.
//
// Ceiling: input wait as far as making batches was not user code, in proportion to the bytes that
// did not come from the cache: a warm cache gives back no more. Of pages the bytes are read_bytes
// against what was asked for; of bedplate's cache they are its own counters.
//
// What tells it from slow or throttled storage and from a memory limit is that the pages stay: the
// page cache grows by what is read, and nothing that was dropped comes back. Measured: 512 MiB read
// once, Cached +512 MiB; with POSIX_FADV_DONTNEED behind each read, +0.
#include <algorithm>

#include "base/text.h"
#include "doctor/cite.h"
#include "doctor/data_plane.h"
#include "doctor/rule.h"
#include "doctor/rules/conditions.h"
#include "doctor/rules/io_facts.h"

namespace bedplate::doctor {
namespace {

enum class Kind {
  kNone,      // nothing is cold
  kPages,     // the kernel's
  kBlocks,    // bedplate's own, on its first way through the data
  kTooSmall,  // the same, but what comes in drives out what will be needed
  kPassedBy,  // it cannot be used
  kNoCache,   // remote data without one
};

struct Cold {
  Kind kind = Kind::kNone;
  DataPlane data;  // of all processes that read by bedplate.data
  Fetches fetch;
  std::optional<double> stay;  // bytes that the page cache grew by
};

double read_mib_least(const RunView& run) {
  return run.threshold("cold_cache.read_mib") * static_cast<double>(kMiB);
}

// Of what was asked for, the part that came from a device. Mapped files are not asked for by calls:
// what is read for them is cold by itself.
std::optional<double> storage_share(const Fetches& f) {
  const double asked = std::max(f.read_bytes, f.loader_bytes);
  if (!(f.wall_ns > 0)) return std::nullopt;
  if (!(f.storage_bytes > 0)) return 0;
  return std::min(1.0, f.storage_bytes / std::max(asked, f.storage_bytes));
}

// Of what a loader asked its cache or its remote store for, the part that came from there.
std::optional<double> origin_share(const DataPlane& data) {
  const bool counted = data.counts_hits();
  const double origin = static_cast<double>(counted ? data.origin_bytes : data.remote_bytes);
  const double hit = counted ? static_cast<double>(data.hit_bytes) : 0;
  if (!(origin + hit > 0)) return std::nullopt;
  return origin / (origin + hit);
}

// Bytes that the page cache grew by during the window.
std::optional<double> cache_growth(const RunView& run, Window w) {
  const SeriesView& series = run.series();
  const auto before = series.last("host", "mem.cached_bytes", {run.whole().begin, w.begin + 1});
  const auto most = series.highest("host", "mem.cached_bytes", w);
  if (!before || !most) return std::nullopt;
  return std::max(0.0, *most - *before);
}

double refaults(const RunView& run, Window w) {
  return run.series().growth("cgroup/memory", "memory.refault_file_pages", w).value_or(0) * 4096;
}

// Half of what was read has stayed, and next to nothing of it came back.
bool pages_stay(const RunView& run, const Cold& cold) {
  const double read = cold.fetch.storage_bytes;
  return cold.stay && *cold.stay >= read * run.threshold("cold_cache.stay_share") &&
         refaults(run, run.window()) < read / 10;
}

// The data set as a whole fits the memory that its loader reads through.
bool window_holds_all(const DataPlane& data) {
  return data.set_bytes > 0 && data.window_bytes >= data.set_bytes;
}

Kind kind_of(const RunView& run, const Cold& cold) {
  const double time = seconds(length(run.window()));
  const DataPlane& data = cold.data;
  const double least = read_mib_least(run) * time;
  if (data.pass_throughs > data.hits && !data.cache.empty()) return Kind::kPassedBy;
  const bool cached = !data.cache.empty() || window_holds_all(data);
  if (cached && data.misses > 0 && static_cast<double>(data.origin_bytes) >= least) {
    const bool full = static_cast<double>(data.evictions) >=
                      static_cast<double>(data.misses) * run.threshold("cold_cache.evicted_share");
    return full ? Kind::kTooSmall : Kind::kBlocks;
  }
  if (!cached && static_cast<double>(data.remote_bytes) >= least && least > 0)
    return Kind::kNoCache;
  if (!(least > 0) || cold.fetch.storage_bytes < least || !pages_stay(run, cold))
    return Kind::kNone;
  return Kind::kPages;
}

Cold look(const RunView& run) {
  Cold cold;
  cold.data = together(data_planes(run, run.window()));
  cold.fetch = all_fetches(run);
  cold.stay = cache_growth(run, run.window());
  cold.kind = kind_of(run, cold);
  return cold;
}

// Of what a rank read during the window, the part that no cache had.
std::optional<double> cold_share(const RunView& run, const RankView& rank, Kind kind, Window w) {
  if (kind == Kind::kPassedBy) return 1;
  if (kind == Kind::kPages) return storage_share(fetches(run, rank, w));
  std::vector<DataPlane> of;
  if (auto own = data_plane_of(run, rank.pid, w)) of.push_back(*std::move(own));
  for (const int worker : rank.workers) {
    if (auto one = data_plane_of(run, worker, w)) of.push_back(*std::move(one));
  }
  return origin_share(together(of));
}

LostTime lost_to_it(const RunView& run, Kind kind) {
  const LostTime input = input_beyond_computing(run);
  return run.scaled(input, [&](const RankView& rank) {
    return run.timeline([&](Window w) { return cold_share(run, rank, kind, w); });
  });
}

std::string dataset_call(const DataPlane& data, std::string_view cache) {
  return fmt::format("Dataset(\"{}\", cache=\"{}\")", data.url.empty() ? "…" : data.url, cache);
}

// Of "memory:4GB,/nvme/cache:200GB,CACHE": the folder with its size. Empty: memory alone.
std::string folder_of(std::string_view cache) {
  for (const std::string_view part : split(cache, ',')) {
    const bool word = part == "CACHE" || part == "NO_CACHE" || part == "CACHE_PROMOTE";
    if (!part.empty() && !word && !part.starts_with("memory:")) return std::string(part);
  }
  return {};
}

// Braces are left to the shell: it makes of them the objects that the loader made.
std::string warm_command(const DataPlane& data, std::string_view folder) {
  const bool braces = data.url.find('{') != std::string::npos;
  return fmt::format("bedplate cache warm {} {}", shell_quote(folder),
                     data.url.empty() ? std::string("URL")
                     : braces         ? data.url
                                      : shell_quote(data.url));
}

std::string title(const Cold& cold) {
  const DataPlane& data = cold.data;
  const std::string share = human_share(origin_share(data).value_or(1));
  switch (cold.kind) {
    case Kind::kPages:
      return fmt::format("{} of {} that the loader read came from the disk, for the first time",
                         human_share(storage_share(cold.fetch).value_or(0)),
                         human_bytes(std::max({cold.fetch.read_bytes, cold.fetch.loader_bytes,
                                               cold.fetch.storage_bytes})));
    case Kind::kBlocks:
      return fmt::format("the cache is cold: {} of what was read came from the origin", share);
    case Kind::kTooSmall:
      return fmt::format("the cache {} is too small for the data: {} came from the origin",
                         data.cache, share);
    case Kind::kPassedBy:
      return fmt::format("the cache {} cannot be used", data.cache);
    case Kind::kNoCache:
      return fmt::format("every epoch reads {} anew: there is no cache{}",
                         data.url.empty() ? "remote data" : data.url,
                         data.window_bytes > 0
                             ? fmt::format(", and {} of memory hold the window that is mixed alone",
                                           human_bytes(static_cast<double>(data.window_bytes)))
                             : std::string());
    case Kind::kNone:
      break;
  }
  return {};
}

void add_page_evidence(const RunView& run, const Cold& cold, Finding& f) {
  f.evidence.push_back(
      cite("/proc/PID/io: read_bytes, rchar", "{} were read from storage, {} a second",
           human_bytes(cold.fetch.storage_bytes),
           human_bytes(cold.fetch.storage_bytes / std::max(1e-9, seconds(length(run.window()))))));
  f.evidence.push_back(cite(run.series().source("host", "mem.cached_bytes"),
                            "the page cache grew by {} meanwhile: what was read has stayed",
                            human_bytes(cold.stay.value_or(0))));
  if (const auto free = run.series().last("host", "mem.available_bytes", run.window()))
    f.evidence.push_back(cite(run.series().source("host", "mem.available_bytes"),
                              "{} of memory are still available", human_bytes(*free)));
  if (cold.fetch.major_faults >= 1)
    f.evidence.push_back(cite("/proc/PID/stat: majflt", "{} faults waited for the disk",
                              human_count(cold.fetch.major_faults)));
}

void add_block_evidence(const Cold& cold, Finding& f) {
  const DataPlane& data = cold.data;
  for (const DataLine& line : data_lines(data)) {
    if (line.label == "cache" || line.label == "window" || line.label == "past it" ||
        line.label == "remote")
      f.evidence.push_back({"bedplate.data: " + line.label, line.text});
  }
  if (data.make > 0) {
    f.evidence.push_back(
        cite("bedplate.data.Loader",
             "its threads waited for the store {} of the time that they made batches",
             human_share(static_cast<double>(data.store_wait) / static_cast<double>(data.make))));
  }
  if (data.set_bytes > 0)
    f.evidence.push_back(cite("bedplate.data.Dataset", "its shards have {}",
                              human_bytes(static_cast<double>(data.set_bytes))));
}

void advise(const Cold& cold, Finding& f) {
  const DataPlane& data = cold.data;
  const std::string folder = folder_of(data.cache);
  const std::string given = folder.empty() ? "/nvme/cache:200GB" : folder;
  const std::string bare = given.substr(0, given.rfind(':'));
  switch (cold.kind) {
    case Kind::kPages:
      f.verify =
          "grep -E 'Cached|MemAvailable' /proc/meminfo; grep read_bytes /proc/PID/io   # twice: "
          "both grow";
      f.fix =
          "read the data once before the job (cat FILES >/dev/null, or vmtouch -t FILES), or let "
          "the "
          "loader read further ahead: Loader(prefetch=, threads=), DataLoader(prefetch_factor=); a "
          "second epoch does not have this wait. Where the data lie on a network file system: "
          "Dataset(\"FOLDER/\", cache=\"/nvme/cache:200GB\"), after bedplate cache warm "
          "/nvme/cache:200GB FOLDER/";
      f.undo = "nothing needs to be undone";
      break;
    case Kind::kBlocks:
      f.verify = fmt::format("bedplate cache stat {}   # twice: misses grow", bare);
      f.fix = fmt::format(
          "fill the cache before the job: {}; later epochs, and later jobs that give the same "
          "folder, read from it",
          warm_command(data, given));
      if (folder.empty())
        f.fix = fmt::format(
            "memory alone is empty when a job begins; put a folder behind it, {}, and {}",
            dataset_call(data, data.cache.empty() ? given : data.cache + "," + given), f.fix);
      f.undo = fmt::format("bedplate cache drop {}", bare);
      break;
    case Kind::kTooSmall:
      f.verify = fmt::format("bedplate cache stat {}   # twice: evictions grow with misses", bare);
      f.fix = fmt::format(
          "give the cache room for the data{}: {}",
          data.set_bytes > 0
              ? fmt::format(", which have {}", human_bytes(static_cast<double>(data.set_bytes)))
              : std::string(),
          dataset_call(data, fmt::format("{}:{}GB", bare,
                                         std::max<std::int64_t>(
                                             1, data.set_bytes / 1'000'000'000 * 11 / 10 + 1))));
      f.undo = fmt::format("cache=\"{}\"", data.cache);
      break;
    case Kind::kPassedBy:
      f.verify = fmt::format("bedplate cache stat {}", bare);
      f.fix = "mend what keeps the cache from use (above), or give another folder: " +
              dataset_call(data, "/nvme/cache:200GB");
      f.undo = fmt::format("cache=\"{}\"", data.cache);
      break;
    case Kind::kNoCache:
      f.verify =
          "grep read_bytes /proc/PID/io; cat /proc/net/dev   # the network delivers in each epoch";
      f.fix = fmt::format(
          "keep the data on a disk of this machine: {}; and before the job, if its "
          "first epoch matters: {}",
          dataset_call(data, "/nvme/cache:200GB"), warm_command(data, "/nvme/cache:200GB"));
      f.undo = "leave cache= out; bedplate cache drop /nvme/cache";
      break;
    case Kind::kNone:
      break;
  }
}

// A part of the window in which the same reads came from the cache: the wait goes by itself.
bool was_seen_warm(const RunView& run, Kind kind) {
  for (const RankView& rank : run.ranks()) {
    for (const Window& w : run.grid()) {
      const Fetches read = fetches(run, rank, w);
      if (std::max(read.read_bytes, read.loader_bytes) > 0 &&
          cold_share(run, rank, kind, w).value_or(1) < 0.1)
        return true;
    }
  }
  return false;
}

std::optional<Finding> check(const RunView& run) {
  const Cold cold = look(run);
  if (cold.kind == Kind::kNone) return std::nullopt;
  const LostTime lost = lost_to_it(run, cold.kind);
  Finding f;
  f.gain_ceiling = run.share(lost);
  if (f.gain_ceiling < run.threshold("cold_cache.lost_share")) return std::nullopt;
  const bool counted = cold.kind != Kind::kPages;  // by the cache itself
  f.status = counted || was_seen_warm(run, cold.kind) ? Status::kEstablished : Status::kSupported;
  f.when = run.when(lost);
  f.scope.path = counted ? folder_of(cold.data.cache) : std::string();
  f.title = title(cold);
  if (counted) {
    add_block_evidence(cold, f);
  } else {
    add_page_evidence(run, cold, f);
  }
  f.evidence.push_back(cite("hook: fetch", "making a batch is {} blocked",
                            human_share(cold.fetch.share(cold.fetch.blocked_ns()))));
  advise(cold, f);
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  const Cold cold = look(run);
  if (cold.kind != Kind::kNone || !(cold.fetch.wall_ns > 0)) return std::nullopt;
  if (cold.fetch.storage_bytes < read_mib_least(run) * seconds(length(run.window())))
    return fmt::format("{} of what was read came from storage",
                       human_bytes(cold.fetch.storage_bytes));
  if (!cold.stay) return std::nullopt;
  return fmt::format("the page cache grew by {} while {} were read: they did not stay",
                     human_bytes(*cold.stay), human_bytes(cold.fetch.storage_bytes));
}

constexpr std::string_view kNeeds[] = {"hook", "proc.io", "host.memory"};
constexpr std::string_view kLookAlikes[] = {"io_throttle", "memcg_thrash",
                                            "readahead_amplification", "small_files"};
constexpr Threshold kThresholds[] = {
    {"cold_cache.read_mib", 1, "MiB/s", "from storage or the origin: [own] as memcg_thrash's"},
    {"cold_cache.stay_share", 0.5, "share",
     "of what was read that the page cache grew by: [own] measured 1.0 where pages stay, 0 where "
     "they are dropped"},
    {"cold_cache.evicted_share", 0.1, "share",
     "of the blocks fetched, as many evicted: [own] measured 0 where the data fit, 0.56 where they "
     "are four times the cache and shuffled"},
    {"cold_cache.lost_share", 0.05, "share", "of step time: [own] tuned on healthy runs"},
};
constexpr std::string_view kSymptoms[] = {
    "the first epoch is slow, later ones are not",
    "the first job of the day is slow",
    "fast on local disk, slow on network storage",
};
constexpr Brings kBrings[] = {{"input_workers", explains_slow_input}};

}  // namespace

extern const Rule kColdCache = {
    .id = "cold_cache",
    .title = "what is read is not in a cache yet",
    .layer = Layer::kIo,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "The first reading of any byte goes to the disk or to the remote store; the next one finds "
        "it in the page cache, or in the cache that a Dataset was given. Without a cache, or with "
        "one that is smaller than the data, every epoch is like the first.",
    .signals =
        "read_bytes and rchar of /proc/PID/io; Cached of /proc/meminfo, which grows by what stays; "
        "hits, misses, evictions and bytes that bedplate.data's cache counts, reads and latency of "
        "its remote stores",
    .symptoms = kSymptoms,
    .verify = "bedplate cache stat DIR; grep Cached /proc/meminfo   # twice, while it runs",
    .fix =
        "Read the data once before the job: bedplate cache warm DIR URL, or cat FILES >/dev/null. "
        "Remote data: Dataset(URL, cache=\"/nvme/cache:200GB\"), as large as the data.",
    .check = check,
    .rule_out = rule_out,
    .brings = kBrings,
};

}  // namespace bedplate::doctor
