// How fast a loader makes batches of a data set here, and where the time goes.
//
//   const LoadingSpeed speed = measure_loading(urls, {.loader = {.batch_size = 64}}, watch);
//   speed.samples_per_second();
//
// It reads as bedplate.data.Loader does and lets each batch go at once: a consumer that takes no
// time. One call at a time in a process, whose CPU time and memory are taken for the loader's.
// Errors are those of Dataset and Loader, and kUnavailable when the watch said stop.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/progress.h"

namespace bedplate::data {

struct LoadingOptions {
  DatasetOptions dataset = {};
  enum class Shuffle { kBlock, kFull, kNone } shuffle = Shuffle::kBlock;
  std::uint64_t seed = 0;
  LoaderOptions loader = {};  // but for its fields
  // Of the samples; empty: all. Arrays that differ in length are read as rows of any length.
  std::vector<std::string> fields = {};
  std::optional<ImageSpec> decode = {};  // what pictures become; else their bytes stay
  Nanos length = 10 * kSecond;           // ends with the batch after which so much has passed
  std::int64_t epochs = 0;               // or after so many, if that is earlier; 0: never
  // kDropped: the files are taken out of the page cache first, and one epoch is read at most.
  enum class PageCache { kAsItIs, kDropped } page_cache = PageCache::kAsItIs;
};

struct LoadingSpeed {
  std::vector<std::string> formats;
  std::int64_t shards = 0;
  std::int64_t dataset_samples = 0;
  std::int64_t files_dropped = 0;    // from the page cache
  std::vector<std::string> fields;   // of the batches
  std::vector<std::string> decoded;  // of them: pictures that were decoded
  Nanos opening = 0;                 // of the data set
  Nanos first_batch = 0;             // from then on
  Nanos length = 0;                  // of reading, the first batch included
  Nanos cpu = 0;                     // of all threads in that time
  std::int64_t samples = 0;          // handed over
  std::int64_t bytes_from_disk = 0;  // since the data set was opened, as the kernel counts them
  std::int64_t peak_memory = 0;      // bytes resident in this process, mapped files included
  std::int64_t epochs = 0;           // that were read to their end
  LoaderStats stats;                 // what was made ahead and not handed over, too

  double samples_per_second() const { return per(samples, length); }
  double samples_per_cpu_second() const { return per(samples, cpu); }
  double bytes_per_second() const { return per(stats.bytes, length); }

 private:
  static double per(std::int64_t n, Nanos time) {
    return time > 0 ? static_cast<double>(n) / seconds(time) : 0;
  }
};

LoadingSpeed measure_loading(std::span<const std::string> urls, const LoadingOptions& options,
                             const Watch& watch);

}  // namespace bedplate::data
