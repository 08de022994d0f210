// bedplate data index: what lies beside shards and files so that they open at once.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/data_options.h"
#include "cli/output.h"
#include "data/sidecars.h"

namespace bedplate::cli {
namespace {

using data::SidecarState;

struct Options {
  ShardsOptions shards;
  int threads = 0;
  bool again = false;
  bool json = false;
};

std::string_view what_was_done(const data::SidecarMade& one) {
  if (!one.made) return "kept";
  if (one.before == SidecarState::kMissing) return "made";
  return one.before == SidecarState::kOfAnother
             ? "replaced: it was of another version of it, or damaged"
             : "made again";
}

std::string_view word_of(data::ListingMade::Before before) {
  using Before = data::ListingMade::Before;
  switch (before) {
    case Before::kNothing:
      return "made";
    case Before::kTheSame:
      return "kept";
    case Before::kAnother:
      break;
  }
  return "replaced";
}

int index(const Options& options) {
  Attended attended;
  return attended.run([&] {
    using Fresh = data::IndexOptions::Fresh;
    const auto made =
        data::make_indexes(shard_urls(options.shards),
                           {.dataset = {.format = options.shards.format},
                            .threads = threads_of(options.threads),
                            .fresh = options.again ? Fresh::kMadeAgain : Fresh::kKept},
                           attended.watch());
    attended.hide_line();
    nlohmann::ordered_json json = {{"indexes", nlohmann::ordered_json::array()},
                                   {"manifests", nlohmann::ordered_json::array()},
                                   {"listings", nlohmann::ordered_json::array()}};
    std::string text;
    for (const data::SidecarMade& one : made.indexes) {
      text += fmt::format("{}: {} samples, {} of index, {}\n", one.shard, one.samples,
                          human_bytes(static_cast<double>(one.bytes)), what_was_done(one));
      json["indexes"].push_back({{"shard", one.shard},
                                 {"samples", one.samples},
                                 {"index_bytes", one.bytes},
                                 {"made", one.made}});
    }
    for (const data::ManifestOfFolder& one : made.manifests) {
      text += fmt::format("{}: {} samples in {} shards, manifest written\n", one.folder,
                          one.samples, one.shards);
      json["manifests"].push_back(
          {{"folder", one.folder}, {"shards", one.shards}, {"samples", one.samples}});
    }
    for (const auto& [folder, listing] : made.listings) {
      const std::string_view done = word_of(listing.before);
      text += fmt::format("{}: {} files with {}, listing {}\n", folder, listing.files,
                          human_bytes(static_cast<double>(listing.bytes)), done);
      json["listings"].push_back({{"folder", folder},
                                  {"files", listing.files},
                                  {"bytes", listing.bytes},
                                  {"listing", done}});
    }
    print(options.json ? json.dump(1) + "\n" : text);
    return kExitFine;
  });
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_shards_options(app, options->shards);
  add_threads_option(app, options->threads);
  app.add_flag("--again", options->again, "make those anew that are up to date, too");
  app.add_flag("--json", options->json, "what was done, as JSON");
  return [options] { return index(*options); };
}

}  // namespace

extern const Command kDataIndex = {
    .name = "data index",
    .summary = "keep beside shards and loose files what lets them open at once",
    .examples =
        "bedplate data index tars\n"
        "bedplate data index tars/{000000..000000}.tar --again --json\n"
        "bedplate data index pictures --format files  # freezes the list of loose files",
    .declare = declare,
};

}  // namespace bedplate::cli
