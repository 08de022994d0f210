#include "cli/data_options.h"

#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cli/output.h"
#include "data/format.h"
#include "store/driver.h"

namespace bedplate::cli {

void add_shards_options(CLI::App& app, ShardsOptions& options) {
  app.add_option("URL", options.urls,
                 "shards: a file, a folder, or any store's URL; {000..127} and {a,b} name several")
      ->required()
      ->expected(1, 1 << 20);
  std::string formats;
  for (const auto* format : data::all_formats())
    formats += fmt::format("{}{}", formats.empty() ? "" : ", ", format->name);
  app.add_option("--format", options.format,
                 fmt::format("of the shards, where their names do not tell: {}", formats))
      ->type_name("NAME");
}

std::vector<std::string> shard_urls(const ShardsOptions& options) {
  std::vector<std::string> urls;
  for (const std::string& url : options.urls) {
    const bool plain = url.find_first_of("{}") == std::string::npos && !url.ends_with('/');
    // The store of a file system says by an empty key that it is a folder.
    const bool folder = plain && store::locate(url).key.empty();
    urls.push_back(folder ? url + "/" : url);
  }
  return urls;
}

void add_threads_option(CLI::App& app, int& threads) {
  app.add_option("--threads", threads, "how many work at once; 0: as many as there are processors")
      ->type_name("N")
      ->check(CLI::Range(0, 1024));
}

int threads_of(int given) {
  if (given > 0) return given;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int count = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return count > 0 ? count : 1;
}

Attended::Attended()
    : line_(STDERR_FILENO),
      watch_{.show = [this](const data::ProgressView& view) { line_.show(view); },
             .stop = [this] { return signals_.came() != 0; }} {}

int Attended::run(const std::function<int()>& work) {
  try {
    const int code = work();
    line_.hide();
    signals_.end_as_asked();
    return code;
  } catch (...) {
    line_.hide();
    signals_.end_as_asked();
    throw;
  }
}

}  // namespace bedplate::cli
