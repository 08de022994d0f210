// Looking into shards: which there are, what their samples are made of and how large they are.
//
// Thread-safe. Errors are those of Dataset.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/pack_source.h"
#include "data/progress.h"

namespace bedplate::data {

struct ShardFacts {
  std::string url;
  std::string_view format;
  std::int64_t samples = 0;
  std::int64_t bytes = 0;  // of the object, or of the samples when they lie in others
};
std::vector<ShardFacts> list_shards(std::span<const std::string> urls,
                                    const DatasetOptions& options, const Watch& watch);

// Reads the samples [first, last) in their order, many at once. Errors name the sample; also
// Error{kUnavailable} when it is to stop.
using VisitSample = std::function<void(std::int64_t number, const Sample& sample)>;
void for_each_sample(const Dataset& dataset, std::int64_t first, std::int64_t last,
                     const VisitSample& visit, const Watch& watch);

// The sample's name, from the column __key__ too; empty when it has none.
std::string_view key_of(const Sample& sample);

struct FieldFacts {
  std::string name;
  Dtype dtype = Dtype::kBytes;
  bool other_dtypes = false;        // in some samples
  std::vector<std::int64_t> shape;  // of numbers; kAny where samples differ
  bool other_dimensions = false;    // in some samples
  std::int64_t samples = 0;         // of those that were looked at, that have it
  std::int64_t least_bytes = 0;
  std::int64_t most_bytes = 0;
  double mean_bytes = 0;
};

struct DataFacts {
  std::int64_t shards = 0;
  std::vector<std::string> formats;
  std::int64_t samples = 0;
  std::int64_t object_bytes = 0;  // of the shards, and of objects that hold samples for them
  std::uint64_t fingerprint = 0;
  std::int64_t index_bytes = 0;  // memory that the open data set takes
  // Shards without an index of their own, and those of them with a fresh one beside them.
  std::int64_t without_index = 0;
  std::int64_t indexed = 0;
  std::vector<std::string> notes;  // of the data set: a manifest that was passed over
  // Bytes of samples as they lie in the shards.
  std::int64_t sample_bytes = 0;
  std::int64_t least = 0;
  std::int64_t median = 0;
  std::int64_t p99 = 0;
  std::int64_t most = 0;
  std::int64_t fewest_in_shard = 0;  // samples
  std::int64_t most_in_shard = 0;
  std::map<int, std::int64_t> by_size;  // n → samples of [2^n, 2^(n+1)) bytes; -1: of none
  std::int64_t looked_at = 0;           // samples that were read for the fields
  std::vector<FieldFacts> fields;       // by name
};
// Reads at most `looks` samples, evenly spread; sizes are of all of them, by the index.
DataFacts describe(std::span<const std::string> urls, const DatasetOptions& options,
                   std::int64_t looks, const Watch& watch);

}  // namespace bedplate::data
