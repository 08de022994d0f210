// bedplate data index: the index of a tar, kept beside it.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/data_options.h"
#include "cli/output.h"
#include "data/tar_sidecars.h"

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
  return one.before == SidecarState::kOfAnother ? "replaced: it was of another archive, or damaged"
                                                : "made again";
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
    nlohmann::ordered_json json = {{"archives", nlohmann::ordered_json::array()},
                                   {"manifests", nlohmann::ordered_json::array()}};
    std::string text;
    for (const data::SidecarMade& one : made.archives) {
      text += fmt::format("{}: {} samples, {} of index, {}\n", one.archive, one.samples,
                          human_bytes(static_cast<double>(one.bytes)), what_was_done(one));
      json["archives"].push_back({{"archive", one.archive},
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
    .summary = "keep an index beside tars and a manifest in folders, so that they open at once",
    .examples =
        "bedplate data index tars\n"
        "bedplate data index tars/{000000..000000}.tar --again --json",
    .declare = declare,
};

}  // namespace bedplate::cli
