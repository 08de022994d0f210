#include "cli/data_options.h"

#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/text.h"
#include "cli/output.h"
#include "data/braces.h"
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
  for (const std::string& given : options.urls) {
    if (given.find_first_of("{}") != std::string::npos) {
      urls.push_back(given);
      continue;
    }
    for (const std::string& url : data::expand_names(given)) {
      // The store of a file system says by an empty key that it is a folder.
      const bool folder = !url.ends_with('/') && store::locate(url).key.empty();
      urls.push_back(data::escape_braces(folder ? url + "/" : url));
    }
  }
  return urls;
}

CLI::Validator whole_number_from(std::int64_t least) {
  const auto check = [least](const std::string& text) {
    const auto number = to_int(text);
    if (number && *number >= least) return std::string();
    return fmt::format("{} is {}, it is to be {} or more", to_utf8(text),
                       number ? "too small" : "no whole number below 2^63", least);
  };
  return {check, "", "whole number"};
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
