// What a job asks of a node's disks, and whether a measurement says that it gets it.
//
//   const Need need{.ranks = 8, .samples_per_second = 2000, .sample_bytes = 150 * kKiB};
//   const Judgement judgement = judge_disk(need, measure_disk({.block = block_for(need), …}));
//   judgement.margin        // 1.35: a third more than the job takes
//
// Pure, but for the part that looks at a data set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"
#include "bench/disk.h"
#include "bench/meta.h"

namespace bedplate::bench {

struct Need {
  int ranks = 1;
  double samples_per_second = 0;  // that each rank takes
  double sample_bytes = 0;        // the mean

  double reads_per_second() const { return ranks * samples_per_second; }
  double bytes_per_second() const { return reads_per_second() * sample_bytes; }
};
// Error{kInvalid} for what is no need: nothing, negative, beyond all machines.
void check_need(const Need& need);

// The block with which a disk is read as the job would read it: a sample, in whole 4 KiB.
std::int64_t block_for(const Need& need);

struct Judgement {
  double margin = 0;  // what the node gives, in multiples of what the job takes; fits from 1 on
  std::string gives;  // "random reads of 152 KiB: 3.10 GiB/s and 20.3 k a second"
  std::vector<std::string> advice;  // what would make it fit

  bool fits() const { return margin >= 1; }
};

// A sample is read at random, by as many reads as it takes blocks.
Judgement judge_disk(const Need& need, const DiskResult& disk);
// A sample is a file of its own, opened and read.
Judgement judge_meta(const Need& need, const MetaResult& meta);

struct DatasetSource {
  std::vector<std::string> urls;
  std::string format = {};  // empty: by the names of the shards
};

// What a data set says of its samples.
struct DatasetFacts {
  std::int64_t samples = 0;
  // The mean of about 10,000 samples, evenly from at most 64 shards.
  double sample_bytes = 0;
  enum class Samples { kInShards, kFiles } lie = Samples::kInShards;
};
// Throws as data::Dataset::open(), and Error{kInvalid} when there are no samples.
DatasetFacts look_at_dataset(const DatasetSource& source);

// Samples of the data set itself, taken at random by `threads` for `length`, as a loader opens and
// reads them; amount: bytes. Throws as data::Dataset.
Figures measure_dataset(const DatasetSource& source, int threads, Nanos length, const Watch& watch);
// Figures of measure_dataset() against the need.
Judgement judge_dataset(const Need& need, const Figures& figures, int threads);

}  // namespace bedplate::bench
