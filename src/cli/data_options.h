// What the commands of `bedplate data` have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/progress_line.h"
#include "data/progress.h"
#include "os/stop_signals.h"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace bedplate::cli {

// URLs of shards, and how they are read.
struct ShardsOptions {
  std::vector<std::string> urls;
  std::string format;
};
void add_shards_options(CLI::App& app, ShardsOptions& options);
// A folder of a URL is one without a slash at its end, too.
std::vector<std::string> shard_urls(const ShardsOptions& options);

// Of an option's value: a whole number, not below `least`.
CLI::Validator whole_number_from(std::int64_t least);

// "--threads N"; 0 becomes the processors that this process may use.
void add_threads_option(CLI::App& app, int& threads);
int threads_of(int given);

// Long work with a progress line on the terminal, which Ctrl-C stops.
class Attended {
 public:
  Attended();
  const data::Watch& watch() const { return watch_; }
  void hide_line() { line_.hide(); }
  // The work, which ends the process by the signal that stopped it.
  int run(const std::function<int()>& work);

 private:
  os::StopSignals signals_;
  ProgressLine line_;
  data::Watch watch_;
};

}  // namespace bedplate::cli
