// The kernel reads far more than the job asked for: small samples at random places of large files
// bring a read-ahead window each, which is thrown away unread. By mmap it is the default: a major
// fault reads the whole window around it (mm/filemap.c, do_sync_mmap_readahead), and goes on doing
// so as long as neighbouring pages are used too; by read() it begins with the second of two reads
// side by side, such as a header and its record (mm/readahead.c, get_init_ra_size: two to four
// times the read). RAID, LVM and cloud disks come with windows of megabytes.
//
// Ceiling: input wait as far as making batches was not user code, in proportion to what was read
// in vain: the device would have had so much less to do.
//
// Measured, kernel 6.18, a window of 8 MiB, a cold file of 512 MiB, 100 places:
//
//                                read    major, minor   read/used   rule: at most, probably
//   mapped, 16 KiB each       385 MiB      56      63       247          93, 830
//   mapped, 1 MiB each        417 MiB      58    1713       4.2         3.9, 60
//   mapped, from end to end   512 MiB       1     663       1.0        (12, 197): no jumps
//   calls, 512 B and 64 KiB    24 MiB       0       0       4.0         4.0, 4.0
//   calls, from end to end    512 MiB       0    1025       1.0         0.9, 1.0
//
// So minor faults bound what is used (fault_around_bytes, 64 KiB each) only where the job jumps:
// reading on, a fault maps a whole large folio, but then hardly any page is waited for.
#include <algorithm>
#include <cmath>

#include "doctor/cite.h"
#include "doctor/rule.h"
#include "doctor/rules/conditions.h"
#include "doctor/rules/io_facts.h"

namespace bedplate::doctor {
namespace {

constexpr double kPage = 4096;
constexpr double kFaultAround = 65536;
constexpr double kUsualWindow = 131072;

struct Amplified {
  Fetches fetch;
  double most = 0;    // bytes that were asked for, at most
  double likely = 0;  // and probably
  std::string device;
  std::optional<double> window;  // its read-ahead, bytes

