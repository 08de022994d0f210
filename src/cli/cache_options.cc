#include "cli/cache_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "data/braces.h"

namespace bedplate::cli {
namespace {

constexpr Nanos kShowEach = 100 * kMillisecond;

}  // namespace

void add_cache_folder(CLI::App& app, std::string& folder) {
  app.add_option("DIR", folder, "the cache's folder")->required();
}

std::filesystem::path cache_folder(const std::string& text) {
  auto folder = store::parse_cache(text).folder;
  if (folder.empty()) throw Error(Code::kInvalid, "'{}' names no folder of a cache", to_utf8(text));
  return folder;
}

std::vector<std::string> expanded(const std::vector<std::string>& urls) {
  std::vector<std::string> out;
  for (const std::string& url : urls)
    std::ranges::move(data::expand_names(url), std::back_inserter(out));
  return out;
}

store::CacheWatch cache_watch(const Attended& attended, std::string_view phase,
                              std::string_view unit) {
  const data::Watch& watch = attended.watch();
  return {.show =
              [&watch, phase, unit, begin = real_clock().now(), shown = Nanos{0}](
                  std::int64_t done, std::int64_t of) mutable {
                const Nanos now = real_clock().now();
                if (now - shown < kShowEach && done < of) return;
                shown = now;
                watch.show(
                    {.phase = phase, .done = done, .of = of, .unit = unit, .elapsed = now - begin});
              },
          .stop = watch.stop};
}

}  // namespace bedplate::cli
