// bedplate cache drop: takes data out of a cache.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/cache_options.h"
#include "cli/command.h"
#include "cli/output.h"

namespace bedplate::cli {
namespace {

struct Options {
  std::string folder;
  std::vector<std::string> urls;
  bool json = false;
};

int drop(const Options& options) {
  const auto dropped = store::drop_from_cache(cache_folder(options.folder), expanded(options.urls));
  if (options.json) {
    const nlohmann::ordered_json out = {{"blocks", dropped.blocks}, {"bytes", dropped.bytes}};
    print(out.dump(1) + "\n");
  } else {
    print(fmt::format("{} blocks dropped, {}\n", dropped.blocks,
                      human_bytes(static_cast<double>(dropped.bytes))));
  }
  return kExitFine;
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_cache_folder(app, options->folder);
  app.add_option("URL", options->urls,
                 "what is to leave: an object, all below a URL that ends in /, or a whole store; "
                 "without one, everything")
      ->expected(0, 1 << 20);
  app.add_flag("--json", options->json, "what was dropped, as JSON");
  return [options] { return drop(*options); };
}

}  // namespace

extern const Command kCacheDrop = {
    .name = "cache drop",
    .summary = "take data out of a cache, while jobs use it if need be",
    .examples =
        "bedplate cache drop /nvme/cache\n"
        "bedplate cache drop /nvme/cache s3://corpus/train/",
    .declare = declare,
};

}  // namespace bedplate::cli
