// What an epoch is drawn from: one data set in one order, or several mixed.
//
//   const Source source({dataset}, {.seed = 7, .block = 256, .window = 16'384});
//   const Epoch epoch = source.epoch(3);
//   const Drawn drawn = epoch.at(position);      // {data set, its sample}
//
// Immutable; thread-safe. An Epoch borrows its Source.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/mix.h"
#include "data/order.h"

namespace bedplate::data {

struct SourceOptions {
  std::uint64_t seed = 0;
  // As in order.h. block >= samples and window 1: storage order; window >= samples: a full shuffle.
  std::int64_t block = 1;
  std::int64_t window = 1;
  std::int64_t lanes = 1;
  // Samples that make an epoch, which makes a mix of one data set too; 0: as many as all data sets
  // together have.
  std::int64_t epoch_samples = 0;
};

// The usual shuffle of `samples` that take so many bytes in their shards: 4 MiB of storage stay
// together, and blocks of 1 GiB are mixed (docs/shuffle.md).
struct BlockShuffle {
  std::int64_t block = 1;
  std::int64_t window = 1;
};
BlockShuffle block_shuffle(std::int64_t stored_bytes, std::int64_t samples);

struct SourcePart {
  std::shared_ptr<const Dataset> dataset;  // shared with whoever else reads it
  double weight = 1;
};

struct Drawn {
  std::size_t part = 0;
  std::int64_t sample = 0;  // of that data set
};

class Source {
 public:
  // Error{kInvalid} for no data set, one without samples, and what Order and Mix refuse.
  Source(std::vector<SourcePart> parts, SourceOptions options);

  class Epoch {
   public:
    Drawn at(std::int64_t position) const;
    std::int64_t samples() const;
    bool is_listed() const { return listed_; }  // of in_order()
    // Of one data set in its own order: when the sample comes; else nullopt.
    std::optional<std::int64_t> position_of(std::int64_t sample) const;

   private:
    friend class Source;
    const Source* source_ = nullptr;
    std::int64_t first_ = 0;  // of a mix: the place of the epoch in its endless row
    std::optional<Order> order_;
    std::vector<std::int64_t> list_;  // in_order()
    bool listed_ = false;
  };
  Epoch epoch(std::int64_t number) const;
  // An order that somebody else made: samples of the first data set, any number of times each.
  // Error{kInvalid} for one that it does not have.
  Epoch in_order(std::vector<std::int64_t> samples) const;

  const Dataset& dataset(std::size_t part) const { return *parts_[part].dataset; }
  std::size_t parts() const { return parts_.size(); }
  bool mixed() const { return mix_.has_value(); }
  std::int64_t epoch_samples() const { return epoch_samples_; }
  const SourceOptions& options() const { return options_; }
  // Of the data sets (checksums of three samples each included, where their format has such) and of
  // all options that the order follows from.
  std::uint64_t fingerprint() const { return fingerprint_; }
  double mean_sample_bytes() const;  // estimated from the data sets' first and last samples

 private:
  OrderOptions order_options(std::size_t part) const;

  std::vector<SourcePart> parts_;
  SourceOptions options_;
  std::optional<Mix> mix_;
  std::int64_t epoch_samples_ = 0;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace bedplate::data
