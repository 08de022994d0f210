// bedplate cache warm: brings data into a cache before a job asks for it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/units.h"
#include "cli/cache_options.h"
#include "cli/command.h"
#include "cli/output.h"

namespace bedplate::cli {
namespace {

struct Options {
  std::string cache;
  std::vector<std::string> urls;
  int threads = 4;
  bool json = false;
};

std::string as_json(const store::CacheWarm& warm) {
  nlohmann::ordered_json out = {{"objects", warm.objects},
                                {"bytes", warm.bytes},
                                {"fetched_bytes", warm.fetched_bytes},
                                {"stopped", warm.stopped}};
  out["failed"] = nlohmann::ordered_json::array();
  for (const auto& failure : warm.failed) out["failed"].push_back(to_utf8(failure));
  return out.dump(1) + "\n";
}

std::string as_text(const store::CacheWarm& warm) {
  return fmt::format("{} objects, {}: {} fetched, {}\n", warm.objects,
                     human_bytes(static_cast<double>(warm.bytes)),
                     human_bytes(static_cast<double>(warm.fetched_bytes)),
                     warm.stopped          ? "then stopped; the same command goes on from here"
                     : warm.failed.empty() ? "all of it is in the cache"
                                           : fmt::format("{} failures", warm.failed.size()));
}

int warm(const Options& options) {
  auto parsed = store::parse_cache(options.cache);
  cache_folder(options.cache);
  parsed.warn = [](const std::string& text) { say(text); };
  Attended attended;
  return attended.run([&] {
    const auto cache = store::Cache::open(parsed);
    const auto done =
        store::warm_cache(*cache, expanded(options.urls), {.threads = threads_of(options.threads)},
                          cache_watch(attended, "warming", "bytes"));
    attended.hide_line();
    for (const auto& failure : done.failed) say(to_utf8(failure));
    print(options.json ? as_json(done) : as_text(done));
    return done.failed.empty() ? kExitFine : kExitFindings;
  });
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("DIR", options->cache,
                 "the cache's folder, which is made when it is not there; DIR:200GB limits it")
      ->required();
  app.add_option(
         "URL", options->urls,
         "what to bring: an object, or all below a URL that ends in /; {000..127} and {a,b} name "
         "several")
      ->required()
      ->expected(1, 1 << 20);
  add_threads_option(app, options->threads);
  app.add_flag("--json", options->json, "what was done, as JSON");
  return [options] { return warm(*options); };
}

}  // namespace

extern const Command kCacheWarm = {
    .name = "cache warm",
    .summary = "bring data into a cache; what is there already is not fetched again",
    .examples =
        "bedplate cache warm /nvme/cache:200GB s3://corpus/train/\n"
        "bedplate cache warm /nvme/cache s3://corpus/train/000.tar --threads 16",
    .declare = declare,
};

}  // namespace bedplate::cli