  double calls() const { return std::max(fetch.read_bytes, fetch.loader_bytes); }
  double surely() const { return most > 0 ? fetch.storage_bytes / most : 0; }
  double probably() const { return likely > 0 ? fetch.storage_bytes / likely : 0; }
  // Each window was brought by a fault of its own.
  bool jumps() const {
    return window && fetch.major_faults > 0 &&
           fetch.storage_bytes <= fetch.major_faults * 2 * *window;
  }
  // Next to none was: by calls, or by mapping from end to end.
  bool hardly_faults() const {
    return fetch.major_faults * window.value_or(kUsualWindow) < fetch.storage_bytes / 4;
  }
};

double asked_at_most(const Fetches& f) {
  return std::max(f.read_bytes, f.loader_bytes) + f.major_faults * kPage +
         f.minor_faults * kFaultAround;
}

double asked_probably(const Fetches& f) {
  return std::max(f.read_bytes, f.loader_bytes) + (f.major_faults + f.minor_faults) * kPage;
}

// The disk that was read from most.
std::string busiest(const RunView& run) {
  std::string device;
  double most = 0;
  for (const std::string_view subject : run.series().subjects("disk/")) {
    const double read = run.series().growth(subject, "read_bytes", run.window()).value_or(0);
    if (read <= most) continue;
    most = read;
    device = subject.substr(5);
  }
  return device;
}

Amplified look(const RunView& run) {
  Amplified out;
  out.fetch = all_fetches(run);
  out.most = asked_at_most(out.fetch);
  out.likely = asked_probably(out.fetch);
  out.device = busiest(run);
  out.window = run.series().last("disk/" + out.device, "read_ahead_bytes", run.window());
  return out;
}

bool reads_enough(const RunView& run, const Amplified& found) {
  const double rate = found.fetch.storage_bytes / std::max(1e-9, seconds(length(run.window())));
  return rate >= run.threshold("readahead_amplification.read_mib") * static_cast<double>(kMiB);
}

// established, supported, or not at all.
std::optional<Status> sure(const RunView& run, const Amplified& found) {
  if (!reads_enough(run, found)) return std::nullopt;
  const double times = run.threshold("readahead_amplification.times");
  const double likely = run.threshold("readahead_amplification.times_likely");
  if (found.jumps() && found.surely() >= times) return Status::kEstablished;
  if (found.jumps() && found.probably() >= likely) return Status::kSupported;
  // More would be a mapping that is read beside the calls.
  const double by_calls = found.calls() > 0 ? found.fetch.storage_bytes / found.calls() : 0;
  if (found.hardly_faults() && by_calls >= times && by_calls <= likely) return Status::kSupported;
  return std::nullopt;
}

// What is said of it.
double times_of(const RunView& run, const Amplified& found) {
  if (!found.jumps()) return found.fetch.storage_bytes / std::max(1.0, found.calls());
  return found.surely() >= run.threshold("readahead_amplification.times") ? found.surely()
                                                                          : found.probably();
}

LostTime lost_to_it(const RunView& run) {
  const LostTime input = input_beyond_computing(run);
  return run.scaled(input, [&](const RankView& rank) {
    return run.timeline([&](Window w) -> std::optional<double> {
      const Fetches f = fetches(run, rank, w);
      if (!(f.storage_bytes > 0)) return std::nullopt;
      return std::max(0.0, 1 - asked_probably(f) / f.storage_bytes);
    });
  });
}

std::string times_text(double times) {
  return times < 10 ? fmt::format("{:.1f}", times) : human_count(std::round(times));
}

void add_evidence(const RunView& run, const Amplified& found, Finding& f) {
  const Fetches& fetch = found.fetch;
  f.evidence.push_back(cite("/proc/PID/io: read_bytes, rchar",
                            "{} came from storage, {} by read calls",
                            human_bytes(fetch.storage_bytes),
                            human_bytes(std::max(fetch.read_bytes, fetch.loader_bytes))));
  if (fetch.major_faults > 0) {
    f.evidence.push_back(cite("/proc/PID/stat: majflt, minflt",
                              "{} pages of mapped files were waited for, {} from storage for each; "
                              "{} faults found their page in memory",
                              human_count(fetch.major_faults),
                              human_bytes(fetch.storage_bytes / fetch.major_faults),
                              human_count(fetch.minor_faults)));
  }
  if (found.window)
    f.evidence.push_back(cite(run.series().source("disk/" + found.device, "read_ahead_bytes"),
                              "{} reads {} ahead", found.device, human_bytes(*found.window)));
  const auto reads = run.series().growth("disk/" + found.device, "reads", run.window());
  const auto bytes = run.series().growth("disk/" + found.device, "read_bytes", run.window());
  if (reads && bytes && *reads > 0)
    f.evidence.push_back(cite(run.series().source("disk/" + found.device, "reads"),
                              "its requests have {} on average", human_bytes(*bytes / *reads)));
  f.evidence.push_back(cite("hook: fetch", "making a batch is {} blocked",
                            human_share(fetch.share(fetch.blocked_ns()))));
}

void advise(const Amplified& found, Finding& f) {
  const std::string device = found.device.empty() ? "DEVICE" : found.device;
  f.verify = fmt::format(
      "cat /sys/block/{}/queue/read_ahead_kb; grep -E 'rchar|read_bytes' /proc/PID/io   # twice; "
      "PID: who "
      "makes the batches",
      device);
  const std::string in_place =
      found.jumps()
          ? "tell the kernel that the order is random: mapping.madvise(mmap.MADV_RANDOM) (of a "
            "numpy.memmap: array._mmap.madvise(mmap.MADV_RANDOM)), or os.pread in place of the "
            "mapping"
          : "tell the kernel that the order is random: os.posix_fadvise(fd, 0, 0, "
            "os.POSIX_FADV_RANDOM) after opening";
  f.fix = fmt::format(
      "{}; or, for all programs, a smaller window: blockdev --setra 256 /dev/{} (128 KiB). Better, "
      "read whole blocks: bedplate data pack SRC SHARDS/, then "
      "bedplate.data.Loader(Dataset(\"SHARDS/\"), "
      "BATCH, shuffle=\"block\") shuffles without jumping",
      in_place, device);
  f.undo = found.window
               ? fmt::format("blockdev --setra {:.0f} /dev/{}", *found.window / 512, device)
               : std::string("take the advice out again");
}

std::optional<Finding> check(const RunView& run) {
  const Amplified found = look(run);
  const auto status = sure(run, found);
  if (!status) return std::nullopt;
  const LostTime lost = lost_to_it(run);
  Finding f;
  f.gain_ceiling = run.share(lost);
  if (f.gain_ceiling < run.threshold("readahead_amplification.lost_share")) return std::nullopt;
  f.status = *status;
  f.when = run.when(lost);
  f.scope.device = found.device;
  f.title = fmt::format("the device reads {}{} times what the job asks for",
                        *status == Status::kEstablished ? "at least " : "about ",
                        times_text(times_of(run, found)));
  add_evidence(run, found, f);
  advise(found, f);
  return f;
}

std::optional<std::string> rule_out(const RunView& run) {
  const Amplified found = look(run);
  if (!(found.fetch.wall_ns > 0) || sure(run, found)) return std::nullopt;
  if (!reads_enough(run, found))
    return fmt::format("only {} came from storage", human_bytes(found.fetch.storage_bytes));
  return fmt::format("{} came from storage, {} may have been asked for",
                     human_bytes(found.fetch.storage_bytes), human_bytes(found.most));
}

constexpr std::string_view kNeeds[] = {"hook", "proc.io", "proc.cpu"};
constexpr std::string_view kLookAlikes[] = {"memcg_thrash", "small_files", "io_throttle"};
constexpr Threshold kThresholds[] = {
    {"readahead_amplification.times", 2.5, "times",
     "what was asked for: [own] measured 0.9 to 1.2 where nothing is read in vain, 3.9 and more "
     "where it is"},
    {"readahead_amplification.times_likely", 10, "times",
     "a page a fault, where each window was brought by a fault of its own; and the most that "
     "read calls alone bring about: the catalogue's figure"},
    {"readahead_amplification.read_mib", 1, "MiB/s", "from storage: [own] as memcg_thrash's"},
    {"readahead_amplification.lost_share", 0.05, "share",
     "of step time: [own] tuned on healthy runs"},
};
constexpr std::string_view kSymptoms[] = {
    "the disk reads at full speed and few samples come",
    "slower with mmap than by reading the file whole",
    "fast on one machine's disk, slow on another's",
};
constexpr Brings kBrings[] = {{"input_workers", explains_slow_input},
                              {"cold_cache", mostly_explains},
                              {"memcg_thrash", mostly_explains}};

}  // namespace

extern const Rule kReadaheadAmplification = {
    .id = "readahead_amplification",
    .title = "read-ahead reads what nobody asked for",
    .layer = Layer::kIo,
    .needs = kNeeds,
    .look_alikes = kLookAlikes,
    .thresholds = kThresholds,
    .explanation =
        "Samples are small and lie at random places of large files. For each of them the kernel "
        "reads its whole read-ahead window, from 128 KiB to several MiB, and what is not used of "
        "it delays the next sample.",
    .signals =
        "read_bytes and rchar of /proc/PID/io, major and minor faults (/proc/PID/stat) of whoever "
        "makes the batches; read_ahead_kb of the device that is read from; time of making a batch "
        "that is blocked (hook)",
    .symptoms = kSymptoms,
    .verify =
        "cat /sys/block/DEVICE/queue/read_ahead_kb; grep -E 'rchar|read_bytes' /proc/PID/io   # "
        "twice",
    .fix =
        "MADV_RANDOM on the mapping, POSIX_FADV_RANDOM on the file, blockdev --setra for the "
        "device; or "
        "shards that are read by whole blocks: bedplate data pack and bedplate.data.Loader.",
    .check = check,
    .rule_out = rule_out,
    .brings = kBrings,
};

}  // namespace bedplate::doctor
