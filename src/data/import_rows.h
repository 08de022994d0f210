// Rows that somebody else reads, such as pyarrow, become packed shards: as safely as pack().
//
//   RowImport import(urls, "s3://corpus/packed", {.how = {{"--columns", "text"}}}, watch);
//   if (import.nothing_to_do()) return;
//   import.begin(schema);
//   import.add(rows, columns);        // all rows from the first on, in order, as many at a time …
//   const PackReport report = import.finish();
//
// A shard ends before the row with which it would be larger than it may be, so that equal rows and
// options make equal shards. pack.json says what is made and of what. Killed, the same import goes
// on: rows of shards that are there are passed over. A shard appears whole, or not at all. An
// import that fails before its first shard leaves nothing, so that it can be begun otherwise.
//
// One thread. Holds one block of a shard in memory. Errors are those of pack(): kExists when the
// destination holds other shards, another pack, or one of a source that has changed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/pack.h"

namespace bedplate::data {

struct RowImportOptions {
  std::string kind = std::string(kParquet);  // of the source, as list_source() knows it
  // What decides which rows and columns are made, besides source and size of shards: an import that
  // was begun otherwise is not gone on with.
  std::vector<PackRecord::Option> how = {};
  std::int64_t shard_bytes = 256 * kMiB;
  std::int64_t shard_samples = 0;  // instead, exactly; 0: by bytes
  ExistingPack existing = ExistingPack::kRefuse;
  Nanos timeout = 600 * kSecond;  // for one listing, one write
  // Around the destination's store; for faults.
  std::function<std::shared_ptr<store::Store>(std::shared_ptr<store::Store>)> wrap_destination = {};
};

// Values of one column, row after row.
struct RowColumn {
  std::span<const std::byte> bytes;
  // Where each row begins, and where the last one ends: rows + 1 places in `bytes`. Empty: all rows
  // are equally large.
  std::span<const std::int64_t> offsets = {};
};

class RowImport {
 public:
  // Looks at both ends; writes nothing.
  RowImport(std::span<const std::string> urls, const std::string& destination,
            RowImportOptions options, const Watch& watch);
  ~RowImport();

  const SourceListing& source() const;
  // It was all made earlier; report() says what.
  bool nothing_to_do() const;
  // What would be made, or was; for nothing_to_do() and before begin().
  PackReport report() const;

  // From here on the destination is this import's.
  void begin(const Schema& schema);
  // So many of the next rows are in shards already, and can be left out by skip().
  std::int64_t rows_to_skip() const;
  // Error{kInvalid} when that is more than there are to be left out.
  void skip(std::int64_t rows);
  // Error{kInvalid} when columns do not hold so many rows, and for values that do not fit their
  // column, naming the row.
  void add(std::int64_t rows, std::span<const RowColumn> columns);
  // Error{kNotFound} when there were no rows, kCorrupt when shards that were there hold more.
  PackReport finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bedplate::data
