// bedplate data verify: every sample read, every checksum checked.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/data_options.h"
#include "cli/output.h"
#include "data/verify.h"

namespace bedplate::cli {
namespace {

struct Options {
  ShardsOptions shards;
  int threads = 0;
  bool json = false;
};

std::string as_json(const data::VerifyReport& report) {
  nlohmann::ordered_json out = {
      {"shards", report.shards},       {"samples", report.samples},
      {"bytes", report.bytes},         {"checked", report.samples - report.unchecked},
      {"unchecked", report.unchecked}, {"bad_samples", report.bad_samples},
      {"notes", report.notes}};
  out["bad"] = nlohmann::ordered_json::array();
  for (const data::DamagedSample& bad : report.bad) {
    nlohmann::ordered_json one = {{"shard", bad.shard}};
    if (bad.sample >= 0) {
      one["sample"] = bad.sample;
      one["offset"] = bad.offset;
    }
    one["what"] = to_utf8(bad.what);
    out["bad"].push_back(std::move(one));
  }
  return out.dump(1) + "\n";
}

// "All is well" is said only of what checksums say it of.
std::string verdict(const data::VerifyReport& report) {
  if (report.bad_samples > 0) return fmt::format("{} bad", report.bad_samples);
  if (report.unchecked == 0) return "all is well, by the checksum of each";
  const std::string_view read = "can be read; no checksum says whether they are what was written";
  if (report.unchecked == report.samples) return fmt::format("all {}", read);
  return fmt::format("{} are well by their checksums, the other {} {}",
                     report.samples - report.unchecked, report.unchecked, read);
}

std::string as_text(const data::VerifyReport& report) {
  std::string text;
  for (const data::DamagedSample& bad : report.bad) {
    text += bad.sample < 0 ? fmt::format("{}: {}\n", bad.shard, to_utf8(bad.what))
                           : fmt::format("{}: sample {}, from byte {} on: {}\n", bad.shard,
                                         bad.sample, bad.offset, to_utf8(bad.what));
  }
  const auto named = static_cast<std::int64_t>(report.bad.size());
  if (report.bad_samples > named) text += fmt::format("and {} more\n", report.bad_samples - named);
  return text + fmt::format("{} samples in {} shard{}, {}: {}\n", report.samples, report.shards,
                            report.shards == 1 ? "" : "s",
                            human_bytes(static_cast<double>(report.bytes)), verdict(report));
}

int verify(const Options& options) {
  Attended attended;
  return attended.run([&] {
    const auto report = data::verify(
        shard_urls(options.shards),
        {.dataset = {.format = options.shards.format}, .threads = threads_of(options.threads)},
        attended.watch());
    attended.hide_line();
    for (const std::string& note : report.notes) say(note);
    if (report.unchecked > 0) {
      say(
          fmt::format("{} samples have no checksum: they were read to their ends, and sizes and "
                      "structure are right as far as their format has any; for tars `bedplate data "
                      "index` makes checksums of what they hold now",
                      report.unchecked));
    }
    print(options.json ? as_json(report) : as_text(report));
    return report.bad_samples > 0 ? kExitFindings : kExitFine;
  });
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_shards_options(app, options->shards);
  add_threads_option(app, options->threads);
  app.add_flag("--json", options->json, "what was found, as JSON");
  return [options] { return verify(*options); };
}

}  // namespace

extern const Command kDataVerify = {
    .name = "data verify",
    .summary = "read every sample and check it; exit with 1 when one is bad",
    .examples =
        "bedplate data verify packed\n"
        "bedplate data verify packed tars --json",
    .declare = declare,
};

}  // namespace bedplate::cli
