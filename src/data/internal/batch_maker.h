// Makes one batch: reads its samples at once, checks them, copies or decodes them into a slab.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "data/internal/window_memory.h"
#include "data/loader.h"

namespace bedplate::data {

// What the threads of one loader share. Thread-safe.
class LoaderShared {
 public:
  LoaderShared(std::shared_ptr<const Source> source, LoaderOptions options);

  const Source& source() const { return *source_; }
  const std::shared_ptr<const Source>& shared_source() const { return source_; }
  const LoaderOptions& options() const { return options_; }
  const Collator& collator() const { return collator_; }
  const WindowMemory* window() const { return window_.get(); }  // nullptr: none is kept

  // Whether the samples of this shard can be read straight into the rows of a slab.
  bool reads_into_rows(std::size_t part, std::size_t shard);
  // True when the sample's checksum is to be looked at now.
  bool checks(std::size_t part, std::int64_t sample) const;
  void checked(std::size_t part, std::int64_t sample);
  // Counts it; throws when that is one too many.
  void skip(std::int64_t sample, const Error& error);

  std::atomic<std::int64_t> samples{0};
  std::atomic<std::int64_t> bytes{0};
  std::atomic<std::int64_t> make_ns{0};
  std::atomic<std::int64_t> read_ns{0};
  std::atomic<std::int64_t> check_ns{0};
  std::atomic<std::int64_t> decode_ns{0};
  std::atomic<std::int64_t> refetched{0};
  std::int64_t skipped() const;
  std::vector<BadSample> bad() const;

 private:
  void check_part(std::size_t part) const;

  struct Part {
    std::unique_ptr<std::atomic<std::int8_t>[]> into_rows;  // a shard: 0 not known, 1 no, 2 yes
    std::unique_ptr<std::atomic<std::uint64_t>[]> checked;  // a bit a sample
  };

  const std::shared_ptr<const Source> source_;  // shared with the loader's maker
  const LoaderOptions options_;
  const Collator collator_;
  const std::unique_ptr<WindowMemory> window_;
  std::vector<Part> parts_;
  mutable std::mutex mutex_;
  std::int64_t skipped_ = 0;
  std::vector<BadSample> bad_;
};

// One thread's. Its buffers are used again from batch to batch.
class BatchMaker {
 public:
  explicit BatchMaker(LoaderShared& shared) : shared_(shared) {}

  // `slab`: of collator().slab_bytes(share.count).
  std::shared_ptr<Batch> make(const Source::Epoch& epoch, std::int64_t epoch_number,
                              const Share& share, std::shared_ptr<Slab> slab);

 private:
  struct Item {
    Drawn drawn;
    std::int64_t position = 0;
    const Dataset::Shard* shard = nullptr;
    std::int64_t in_shard = 0;
    Extent extent;
    std::span<std::byte> raw;
    bool in_row = false;  // raw is the row itself
    std::optional<Error> error = {};
  };

  void draw(const Source::Epoch& epoch, const Share& share);
  void place_in_memory(Batch& batch);
  void read(std::span<Item*> items);
  void check(Item& item) const;
  void refetch(Item& item, int times);
  bool put(std::size_t item, std::int64_t row, std::int64_t epoch_number, Batch& batch);
  void fill(std::int64_t epoch_number, Batch& batch);
  void decode_by_caller(std::int64_t epoch_number, Batch& batch);
  std::uint64_t seed_of(const Item& item, std::int64_t epoch_number) const;
  [[noreturn]] void fail(const Item& item) const;
  void pass_over(const Item& item);
  std::string place_of(const Item& item) const;

  store::Store& store_of(const Item& item) const;

  LoaderShared& shared_;
  bool by_window_ = false;  // this batch is of the order that the window's memory follows
  std::vector<Item> items_;
  std::vector<Item*> in_order_;  // of their places in storage
  std::vector<store::Read> reads_;
  std::vector<std::byte> arena_;
  std::vector<Sample> samples_;
};

}  // namespace bedplate::data
