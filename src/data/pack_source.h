// What is to be packed, as samples with numbers, whatever it lies in: loose files, lines, arrays,
// other shards.
//
//   const SourceListing listing = list_source(urls, options, watch);   // what is there
//   const auto source = open_source(listing, Target::kPacked, options, watch);
//   source->pieces(17, pieces);       // what to read for sample 17
//   source->unpack(17, bytes, sample);
//
// A source is thread-safe to read. Errors are those of the stores, and Error{kInvalid} for what
// cannot be packed as it was asked for, naming the file, and the line where there is one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/piece_reader.h"
#include "data/progress.h"
#include "data/schema.h"
#include "store/driver.h"

namespace bedplate::data {

enum class Target {
  kPacked,      // typed columns, the same in all samples
  kWebDataset,  // members of a tar
};

struct PackSourceOptions {
  // "files", "shards", "jsonl", "text", "tokens", "npy" or "parquet"; empty: by the names that are
  // there.
  std::string kind = {};
  // What is one sample: kName: files that share a name up to its first dot; kFile: each file;
  // kLine: each line of a text.
  enum class Unit { kUsual, kName, kFile, kLine } unit = Unit::kUsual;
  std::string shard_format = {};      // of shards; empty: by their names
  std::optional<Dtype> tokens = {};   // what the files of "tokens" hold, and the
  std::int64_t length = 0;            // tokens of one sample
  std::optional<Schema> schema = {};  // instead of one that is made from the samples
  std::string column = {};            // name of the only column of text, tokens, arrays
  enum class Keys { kText, kBytes, kNone } keys = Keys::kText;  // packed: the column __key__
  // Loose files, the column kLabelColumn: kFolder: the number of the first folder below the one
  // that was given, among the sorted names of all of these (as torchvision's ImageFolder counts).
  // kUsual: so if all files are pictures and lie in two or more folders side by side.
  enum class Labels { kUsual, kFolder, kNone } labels = Labels::kUsual;
  std::vector<std::string> exclude = {};  // shell patterns of names or last parts of names
  // JSON lines: what stands for a name that a line lacks or has as null.
  struct Fill {
    std::string name;
    std::string value;  // JSON
  };
  std::vector<Fill> fill = {};
  // kSkipped: a sample that cannot be read has no say in the schema.
  enum class Bad { kRaised, kSkipped } bad = Bad::kRaised;
  int threads = 1;
  Nanos timeout = 600 * kSecond;  // for one listing, one window of reads, one shard to open
  store::StoreOptions store = {};
  // Around each store that is opened; for caches and faults.
  std::function<std::shared_ptr<store::Store>(std::shared_ptr<store::Store>)> wrap = {};
};

// The kind of source that is listed here and read by Python (import_rows.h), not by open_source().
constexpr std::string_view kParquet = "parquet";

struct SourceObject {
  std::shared_ptr<store::Store> store;  // shared by the objects of one URL
  store::ObjectInfo object;
  std::string name;  // below the folder that was given, or its last part
};

struct SourceListing {
  std::string kind;
  std::vector<SourceObject> objects;    // in the order of the URLs, then of the keys' bytes
  std::vector<std::string> shard_urls;  // of kind "shards"
  std::vector<std::string> folders;     // that were given, with the stores' names
  std::int64_t bytes = 0;
  std::uint64_t fingerprint = 0;   // of names, sizes and versions
  std::vector<std::string> notes;  // for people: what was passed over
};

// Error{kNotFound} when there is nothing, kInvalid when the kind cannot be told.
SourceListing list_source(std::span<const std::string> urls, const PackSourceOptions& options,
                          const Watch& watch);

class PackSource {
 public:
  virtual ~PackSource() = default;

  virtual std::int64_t samples() const = 0;
  struct Cost {
    std::int64_t bytes = 0;   // of its fields, about
    std::int64_t fields = 1;  // about
  };
  // 0 <= sample < samples(), else undefined; so in all members.
  virtual Cost cost(std::int64_t sample) const = 0;
  // Appends what is to be read.
  virtual void pieces(std::int64_t sample, std::vector<Piece>& out) const = 0;
  // `raw`: the bytes of the pieces. Views into `raw` and into out.owned.
  virtual void unpack(std::int64_t sample, std::span<const std::span<const std::byte>> raw,
                      Sample& out) const = 0;
  // For messages: "line 18 of corpus.jsonl".
  virtual std::string name_of(std::int64_t sample) const = 0;
  // Of a packed shard that is to hold the samples.
  virtual const Schema& schema() const = 0;
  virtual std::vector<std::string> notes() const { return {}; }
  // The names of the numbers in kLabelColumn; empty without one.
  virtual std::vector<std::string> classes() const { return {}; }
};

std::unique_ptr<PackSource> open_source(const SourceListing& listing, Target target,
                                        const PackSourceOptions& options, const Watch& watch);

// The column that holds a sample's key in a packed shard.
constexpr std::string_view kKeyColumn = "__key__";
// The column that holds the number of its class, int64 or, in a tar, text.
constexpr std::string_view kLabelColumn = "cls";
// The column of keys; nullopt when keys are not kept.
std::optional<Column> key_column(PackSourceOptions::Keys keys);
// Reads a schema as people write it: "tokens:u16[2048],text:utf8", with -1 for as many as there
// are; or as JSON. Error{kInvalid}.
Schema parse_schema(std::string_view text);
// "label=-1", "text=none": JSON, or else text. Error{kInvalid}.
PackSourceOptions::Fill parse_fill(std::string_view text);

// One for each kind.
std::unique_ptr<PackSource> open_files_source(const SourceListing& listing, Target target,
                                              const PackSourceOptions& options);
std::unique_ptr<PackSource> open_lines_source(const SourceListing& listing, Target target,
                                              const PackSourceOptions& options, const Watch& watch);
std::unique_ptr<PackSource> open_arrays_source(const SourceListing& listing,
                                               const PackSourceOptions& options);
std::unique_ptr<PackSource> open_shards_source(const SourceListing& listing, Target target,
                                               const PackSourceOptions& options);

}  // namespace bedplate::data
