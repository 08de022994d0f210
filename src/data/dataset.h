// Shards as one row of samples.
//
//   const std::string urls[] = {"s3://corpus/train-{000000..001023}.tar"};
//   const auto dataset = Dataset::open(urls);
//   const Dataset::Place place = dataset->place(123'456);       // {shard 98, its sample 12}
//   const Sample sample = dataset->get(123'456);
//   dataset->shards()[98].index()                               // opened now, if it was not yet
//
// A URL names a shard, several by braces ("{00..99}", "{a,b}"), or, ending in "/", all shards below
// it. All shards below a folder are of one format. Samples are numbered as the URLs stand, those of
// a folder in the order of their keys' bytes.
//
// How many samples each shard has is taken from a manifest beside the shards (manifest.h) where
// there is one: those shards are opened when they are first used. Others are opened at once.
//
// Immutable once opened; thread-safe; goes on working in a child after fork().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/patient_mutex.h"
#include "data/braces.h"
#include "data/format.h"
#include "data/piece_reader.h"
#include "data/shard_index.h"
#include "os/per_process.h"
#include "store/cache/cache.h"
#include "store/driver.h"

namespace bedplate::data {

struct DatasetOptions {
  std::string format = {};  // empty: by the names of the shards
  ShardOptions shard = {};
  store::StoreOptions store = {};
  int open_at_once = 16;  // shards
  // Shards of a folder that its manifest lists and that are not there.
  enum class Missing { kRefuse, kAccept } missing = Missing::kRefuse;
  // Called as shards are opened by Dataset::open(), from any of its threads; for progress bars.
  std::function<void(std::size_t opened, std::size_t of)> on_open = {};
  std::shared_ptr<store::Cache> cache = {};  // of all stores; shared with other data sets
  // Around each store that is opened, before the cache; for faults.
  std::function<std::shared_ptr<store::Store>(std::shared_ptr<store::Store>)> wrap = {};
};

class Dataset {
 public:
  // Error{kNotFound} when a URL names nothing, kInvalid when a name belongs to no format, a folder
  // holds several, or a pattern has no end; and those of Format::open, with the shard's name.
  static std::shared_ptr<const Dataset> open(std::span<const std::string> urls,
                                             const DatasetOptions& options = {});
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  ~Dataset();

  class Shard {
   public:
    std::shared_ptr<store::Store> store;  // shared with the other shards of its URL
    store::ObjectInfo object;
    const Format* format = nullptr;
    std::int64_t first = 0;  // its first sample's number
    std::int64_t samples = 0;

    // Opened when it is first asked for, by one thread while others wait; at most
    // ShardOptions::timeout each. It lives as long as the data set. Errors as those of
    // Format::open, and kCorrupt when it has not as many samples as the manifest says; the next
    // call tries again.
    const ShardIndex& index() const;
    bool is_open() const { return opened_.load(std::memory_order_acquire) != nullptr; }

   private:
    friend class Dataset;
    using Opened = std::shared_ptr<const ShardIndex>;

    const Dataset* dataset_ = nullptr;
    // Published whole by one store, so that a child of fork() sees all of it or nothing.
    mutable std::atomic<const Opened*> opened_ = nullptr;
  };
  std::span<const Shard> shards() const { return shards_; }
  std::int64_t samples() const { return samples_; }
  std::int64_t stored_bytes() const { return stored_bytes_; }  // of all shards, as they lie there

  struct Place {
    std::size_t shard = 0;
    std::int64_t sample = 0;  // of the shard
  };
  // Error{kInvalid} when there is no such sample.
  Place place(std::int64_t sample) const;

  // Reads one sample whole and checks it. Errors name shard, sample and offset. The deadline is
  // that of the read; a shard that must be opened first has ShardOptions::timeout besides.
  Sample get(std::int64_t sample,
             Deadline deadline = Deadline::after(store::kDefaultTimeout)) const;

  // What get() is made of, for those who read many samples at once: what to read, …
  Piece piece(std::int64_t sample) const;
  // … the sample in those bytes, checked; views into `raw` …
  void unpack(std::int64_t sample, std::span<const std::byte> raw, Sample& out) const;
  // … and its place, for messages: "3 of 000.tar in s3://corpus, from byte 512 on".
  std::string name_of(std::int64_t sample) const;

  // Of the names, sizes and numbers of samples: an order that was begun on other data is refused.
  std::uint64_t fingerprint() const { return fingerprint_; }
  // What a user should know although it is no error: a manifest that was passed over, and why.
  std::span<const std::string> notes() const { return notes_; }
  const std::shared_ptr<store::Cache>& cache() const { return cache_; }  // nullptr: none
  // Of the indices that are open.
  std::int64_t memory_bytes() const;

 private:
  // So many shards are opened at the same time, in each process.
  struct Locks {
    std::array<PatientMutex, 64> of_shards;
  };

  Dataset(std::size_t shards, const ShardOptions& options) : shards_(shards), options_(options) {}
  void number_samples();

  std::vector<Shard> shards_;
  ShardOptions options_;
  std::int64_t samples_ = 0;
  std::int64_t stored_bytes_ = 0;
  std::uint64_t fingerprint_ = 0;
  std::vector<std::string> notes_;
  std::shared_ptr<store::Cache> cache_;
  mutable os::PerProcess<Locks> locks_;
};

// What to read for a sample of one shard, and the sample in those bytes, checked. Errors name
// nothing.
Piece piece_of(store::Store& store, const ShardIndex& index, std::int64_t sample);
void unpack_checked(const ShardIndex& index, std::int64_t sample, std::span<const std::byte> raw,
                    Sample& out);

}  // namespace bedplate::data
