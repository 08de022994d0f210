// bedplate cache stat: what lies in a cache, and what it was good for.
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

using store::CacheCounters;
using store::CacheReport;

struct Options {
  std::string folder;
  bool json = false;
};

std::string bytes(std::int64_t n) { return human_bytes(static_cast<double>(n)); }

nlohmann::ordered_json as_json(const CacheReport& report) {
  const CacheCounters& counters = report.counters;
  nlohmann::ordered_json out = {
      {"folder", report.folder.string()}, {"cap_bytes", report.cap_bytes},
      {"disk_bytes", report.disk_bytes},  {"block_bytes", report.block_bytes},
      {"blocks", report.blocks},          {"bytes", report.bytes}};
  out["origins"] = nlohmann::ordered_json::array();
  for (const auto& origin : report.origins)
    out["origins"].push_back(
        {{"url", origin.url}, {"blocks", origin.blocks}, {"bytes", origin.bytes}});
  out["since_made"] = {{"hits", counters.hits},
                       {"hit_bytes", counters.hit_bytes},
                       {"memory_hits", counters.memory_hits},
                       {"misses", counters.misses},
                       {"origin_reads", counters.origin_reads},
                       {"origin_bytes", counters.origin_bytes},
                       {"filled_bytes", counters.filled_bytes},
                       {"evictions", counters.evictions},
                       {"evicted_bytes", counters.evicted_bytes},
                       {"waits", counters.waits},
                       {"fill_failures", counters.fill_failures},
                       {"bad_checksums", counters.bad_checksums},
                       {"pass_throughs", counters.pass_throughs},
                       {"repairs", counters.repairs}};
  return out;
}

std::string contents(const CacheReport& report, std::string_view where) {
  std::string text = fmt::format("{}: {} on disk, at most {}; {} blocks of up to {} with {}\n",
                                 where, bytes(report.disk_bytes), bytes(report.cap_bytes),
                                 report.blocks, bytes(report.block_bytes), bytes(report.bytes));
  for (const auto& origin : report.origins) {
    text += fmt::format("  {:>9} in {} blocks of {}\n", bytes(origin.bytes), origin.blocks,
                        origin.url.empty() ? "origins that are not known by name" : origin.url);
  }
  return text;
}

std::string history(const CacheCounters& counters) {
  const auto share =
      static_cast<double>(counters.hits) /
      static_cast<double>(std::max<std::int64_t>(1, counters.hits + counters.misses));
  std::string text = fmt::format("since the folder was made:\n");
  const auto row = [&](std::string_view what, std::int64_t n, const std::string& more = {}) {
    text += fmt::format("  {:<26} {:>12}{}\n", what, n, more.empty() ? "" : "  " + more);
  };
  row("hits", counters.hits,
      fmt::format("{}, {} of all reads of blocks", bytes(counters.hit_bytes), human_share(share)));
  row("  of them in memory", counters.memory_hits);
  row("blocks fetched", counters.misses,
      fmt::format("{} by {} reads", bytes(counters.origin_bytes), counters.origin_reads));
  row("blocks evicted", counters.evictions, bytes(counters.evicted_bytes));
  row("waits for another's fetch", counters.waits);
  row("reads past the cache", counters.pass_throughs);
  row("failures to write", counters.fill_failures);
  row("wrong checksums", counters.bad_checksums);
  row("repairs of the index", counters.repairs);
  return text;
}

int stat(const Options& options) {
  const auto folder = cache_folder(options.folder);
  const auto disk = store::look_at_cache(folder);
  const auto memory = store::look_at_memory(folder);
  if (options.json) {
    auto out = as_json(disk);
    out["memory"] = memory ? as_json(*memory) : nlohmann::ordered_json();
    print(out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } else {
    std::string text = contents(disk, folder.string());
    if (memory) text += contents(*memory, "in memory");
    print(text + history(disk.counters));
  }
  return kExitFine;
}

std::function<int()> declare(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_cache_folder(app, options->folder);
  app.add_flag("--json", options->json, "all of it as JSON");
  return [options] { return stat(*options); };
}

}  // namespace

extern const Command kCacheStat = {
    .name = "cache stat",
    .summary = "what lies in a cache, from where, and how often it was of use",
    .examples =
        "bedplate cache stat /nvme/cache\n"
        "bedplate cache stat /nvme/cache --json",
    .declare = declare,
};

}  // namespace bedplate::cli
