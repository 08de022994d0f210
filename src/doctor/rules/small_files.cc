// Each sample is a small file (or many), so making a batch is opening, reading and closing rather
// than computing: per file a path walk, an inode, a descriptor and a round trip to the file system,
// for a few KiB. On NFS `import torch` takes 20 s in place of 2 s for 2,339 opens (stas00,
// ml-engineering).
//
// Ceiling: of the input wait the part of making batches that was kernel time or blocked, and for
// each file opened what Python itself needs to open, read and close one. With the samples in a few
// large files that is what vanishes; the decoding stays. A slow decoder is told by its user time, a
// throttle or a refaulting cache by its own counters.
#include <algorithm>
#include <cmath>

#include "doctor/cite.h"
#include "doctor/input_facts.h"
#include "doctor/rule.h"
#include "doctor/rules/conditions.h"

namespace bedplate::doctor {
namespace {

struct Storm {
  Fetches fetch;
  double files_a_batch = 0;
  double bytes_a_file = 0;
  double files_a_second = 0;
  double python_ns = 0;  // in open(), read() and close() outside the kernel
};

Storm look(const RunView& run) {
  Storm storm;
  storm.fetch = all_fetches(run);
  const double files = storm.fetch.files;
  if (!(files > 0) || !(storm.fetch.batches > 0) || length(run.window()) == 0) return storm;
  storm.files_a_batch = files / storm.fetch.batches;
  storm.bytes_a_file = storm.fetch.read_bytes / files;
  storm.files_a_second = files / seconds(length(run.window()));
  storm.python_ns =
      std::min(storm.fetch.user_ns, files * run.threshold("small_files.python_us") * 1e3);
  return storm;
}

// Share of making batches that belongs to the files rather than to what is done with them.
double files_share(const RunView& run, const Fetches& f) {
  const double python = std::min(f.user_ns, f.files * run.threshold("small_files.python_us") * 1e3);
  return f.share(f.system_ns + f.blocked_ns() + python);
}

LostTime lost_to_it(const RunView& run) {
  return run.scaled(run.phase_time(probe::Phase::kInputWait), [&](const RankView& rank) {
    return run.timeline([&](Window w) -> std::optional<double> {
      const Fetches f = fetches(run, rank, w);
      if (!(f.wall_ns > 0)) return std::nullopt;
      return files_share(run, f);
    });
  });
}

bool is_storm(const RunView& run, const Storm& storm) {
  return storm.files_a_batch >= run.threshold("small_files.files_a_batch") &&
         storm.bytes_a_file < run.threshold("small_files.kib_a_file") * static_cast<double>(kKiB) &&
         files_share(run, storm.fetch) >= run.threshold("small_files.fetch_share");
}

std::string a_path(const RunView& run) {
  const auto notes = run.notes("open_path");
  return notes.empty() ? std::string() : notes.front()->value;
}

std::optional<Finding> check(const RunView& run) {
  const Storm storm = look(run);
  if (!is_storm(run, storm)) return std::nullopt;
  const LostTime lost = lost_to_it(run);
  Finding f;
  f.gain_ceiling = run.share(lost);
  if (f.gain_ceiling < run.threshold("small_files.lost_share")) return std::nullopt;
  f.status = Status::kEstablished;
  f.when = run.when(lost);
  f.scope.path = a_path(run);
  f.title = fmt::format("each batch opens {} of {}",
                        counted(std::round(storm.files_a_batch), "file", "small files"),
                        human_bytes(storm.bytes_a_file));
  f.evidence.push_back(cite("hook: open", "{} opened a second, {} a batch",
                            counted(std::round(storm.files_a_second), "file", "files"),
                            human_count(std::round(storm.files_a_batch))));
  if (!f.scope.path.empty()) f.evidence.push_back(cite("hook: open", "such as {}", f.scope.path));
  if (storm.fetch.reads > 0) {
    f.evidence.push_back(cite("/proc/PID/io: rchar, syscr", "{} a file, {} a read call",
                              human_bytes(storm.bytes_a_file),
                              human_bytes(storm.fetch.read_bytes / storm.fetch.reads)));
  }
  f.evidence.push_back(cite("hook: fetch",
                            "making a batch is {} kernel time, {} blocked and {} user code",
                            human_share(storm.fetch.share(storm.fetch.system_ns)),
                            human_share(storm.fetch.share(storm.fetch.blocked_ns())),
                            human_share(storm.fetch.share(storm.fetch.user_ns))));
  f.verify = "strace -c -f -e trace=openat,read,close,newfstatat COMMAND   # a copy of the run";
  f.fix =
      "put the samples into a few large files and read those: bedplate data pack FOLDER SHARDS/, "
      "then bedplate.data.Loader(Dataset(\"SHARDS/\"), …) in place of the DataLoader; or tar, "
      "WebDataset, Parquet, one numpy array; on network storage copy them to local disk first";
  f.undo = "read the single files again";
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  const Storm storm = look(run);
  if (!(storm.fetch.batches > 0)) return std::nullopt;
  if (storm.files_a_batch < run.threshold("small_files.files_a_batch")) {
    return fmt::format("a batch opens {}", counted(storm.files_a_batch, "file", "files"));
  }
  if (storm.bytes_a_file >= run.threshold("small_files.kib_a_file") * static_cast<double>(kKiB)) {
    return fmt::format("the files hold {} each", human_bytes(storm.bytes_a_file));
  }
  const double share = files_share(run, storm.fetch);
  if (share >= run.threshold("small_files.fetch_share")) return std::nullopt;
  return fmt::format("opening and reading is {} of making a batch", human_share(share));
}

constexpr std::string_view kNeeds[] = {"hook", "proc.io"};
constexpr std::string_view kLookAlikes[] = {"memcg_thrash", "io_throttle"};
constexpr Threshold kThresholds[] = {
    {"small_files.kib_a_file", 64, "KiB", "read a file: [own], the catalogue's figure"},
    {"small_files.files_a_batch", 8, "files", "opened a batch: [own]"},
    {"small_files.fetch_share", 0.3, "share",
     "of making a batch that is kernel, blocked, or Python's open and close: [own] tuned on "
     "healthy runs"},
    {"small_files.python_us", 15, "µs",
     "of Python's own work to open, read and close a file: [own] measured with CPython 3.8 to "
     "3.13"},
    {"small_files.lost_share", 0.05, "share", "of step time: [own] tuned on healthy runs"},
};
constexpr std::string_view kSymptoms[] = {
    "few MB a second from a fast disk",
    "workers spend their time in the kernel",
    "fast on local disk, slow on network storage",
    "GPU at 30 %",
};
constexpr Brings kBrings[] = {{"input_workers", explains_slow_input},
                              {"cold_cache", mostly_explains}};

}  // namespace

extern const Rule kSmallFiles = {
    .id = "small_files",
    .title = "each batch opens many small files",
    .layer = Layer::kIo,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "Samples are single small files. Opening and closing them takes longer than reading them, "
        "and the more so the further away the file "
        "system is.",
    .signals =
        "files opened by Python while making a batch, kernel, blocked and user time of it (hook); "
        "rchar and syscr of /proc/PID/io",
    .symptoms = kSymptoms,
    .verify = "strace -c -f -e trace=openat,read,close,newfstatat COMMAND   # a copy of the run",
    .fix =
        "Shards: bedplate data pack and bedplate.data.Loader; tar, WebDataset, Parquet, numpy; "
        "local "
        "copies of what lies on network storage.",
    .check = check,
    .rule_out = rule_out,
    .brings = kBrings,
};

}  // namespace bedplate::doctor
