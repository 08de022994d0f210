// How batches were made: what the input, memory and IO rules ask of a run.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "doctor/run_view.h"

namespace bedplate::doctor {

// A DataLoader as its process described it.
struct Loader {
  int id = 0;
  int workers = 0;
  int batch_size = 0;
  int prefetch = 0;
  bool persistent = false;
  std::string dataset;  // "__main__.Images"
};

// The loader that the rank waited for most, evaluation aside; nullopt when none was described.
std::optional<Loader> main_loader(const RunView& run, const RankView& rank);

// The making of batches during the window, in the rank's workers or, without workers, in the rank
// itself. Times are sums over the producers.
struct Fetches {
  double batches = 0;
  double wall_ns = 0;
  double user_ns = 0;  // CPU time of the fetching threads
  double system_ns = 0;
  double delay_ns = 0;       // runnable but not running, as far as it is known
  double files = 0;          // opened by Python code inside fetches
  double read_bytes = 0;     // by read calls, page cache included
  double reads = 0;          // read calls
  double storage_bytes = 0;  // that came from a device
  double loader_bytes = 0;   // that bedplate.data's loaders read, however they did
  double major_faults = 0;   // pages that were waited for
  double minor_faults = 0;

  double blocked_ns() const { return std::max(0.0, wall_ns - user_ns - system_ns - delay_ns); }
  double share(double ns) const { return wall_ns > 0 ? std::min(1.0, ns / wall_ns) : 0; }
};
Fetches fetches(const RunView& run, const RankView& rank, Window w);
Fetches all_fetches(const RunView& run);  // over all ranks and the whole window

// Share of the window that a worker spent making batches, on average over the workers that there
// were at a time.
std::optional<double> workers_making(const RunView& run);
// CPU that a worker used, in processors, on average.
std::optional<double> workers_cpu(const RunView& run);
// Workers at a time over all ranks: as the loaders say, else as many as were seen.
int worker_count(const RunView& run);

}  // namespace bedplate::doctor
