// bedplate bench: does this node's disk give what a job takes?
#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "bench/disk.h"
#include "bench/meta.h"
#include "bench/need.h"
#include "bench/render.h"
#include "cli/command.h"
#include "cli/data_options.h"
#include "cli/output.h"

namespace bedplate::cli {
namespace {

struct BenchOptions {
  std::string what;
  bench::DiskOptions disk;
  bench::MetaOptions meta;
  std::string path = ".";
  std::string engine = "auto";
  double seconds = 5;
  bool write = false;
  bool buffered = false;
  bool shared = false;
  bool json = false;
  bench::Need need;
  std::int64_t sample_bytes = 0;
  bench::DatasetSource dataset;
  // Of the options that were given.
  bool has_need = false;
  bool has_block = false;
  bool has_bytes = false;
};

bench::Watch watch_of(const Attended& attended) {
  return {.stopped = [&attended] { return attended.watch().stopped(); },
          .progress =
              [&attended, begin = real_clock().now()](std::string_view what, double share) {
                constexpr std::int64_t kWhole = 1000;
                const std::string phase = to_utf8(what);
                attended.watch().show({.phase = phase,
                                       .done = std::llround(share * kWhole),
                                       .of = kWhole,
                                       .elapsed = real_clock().now() - begin});
              }};
}

bench::Verdict verdict_of(BenchOptions& options, std::optional<bench::DatasetFacts>& facts) {
  bench::Verdict verdict;
  if (!options.has_need) return verdict;
  if (options.need.samples_per_second == 0)
    throw Error(Code::kInvalid, "what does one rank take? give --samples-per-second");
  if (!options.dataset.urls.empty()) {
    facts = bench::look_at_dataset(options.dataset);
    if (options.sample_bytes == 0) options.need.sample_bytes = facts->sample_bytes;
  }
  if (options.sample_bytes != 0)
    options.need.sample_bytes = static_cast<double>(options.sample_bytes);
  if (options.need.sample_bytes == 0)
    throw Error(Code::kInvalid, "how large is a sample? give --sample-bytes or --dataset");
  bench::check_need(options.need);
  verdict.need = options.need;
  return verdict;
}

int finish(const BenchOptions& options, const auto& result, const bench::Verdict& verdict,
           Attended& attended) {
  attended.hide_line();
  print(options.json ? bench::render_json(result, verdict) : bench::render_text(result, verdict));
  return verdict.fits() ? kExitFine : kExitFindings;
}

int disk(BenchOptions& options, Attended& attended) {
  std::optional<bench::DatasetFacts> facts;
  bench::Verdict verdict = verdict_of(options, facts);
  bench::DiskOptions& how = options.disk;
  how.folder = options.path;
  how.watch = watch_of(attended);
  how.length = static_cast<Nanos>(options.seconds * 1e9);
  how.engine = options.engine == "fio"       ? bench::DiskEngine::kFio
               : options.engine == "threads" ? bench::DiskEngine::kThreads
                                             : bench::DiskEngine::kBest;
  if (options.buffered) how.page_cache = bench::PageCache::kThrough;
  if (options.write) how.writes = bench::Writes::kMeasured;
  if (verdict.need && !options.has_block) how.block = bench::block_for(*verdict.need);
  bench::DiskResult result = bench::measure_disk(how);
  if (verdict.need) verdict.judgements.push_back(bench::judge_disk(*verdict.need, result));
  if (facts && facts->lie == bench::DatasetFacts::Samples::kFiles) {
    result.notes.emplace_back(
        "each sample of the data set is a file of its own: `bedplate bench meta` with the same "
        "options judges their opening");
  }
  return finish(options, result, verdict, attended);
}

int meta(BenchOptions& options, Attended& attended) {
  std::optional<bench::DatasetFacts> facts;
  bench::Verdict verdict = verdict_of(options, facts);
  bench::MetaOptions& how = options.meta;
  how.folder = options.path;
  how.watch = watch_of(attended);
  how.reserve = options.disk.reserve;
  if (options.shared) how.folders = bench::Folders::kShared;
  if (verdict.need && !options.has_bytes) how.bytes = std::llround(verdict.need->sample_bytes);
  const bench::MetaResult result = bench::measure_meta(how);
  if (verdict.need && !(facts && facts->lie == bench::DatasetFacts::Samples::kInShards))
    verdict.judgements.push_back(bench::judge_meta(*verdict.need, result));
  if (facts) {
    const auto figures = bench::measure_dataset(
        options.dataset, result.threads, static_cast<Nanos>(options.seconds * 1e9), how.watch);
    verdict.judgements.push_back(bench::judge_dataset(*verdict.need, figures, result.threads));
  }
  return finish(options, result, verdict, attended);
}

int run(BenchOptions& options) {
  if (!(options.seconds >= 0.01 && options.seconds <= 3600))
    throw Error(Code::kInvalid, "--seconds {}: give 0.01 to 3600", options.seconds);
  Attended attended;
  return attended.run(
      [&] { return options.what == "disk" ? disk(options, attended) : meta(options, attended); });
}

void add_size(CLI::App& app, const std::string& name, std::int64_t& into, const std::string& what) {
  app.add_option_function<std::string>(
         name,
         [name, &into](const std::string& text) {
           const auto size = parse_size(text);
           if (!size) {
             throw Error(Code::kInvalid, "{} {}: give a size like 128KiB or 1GiB", name,
                         to_utf8(text));
           }
           into = *size;
         },
         what)
      ->type_name("SIZE");
}

// What belongs to the other kind of measurement would be taken for heeded.
void refuse_what_is_not_used(const CLI::App& app, const BenchOptions& options) {
  constexpr std::string_view kOfDisk[] = {"--block", "--depth",    "--size",
                                          "--write", "--buffered", "--engine"};
  constexpr std::string_view kOfMeta[] = {"--files", "--bytes", "--threads", "--shared"};
  const bool of_disk = options.what == "disk";
  for (const std::string_view name : of_disk ? std::span<const std::string_view>(kOfMeta)
                                             : std::span<const std::string_view>(kOfDisk)) {
    if (app.get_option(std::string(name))->count() > 0) {
      throw Error(Code::kInvalid, "{} belongs to `bedplate bench {}`", name,
                  of_disk ? "meta" : "disk");
    }
  }
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  app.add_option("WHAT", options->what,
                 "disk: bandwidth, IOPS and latency; meta: making, finding and opening small files")
      ->required()
      ->check(CLI::IsMember({"disk", "meta"}));
  app.add_option("PATH", options->path, "a folder on what is to be measured; default: this one");
  add_size(app, "--block", options->disk.block,
           "disk: of each read, a multiple of 4 KiB; default 128KiB, with a need its sample");
  app.add_option("--depth", options->disk.depth, "disk: reads in flight; default 32")
      ->type_name("N");
  add_size(app, "--size", options->disk.size, "disk: of the test file; default 1GiB");
  app.add_flag("--write", options->write, "disk: measure writing as well");
  app.add_flag("--buffered", options->buffered,
               "disk: through the page cache, emptied before, in place of O_DIRECT");
  app.add_option("--engine", options->engine,
                 "disk: fio, threads (our own), or auto: fio where it is installed")
      ->type_name("NAME")
      ->check(CLI::IsMember({"auto", "fio", "threads"}));
  app.add_option("--files", options->meta.files, "meta: of all threads together; default 10000")
      ->type_name("N");
  add_size(app, "--bytes", options->meta.bytes,
           "meta: of each file; default 4KiB, with a need its sample");
  app.add_option("--threads", options->meta.threads,
                 "meta: at once; default: the processors, at most 16")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--shared", options->shared, "meta: all threads in one folder, not each in its own");
  app.add_option("--seconds", options->seconds,
                 "of each phase of disk, and of reading a --dataset; default 5")
      ->type_name("N");
  add_size(app, "--reserve", options->disk.reserve,
           "that must stay free on the file system; default 1GiB");
  app.add_option("--ranks", options->need.ranks, "the need: ranks on this node; default 1")
      ->type_name("N");
  app.add_option("--samples-per-second", options->need.samples_per_second,
                 "the need: samples that one rank takes in a second")
      ->type_name("N");
  add_size(app, "--sample-bytes", options->sample_bytes, "the need: of a sample, in the mean");
  app.add_option("--dataset", options->dataset.urls,
                 "the need: shards whose samples tell the size; may be repeated")
      ->type_name("URL")
      ->allow_extra_args(false);
  app.add_option("--format", options->dataset.format,
                 "of the data set; default: by the names of its shards; files: loose files")
      ->type_name("NAME");
  app.add_flag("--json", options->json, "as JSON");
  return [options, &app] {
    const auto given = [&](const char* name) { return app.get_option(name)->count() > 0; };
    refuse_what_is_not_used(app, *options);
    options->has_need = given("--ranks") || given("--samples-per-second") ||
                        given("--sample-bytes") || given("--dataset");
    options->has_block = given("--block");
    options->has_bytes = given("--bytes");
    return run(*options);
  };
}

}  // namespace

extern const Command kBench = {
    .name = "bench",
    .summary = "what a disk gives, and whether that is what a job needs",
    .examples =
        "bedplate bench disk --size 64MiB --seconds 0.2  # the disk of this folder, in a second\n"
        "bedplate bench disk --size 64MiB --ranks 8 --samples-per-second 200 --sample-bytes "
        "150KiB\n"
        "bedplate bench meta --files 2000  # making, finding, opening and removing small files\n"
        "bedplate bench meta --files 2000 --json | python3 -m json.tool  # for scripts",
    .declare = declare,
    .group = kGroupMachine,
};

}  // namespace bedplate::cli
