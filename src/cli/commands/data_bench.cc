// bedplate data bench: how fast a data set is read as a loader reads it.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/data_options.h"
#include "cli/output.h"
#include "data/loading_speed.h"

namespace bedplate::cli {
namespace {

using data::LoadingOptions;
using data::LoadingSpeed;

struct Options {
  ShardsOptions shards;
  std::string shuffle = "block";
  std::string verify = "first";
  std::string decode;
  double seconds = 10;
  int threads = 0;
  bool cold = false;
  bool json = false;
  LoadingOptions how;
};

// "224" or "224x320", height first.
data::ImageSpec picture_of(const std::string& text) {
  const auto parts = split(text, 'x');
  const auto height = to_int(parts.front());
  const auto width = to_int(parts.back());
  constexpr std::int64_t kMost = 65'536;
  if (parts.size() > 2 || !height || !width || *height < 1 || *width < 1 || *height > kMost ||
      *width > kMost)
    throw Error(Code::kInvalid, "--decode {} is no size: it is written 224, or 224x320",
                to_utf8(text));
  return {.height = static_cast<int>(*height),
          .width = static_cast<int>(*width),
          .fit = data::Fit::kRandomResizedCrop,
          .flip = 0.5};
}

LoadingOptions loading_options(const Options& given) {
  using Shuffle = LoadingOptions::Shuffle;
  if (!(given.seconds >= 0.01 && given.seconds <= 86'400))
    throw Error(Code::kInvalid, "--seconds {}: give 0.01 to 86400", given.seconds);
  LoadingOptions out = given.how;
  out.dataset.format = given.shards.format;
  out.shuffle = given.shuffle == "full"   ? Shuffle::kFull
                : given.shuffle == "none" ? Shuffle::kNone
                                          : Shuffle::kBlock;
  out.loader.verify = given.verify == "always"  ? data::Verify::kAlways
                      : given.verify == "never" ? data::Verify::kNever
                                                : data::Verify::kFirst;
  out.loader.threads = given.threads > 0 ? given.threads : std::min(8, threads_of(0));
  out.length = static_cast<Nanos>(given.seconds * kSecond);
  if (!given.decode.empty()) out.decode = picture_of(given.decode);
  if (given.cold) out.page_cache = LoadingOptions::PageCache::kDropped;
  if (given.cold && out.epochs > 1)
    throw Error(Code::kInvalid, "only the first epoch is cold: --cold reads one, not {}",
                out.epochs);
  if (out.loader.rank >= out.loader.world_size)
    throw Error(Code::kInvalid, "--rank {} of --world-size {}: ranks count from 0", out.loader.rank,
                out.loader.world_size);
  return out;
}

// Of the threads' time, in nanoseconds of wall time.
struct Shares {
  std::int64_t read;
  std::int64_t check;
  std::int64_t make;  // copying, decoding, drawing the samples' numbers
  std::int64_t idle;
};
Shares shares_of(const data::LoaderStats& stats) {
  return {stats.read_ns, stats.check_ns,
          std::max<std::int64_t>(0, stats.make_ns - stats.read_ns - stats.check_ns), stats.idle_ns};
}

std::string as_text(const LoadingSpeed& speed, const LoadingOptions& how) {
  const auto bytes = [](auto n) { return human_bytes(static_cast<double>(n)); };
  const auto& loader = how.loader;
  std::string text =
      fmt::format("{} samples in {} shard{} ({}); batches of {}, rank {} of {}, {} thread{}\n",
                  speed.dataset_samples, speed.shards, speed.shards == 1 ? "" : "s",
                  fmt::join(speed.formats, ", "), loader.batch_size, loader.rank, loader.world_size,
                  loader.threads, loader.threads == 1 ? "" : "s");
  text += fmt::format("fields {}{}\n\n", fmt::join(speed.fields, ", "),
                      speed.decoded.empty()
                          ? ", as they are stored"
                          : fmt::format("; decoded to {} x {}: {}", how.decode->height,
                                        how.decode->width, fmt::join(speed.decoded, ", ")));
  text += fmt::format("{:>12.0f} samples/s\n{:>12.0f} samples per CPU-second\n{:>12}/s as stored\n",
                      speed.samples_per_second(), speed.samples_per_cpu_second(),
                      bytes(speed.bytes_per_second()));
  text += fmt::format("{:>12} to the first batch, after {} to open the data set\n",
                      human_duration(speed.first_batch), human_duration(speed.opening));
  text +=
      fmt::format("{:>12} resident at most, mapped files included\n\n", bytes(speed.peak_memory));
  const Shares shares = shares_of(speed.stats);
  const auto share = [&](std::int64_t part, int of) {
    return fmt::format(
        "{:.0f} %", 100.0 * static_cast<double>(part) /
                        std::max(1.0, static_cast<double>(of) * static_cast<double>(speed.length)));
  };
  text += fmt::format(
      "threads: {} reading, {} checking, {} copying and decoding, {} waiting for "
      "the consumer\n",
      share(shares.read, loader.threads), share(shares.check, loader.threads),
      share(shares.make, loader.threads), share(shares.idle, loader.threads));
  text += fmt::format("consumer: {} waiting for batches, which it let go at once\n",
                      share(speed.stats.wait_ns, 1));
  text += fmt::format("{} samples in {}, {} epoch{} to the end; {} came from a disk\n",
                      speed.samples, human_duration(speed.length), speed.epochs,
                      speed.epochs == 1 ? "" : "s", bytes(speed.bytes_from_disk));
  return text;
}

std::string as_json(const LoadingSpeed& speed, const LoadingOptions& how, const Options& given) {
  const Shares shares = shares_of(speed.stats);
  const auto& loader = how.loader;
  const nlohmann::ordered_json out = {
      {"dataset",
       {{"samples", speed.dataset_samples}, {"shards", speed.shards}, {"formats", speed.formats}}},
      {"options",
       {{"batch_size", loader.batch_size},
        {"shuffle", given.shuffle},
        {"verify", given.verify},
        {"threads", loader.threads},
        {"rank", loader.rank},
        {"world_size", loader.world_size},
        {"fields", speed.fields},
        {"decoded", speed.decoded},
        {"files_dropped", speed.files_dropped}}},
      {"samples", speed.samples},
      {"batches", speed.stats.batches},
      {"epochs", speed.epochs},
      {"seconds", seconds(speed.length)},
      {"cpu_seconds", seconds(speed.cpu)},
      {"samples_per_second", speed.samples_per_second()},
      {"samples_per_cpu_second", speed.samples_per_cpu_second()},
      {"bytes_read", speed.stats.bytes},
      {"bytes_per_second", speed.bytes_per_second()},
      {"bytes_from_disk", speed.bytes_from_disk},
      {"opening_seconds", seconds(speed.opening)},
      {"first_batch_seconds", seconds(speed.first_batch)},
      {"peak_memory_bytes", speed.peak_memory},
      {"thread_seconds",
       {{"read", seconds(shares.read)},
        {"check", seconds(shares.check)},
        {"copy_and_decode", seconds(shares.make)},
        {"wait_for_consumer", seconds(shares.idle)}}},
      {"consumer_wait_seconds", seconds(speed.stats.wait_ns)}};
  return out.dump(1) + "\n";
}

int bench(const Options& options) {
  const LoadingOptions how = loading_options(options);
  Attended attended;
  return attended.run([&] {
    const LoadingSpeed speed =
        data::measure_loading(shard_urls(options.shards), how, attended.watch());
    attended.hide_line();
    if (options.cold) {
      say(fmt::format(
          "--cold: the page cache was emptied of {} file{} first; what the disk or its host has "
          "cached stays",
          speed.files_dropped, speed.files_dropped == 1 ? "" : "s"));
    }
    print(options.json ? as_json(speed, how, options) : as_text(speed, how));
    return kExitFine;
  });
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  LoadingOptions& how = options->how;
  how.loader.batch_size = 64;
  add_shards_options(app, options->shards);
  app.add_option("--batch-size", how.loader.batch_size, "samples of a batch; 64 if not given")
      ->type_name("N")
      ->check(whole_number_from(1));
  app.add_option("--shuffle", options->shuffle,
                 "block (as bedplate.data.Loader does if nothing is said), full, or none")
      ->type_name("HOW")
      ->check(CLI::IsMember({"block", "full", "none"}));
  app.add_option("--seed", how.seed, "of the shuffle; 0 if not given")->type_name("N");
  app.add_option("--field", how.fields, "read into batches this field only; may be repeated")
      ->type_name("NAME")
      ->allow_extra_args(false);
  app.add_option("--decode", options->decode,
                 "decode pictures to this size by random crops and mirrors, as in training: 224, "
                 "or 224x320")
      ->type_name("SIZE");
  app.add_option("--verify", options->verify,
                 "checksums: at the first reading of a sample (first), always, or never")
      ->type_name("WHEN")
      ->check(CLI::IsMember({"first", "always", "never"}));
  app.add_option("--rank", how.loader.rank, "read what this rank of a job would; 0 if not given")
      ->type_name("N")
      ->check(whole_number_from(0));
  app.add_option("--world-size", how.loader.world_size, "ranks of the job; 1 if not given")
      ->type_name("N")
      ->check(whole_number_from(1));
  app.add_option("--threads", options->threads,
                 "that make batches; 0: as many as there are processors, at most 8")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
  app.add_option("--seconds", options->seconds, "to read for, at most; 10 if not given")
      ->type_name("N");
  app.add_option("--epochs", how.epochs, "to read, at most; 0: as many as there is time for")
      ->type_name("N")
      ->check(whole_number_from(0));
  app.add_flag("--cold", options->cold,
               "take the files out of the page cache first (only these, no root needed), and read "
               "one epoch at most");
  app.add_flag("--json", options->json, "all of it as JSON");
  return [options] { return bench(*options); };
}

}  // namespace

extern const Command kDataBench = {
    .name = "data bench",
    .summary = "how fast a loader makes batches of it here, and where the time goes",
    .examples =
        "bedplate data bench packed --seconds 1\n"
        "bedplate data bench tars --cold --batch-size 2  # from the disk, one epoch\n"
        "bedplate data bench packed --rank 3 --world-size 8 --batch-size 1 --seconds 0.2 --json",
    .declare = declare,
};

}  // namespace bedplate::cli
