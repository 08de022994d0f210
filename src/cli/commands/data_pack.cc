// bedplate data pack: files, lines, arrays and other shards become shards.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/data_options.h"
#include "cli/output.h"
#include "cli/python_module.h"
#include "data/pack.h"

namespace bedplate::cli {
namespace {

using data::PackOptions;
using data::PackReport;
using End = PackReport::End;

struct Options {
  std::vector<std::string> places;  // the sources, then the destination
  std::string destination;          // for the help only
  std::string format = "packed";
  std::string sample;
  std::string tokens;
  std::string schema;
  std::string keys = "text";
  std::string labels;
  std::vector<std::string> fill;
  std::string on_bad = "raise";
  std::string shard_bytes = "256MiB";
  std::optional<std::uint64_t> shuffle;
  int threads = 0;
  bool overwrite = false;
  bool dry_run = false;
  bool json = false;
  PackOptions pack;
};

// "raise" or "skip:100" → how many may be bad.
std::int64_t most_bad(const std::string& text) {
  if (text == "raise") return 0;
  const auto number = text.starts_with("skip:") ? to_int(text.substr(5)) : std::nullopt;
  if (number && *number >= 0) return *number;
  throw Error(Code::kInvalid, "--on-bad is raise or skip:N, not '{}'", to_utf8(text));
}

PackOptions pack_options(const Options& given) {
  using Unit = data::PackSourceOptions::Unit;
  using Keys = data::PackSourceOptions::Keys;
  using Labels = data::PackSourceOptions::Labels;
  PackOptions out = given.pack;
  out.target = given.format == "packed" ? data::Target::kPacked : data::Target::kWebDataset;
  const auto shard_bytes = parse_size(given.shard_bytes);
  if (!shard_bytes)
    throw Error(Code::kInvalid, "--shard-bytes {} is no size; it is written as in 64MiB",
                to_utf8(given.shard_bytes));
  out.shard_bytes = *shard_bytes;
  out.shuffle = given.shuffle;
  out.most_bad = most_bad(given.on_bad);
  if (given.overwrite) out.existing = PackOptions::Existing::kOverwrite;
  out.source.threads = threads_of(given.threads);
  out.source.unit = given.sample == "name"   ? Unit::kName
                    : given.sample == "file" ? Unit::kFile
                    : given.sample == "line" ? Unit::kLine
                                             : Unit::kUsual;
  out.source.keys = given.keys == "bytes"  ? Keys::kBytes
                    : given.keys == "none" ? Keys::kNone
                                           : Keys::kText;
  if (!given.schema.empty()) out.source.schema = data::parse_schema(given.schema);
  if (!given.tokens.empty()) out.source.tokens = data::parse_dtype(given.tokens);
  out.source.labels = given.labels == "folder" ? Labels::kFolder
                      : given.labels == "none" ? Labels::kNone
                                               : Labels::kUsual;
  for (const std::string& text : given.fill) out.source.fill.push_back(data::parse_fill(text));
  return out;
}

std::string_view word_of(End end) {
  switch (end) {
    case End::kDone:
      return "done";
    case End::kNothingToDo:
      return "nothing to do";
    case End::kPlanned:
      return "planned";
    case End::kStopped:
    case End::kForPython:
      break;
  }
  return "stopped";
}

std::string as_json(const PackReport& report, const std::string& destination) {
  nlohmann::ordered_json out = {{"end", word_of(report.end)},
                                {"destination", to_utf8(destination)},
                                {"from", report.kind},
                                {"source_files", report.source_objects},
                                {"source_bytes", report.source_bytes},
                                {"samples", report.samples},
                                {"shards", report.shards},
                                {"shards_made", report.shards_made},
                                {"bytes", report.bytes},
                                {"skipped", report.skipped},
                                {"bad", report.bad},
                                {"notes", report.notes}};
  if (!report.classes.empty()) out["classes"] = report.classes;
  if (!report.schema.empty()) out["schema"] = nlohmann::ordered_json::parse(report.schema);
  return out.dump(1) + "\n";
}

std::string as_text(const PackReport& report, const std::string& destination) {
  const std::string place = to_utf8(destination);
  const std::string shards =
      fmt::format("{} sample{} in {} shard{}", report.samples, report.samples == 1 ? "" : "s",
                  report.shards, report.shards == 1 ? "" : "s");
  const std::string size = human_bytes(static_cast<double>(report.bytes));
  switch (report.end) {
    case End::kDone: {
      const std::int64_t earlier = report.shards - report.shards_made;
      return fmt::format("{}: {}, {}{}\n", place, shards, size,
                         earlier > 0 ? fmt::format("; {} were there already", earlier) : "");
    }
    case End::kNothingToDo:
      return fmt::format("{}: nothing to do, it is all there: {}, {}\n", place, shards, size);
    case End::kPlanned:
      return fmt::format("{}: would become {}, from {} files with {} of kind {}\n", place, shards,
                         report.source_objects,
                         human_bytes(static_cast<double>(report.source_bytes)), report.kind);
    case End::kStopped:
    case End::kForPython:
      break;
  }
  return "";
}

// The same command for the module that reads Parquet. Error{kInvalid} for options that it does not
// have: they would be taken for heeded.
std::vector<std::string> parquet_arguments(const Options& options) {
  const auto& source = options.pack.source;
  const std::pair<const char*, bool> others[] = {
      {"--format webdataset", options.format != "packed"},
      {"--sample", !options.sample.empty()},
      {"--tokens", !options.tokens.empty()},
      {"--length", source.length > 0},
      {"--column", !source.column.empty()},
      {"--keys", options.keys != "text"},
      {"--shard-format", !source.shard_format.empty()},
      {"--labels", !options.labels.empty()},
      {"--exclude", !source.exclude.empty()},
      {"--shuffle", options.shuffle.has_value()},
      {"--on-bad", options.on_bad != "raise"}};
  for (const auto& [name, given] : others) {
    if (given)
      throw Error(
          Code::kInvalid,
          "{} is not for Parquet, whose rows become packed shards as they are; what came of "
          "it can be packed again",
          name);
  }
  std::vector<std::string> out = {"--shard-bytes", options.shard_bytes, "--threads",
                                  fmt::format("{}", threads_of(options.threads))};
  if (options.pack.shard_samples > 0) {
    out.insert(out.end(), {"--shard-samples", fmt::format("{}", options.pack.shard_samples)});
  }
  if (!options.schema.empty()) out.insert(out.end(), {"--schema", options.schema});
  for (const std::string& fill : options.fill) out.insert(out.end(), {"--fill", fill});
  if (options.overwrite) out.emplace_back("--overwrite");
  if (options.dry_run) out.emplace_back("--dry-run");
  if (options.json) out.emplace_back("--json");
  out.emplace_back("--");
  out.insert(out.end(), options.places.begin(), options.places.end());
  return out;
}

void tell(const PackReport& report) {
  for (const std::string& note : report.notes) say(note);
  for (const std::string& bad : report.bad) say("skipped: " + to_utf8(bad));
  if (report.abandoned > 0)
    say(fmt::format("{} half-written files of a killed pack were removed", report.abandoned));
}

// No exit code: the source is what Python reads.
constexpr int kForPython = -1;

int pack_here(std::span<const std::string> sources, const std::string& destination,
              const PackOptions& how, const Options& options, Attended& attended) {
  const PackReport report = options.dry_run
                                ? data::plan_pack(sources, destination, how, attended.watch())
                                : data::pack(sources, destination, how, attended.watch());
  attended.hide_line();
  if (report.end == End::kForPython) return kForPython;
  tell(report);
  if (options.json) print(as_json(report, destination));
  if (report.end == End::kStopped) {
    say(report.shards > 0
            ? fmt::format("stopped: {} of {} shards were made now; the same command goes on",
                          report.shards_made, report.shards)
            : "stopped before anything was written");
  } else if (!options.json) {
    print(as_text(report, destination));
  }
  return kExitFine;
}

int pack(const Options& options) {
  if (options.places.size() < 2)
    throw Error(Code::kInvalid, "pack takes what is to be packed, and where to: SRC… DST");
  const std::string& destination = options.places.back();
  const auto sources = std::span(options.places).first(options.places.size() - 1);
  const PackOptions how = pack_options(options);
  const int code = [&] {
    Attended attended;
    return attended.run([&] { return pack_here(sources, destination, how, options, attended); });
  }();
  if (code != kForPython) return code;
  become_python({.name = "bedplate.data.parquet", .what = "Parquet"}, parquet_arguments(options));
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto& source = options->pack.source;
  app.add_option("SRC", options->places,
                 "what is to be packed: files, folders or any store's URLs; {000..127} and {a,b} "
                 "name several")
      ->expected(1, 1 << 20);
  app.add_option("DST", options->destination,
                 "the folder or URL that the shards go to; it is made if it is not there");
  app.add_option("--format", options->format,
                 "of the shards: packed (typed columns, a checksum a sample) or webdataset (tars)")
      ->type_name("NAME")
      ->check(CLI::IsMember({"packed", "webdataset"}));
  app.add_option(
         "--from", source.kind,
         "what SRC is: files, shards, jsonl, text, tokens, npy or parquet (read by the Python "
         "package, with pyarrow); otherwise its names tell")
      ->type_name("KIND");
  app.add_option("--sample", options->sample,
                 "what one sample is: name (files that share a name up to its first dot), file, or "
                 "line")
      ->type_name("UNIT")
      ->check(CLI::IsMember({"name", "file", "line"}));
  app.add_option("--tokens", options->tokens,
                 "SRC are files of nothing but tokens of this type: u16, u32, … (a .npy says it "
                 "itself)")
      ->type_name("DTYPE");
  app.add_option("--length", source.length, "tokens, or numbers of a .npy, that make one sample")
      ->type_name("N")
      ->check(whole_number_from(1));
  app.add_option("--schema", options->schema,
                 "types of the columns, as in tokens:u16[2048],text:utf8, with -1 for any number; "
                 "otherwise the values tell")
      ->type_name("COLUMNS");
  app.add_option("--column", source.column, "name of the only column of text, tokens and arrays")
      ->type_name("NAME");
  app.add_option("--keys", options->keys,
                 "packed shards: the samples' names are kept as text, as bytes, or not (none)")
      ->type_name("HOW")
      ->check(CLI::IsMember({"text", "bytes", "none"}));
  app.add_option("--labels", options->labels,
                 "loose files: folder (the number of the folder below SRC, by name, in the column "
                 "cls) or none; folder if not given and SRC is pictures in folders side by side")
      ->type_name("HOW")
      ->check(CLI::IsMember({"folder", "none"}));
  app.add_option("--exclude", source.exclude,
                 "leave out files whose name or path matches, as '*.db' or 'old/'; may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  app.add_option("--fill", options->fill,
                 "JSON lines: what stands for a name that a line lacks or has as null, as in "
                 "label=-1; Parquet: for null; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--shard-format", source.shard_format,
                 "format of the shards in SRC, where their names do not tell")
      ->type_name("NAME");
  app.add_option("--shard-bytes", options->shard_bytes,
                 "size of a shard, about: 256MiB if not given")
      ->type_name("SIZE");
  app.add_option("--shard-samples", options->pack.shard_samples,
                 "samples of a shard, exactly, instead of its size")
      ->type_name("N")
      ->check(whole_number_from(1));
  app.add_option("--shuffle", options->shuffle,
                 "in an order that this number decides, instead of the source's")
      ->type_name("SEED");
  app.add_option("--on-bad", options->on_bad,
                 "a sample that cannot be read ends the pack (raise), or is left out and named, up "
                 "to N of them (skip:N)")
      ->type_name("WHAT");
  add_threads_option(app, options->threads);
  app.add_flag("--overwrite", options->overwrite,
               "remove the shards of an earlier pack in DST first");
  app.add_flag("--dry-run", options->dry_run, "say what would be made, write nothing");
  app.add_flag("--json", options->json, "what was made, as JSON");
  return [options] { return pack(*options); };
}

}  // namespace

extern const Command kDataPack = {
    .name = "data pack",
    .summary = "pack files, lines, arrays or other shards into shards; killed, it goes on",
    .examples =
        "bedplate data pack pictures/ packed\n"
        "bedplate data pack pictures/ tars --format webdataset --shuffle 7  # in a mixed order\n"
        "bedplate data pack imagefolder/ labelled --labels folder  # classes are the folders in "
        "it\n"
        "bedplate data pack corpus.jsonl lines --shard-samples 1000\n"
        "bedplate data pack tokens.bin tokens --tokens u16 --length 2048\n"
        "bedplate data pack pictures/ packed --dry-run --json  # what would be made",
    .declare = declare,
    .usage = "SRC… DST",
};

}  // namespace bedplate::cli
