// Packs samples into shards: in parallel, and so that it can be killed at any moment.
//
//   const std::string urls[] = {"pictures/"};
//   const PackReport report = pack(urls, "s3://corpus/train", {.target = Target::kWebDataset}, {});
//
// What becomes which shard is decided first and kept in pack.json beside the shards; a shard
// appears whole under its name or not at all. The same call again goes on with the shards that are
// missing. Equal sources and options make equal bytes, whatever the threads and interruptions.
//
// Errors are those of list_source(), open_source() and the stores; kExists when the destination
// holds shards that this pack did not make, or one that was begun with other options or of another
// source, when another pack works there (Store::claim(); on stores that lock nothing, the later one
// takes the place of the earlier, which ends), and when more samples were left out than may be; and
// those of the first bad sample that is one too many, with its name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/pack_record.h"
#include "data/pack_source.h"
#include "data/progress.h"

namespace bedplate::data {

struct PackOptions {
  Target target = Target::kPacked;
  PackSourceOptions source = {};  // source.threads packs, too; source.store is for both ends
  std::int64_t shard_bytes = 256 * kMiB;      // about; a larger sample has a shard of its own
  std::int64_t shard_samples = 0;             // instead, exactly; 0: by bytes
  std::optional<std::uint64_t> shuffle = {};  // seed; else in the order of the source
  std::int64_t most_bad = 0;                  // so many samples that cannot be read are left out
  using Existing = ExistingPack;
  Existing existing = Existing::kRefuse;
  // Around the destination's store; for faults.
  std::function<std::shared_ptr<store::Store>(std::shared_ptr<store::Store>)> wrap_destination = {};
};

struct PackReport {
  enum class End {
    kDone,
    kNothingToDo,  // it was done already
    kPlanned,      // only looked at, by plan_pack()
    kStopped,      // by Watch::stop; the same call goes on
    kForPython,    // it is Parquet, which bedplate.data.import_parquet() reads; nothing was done
  } end = End::kDone;
  std::string kind;                  // of the source
  std::string schema;                // JSON; empty for tars
  std::vector<std::string> classes;  // the names of the numbers in kLabelColumn
  std::int64_t source_objects = 0;
  std::int64_t source_bytes = 0;
  std::int64_t samples = 0;  // in the shards; in those that are to be made, when planned
  std::int64_t shards = 0;
  std::int64_t shards_made = 0;  // now, not earlier
  std::int64_t bytes = 0;        // of all shards; 0 when planned
  std::int64_t skipped = 0;
  std::vector<std::string> bad;    // of those that were skipped now, the first hundred
  std::vector<std::string> notes;  // what was passed over
  std::int64_t abandoned = 0;      // temporaries of killed packs that were removed
};

// Looks at both ends and says what pack() would do, its refusals included. Writes nothing.
PackReport plan_pack(std::span<const std::string> urls, const std::string& destination,
                     const PackOptions& options, const Watch& watch);

PackReport pack(std::span<const std::string> urls, const std::string& destination,
                const PackOptions& options, const Watch& watch);

}  // namespace bedplate::data
