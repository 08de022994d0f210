// Pieces of objects, read many at once: neighbours in one object become one read.
//
//   std::vector<Piece> pieces = …;
//   PieceReader reader(timeout);
//   reader.read(pieces);            // each piece has its `got`, or its own `error`
//
// One thread. Throws nothing but for want of memory. What was got is valid until the next read().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "store/store.h"

namespace bedplate::data {

struct Piece {
  store::Store* store = nullptr;  // borrowed
  std::string key;
  std::string version;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  std::span<const std::byte> got = {};  // out
  std::optional<Error> error = {};      // out
};

class PieceReader {
 public:
  explicit PieceReader(Nanos timeout) : timeout_(timeout) {}

  void read(std::span<Piece> pieces);

 private:
  // Pieces [first, last) that one read brings.
  struct Run {
    std::size_t first;
    std::size_t last;
    std::int64_t offset;  // in the object
    std::int64_t bytes;
    std::size_t at;  // in the buffer
  };
  void read_runs(std::span<Piece> pieces, std::span<const Run> runs);
  void read_one_by_one(std::span<Piece> pieces, const Run& run);

  const Nanos timeout_;  // for one read()
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t capacity_ = 0;
};

// How much is read at once by those who go through many samples.
constexpr std::int64_t kWindowBytes = 4 * kMiB;
constexpr std::int64_t kWindowSamples = 256;

}  // namespace bedplate::data
