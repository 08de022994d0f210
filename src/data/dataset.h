// Shards as one row of samples.
//
//   const std::string urls[] = {"s3://corpus/train-{000000..001023}.tar"};
//   const auto dataset = Dataset::open(urls);
//   const Dataset::Place place = dataset->place(123'456);       // {shard 98, its sample 12}
//   const Sample sample = dataset->get(123'456);
//
// A URL names a shard, several by braces ("{00..99}", "{a,b}"), or, ending in "/", all shards below
// it. Samples are numbered as the URLs stand, those of a folder in the order of their keys' bytes.
//
// Immutable once opened; thread-safe; goes on working in a child after fork().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/format.h"
#include "data/shard_index.h"
#include "store/driver.h"

namespace bedplate::data {

struct DatasetOptions {
  std::string format = {};  // empty: by the names of the shards
  ShardOptions shard = {};
  store::StoreOptions store = {};
  int open_at_once = 16;  // shards
  // Around each store that is opened; for caches and faults.
  std::function<std::shared_ptr<store::Store>(std::shared_ptr<store::Store>)> wrap = {};
};

class Dataset {
 public:
  // Error{kNotFound} when a URL names nothing, kInvalid when a name belongs to no format or a
  // pattern has no end; and those of Format::open, with the shard's name.
  static std::shared_ptr<const Dataset> open(std::span<const std::string> urls,
                                             const DatasetOptions& options = {});

  struct Shard {
    std::shared_ptr<store::Store> store;  // shared with the other shards of its URL
    std::shared_ptr<const ShardIndex> index;
    std::int64_t first = 0;  // its first sample's number
  };
  std::span<const Shard> shards() const { return shards_; }
  std::int64_t samples() const { return samples_; }

  struct Place {
    std::size_t shard = 0;
    std::int64_t sample = 0;  // of the shard
  };
  // Error{kInvalid} when there is no such sample.
  Place place(std::int64_t sample) const;

  // Reads one sample whole and checks it. Errors name shard, sample and offset.
  Sample get(std::int64_t sample,
             Deadline deadline = Deadline::after(store::kDefaultTimeout)) const;

  // Of the names, sizes and numbers of samples: an order that was begun on other data is refused.
  std::uint64_t fingerprint() const { return fingerprint_; }
  std::int64_t memory_bytes() const;

 private:
  Dataset(std::vector<Shard> shards);

  std::vector<Shard> shards_;
  std::int64_t samples_ = 0;
  std::uint64_t fingerprint_ = 0;
};

// "a{1..3}" → a1 a2 a3; "{08..11}" keeps its zeros; "{x,y}" lists; several multiply. A "\{" is a
// brace. Error{kInvalid} for what has no end, runs backwards or makes more than ten million names.
std::vector<std::string> expand_braces(std::string_view pattern);

}  // namespace bedplate::data
