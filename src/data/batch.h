// What a loader hands over: a batch of samples as columns in one piece of memory.
//
//   const BatchColumn& tokens = batch->columns[0];
//   tokens.data               // [batch, 2048] of u16, row after row
//   const BatchColumn& text = batch->columns[1];
//   text.row(3)               // the bytes of the fourth sample
//
// A batch owns its slab; when the last holder lets go, the slab returns to its pool and is used
// again. Thread-safe to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "data/schema.h"

namespace bedplate::data {

// Memory of a fixed size, aligned to a page. Not initialised.
class Slab {
 public:
  explicit Slab(std::size_t bytes);
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab();

  std::span<std::byte> bytes() const { return {begin_, size_}; }

 private:
  std::byte* begin_;
  std::size_t size_;
};

// Slabs of one size that are used again. Thread-safe; may be gone before its slabs are.
class SlabPool {
 public:
  // Keeps at most `most_free` slabs that nobody uses.
  SlabPool(std::size_t bytes, std::size_t most_free);
  std::shared_ptr<Slab> take();
  std::int64_t made() const;  // slabs that exist now, used or not

 private:
  struct Free {
    std::mutex mutex;
    std::vector<std::unique_ptr<Slab>> slabs;
    std::int64_t made = 0;
  };
  const std::size_t bytes_;
  const std::size_t most_free_;
  std::shared_ptr<Free> free_;  // shared with the slabs that are out
};

struct BatchColumn {
  std::string name;
  Dtype dtype = Dtype::kBytes;
  std::vector<std::int64_t> shape;  // of one sample; {kAny, …} when samples differ in length
  std::span<std::byte> data;        // all rows, one after the other: in the slab, or in `owned`
  // Rows of different length: batch + 1 places in data, in bytes. Empty when all are equal.
  std::vector<std::int64_t> offsets;
  std::vector<std::byte> owned;

  bool variable() const { return !offsets.empty(); }
  // Of a variable column.
  std::span<const std::byte> row(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return data.subspan(static_cast<std::size_t>(offsets[at]),
                        static_cast<std::size_t>(offsets[at + 1] - offsets[at]));
  }
};

struct Batch {
  std::int64_t count = 0;             // rows
  std::vector<std::int64_t> samples;  // their numbers, in the order of the rows
  std::vector<std::int64_t> sources;  // of a mix: which data set each is of; else empty
  std::vector<BatchColumn> columns;
  std::shared_ptr<Slab> slab;  // shared with tensors that view into it
  std::shared_ptr<void> made;  // what a caller's own decoding made of the samples
};

}  // namespace bedplate::data
