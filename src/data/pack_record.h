// pack.json, which lies beside the shards that a pack makes: what it is to make, durable before the
// first shard is; and, at the end, what was made.
//
// A value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bedplate::data {

constexpr std::string_view kPackRecordName = "pack.json";

// What becomes of a pack that lies where another one is to go.
enum class ExistingPack { kRefuse, kOverwrite };

struct PackRecord {
  enum class State {
    kClearing,  // what an earlier pack made is being removed
    kPacking,
    kDone,
  };
  State state = State::kPacking;
  // Of the pack that is at work, another one each time: it tells a pack that goes on from one that
  // has taken its place. Until it is done.
  std::string run;
  // How many bad samples might be left out, the most of all calls so far; so shards may have fewer
  // samples than were planned. Until it is done.
  std::int64_t most_bad = 0;
  // The options that decide what is made, as people give them.
  struct Option {
    std::string name;  // "--shard-bytes"
    std::string value;
  };
  std::vector<Option> options;

  struct Source {
    std::int64_t objects = 0;
    std::int64_t bytes = 0;
    std::uint64_t fingerprint = 0;  // of names, sizes and versions
  };
  Source source;
  std::string schema;                 // JSON; empty for tars
  std::vector<std::int64_t> planned;  // samples of each shard

  struct Shard {
    std::string name;
    std::int64_t samples = 0;
    std::int64_t bytes = 0;
  };
  std::vector<std::string> classes;  // the names of the labels' numbers
  std::vector<Shard> shards;         // once done
  std::int64_t skipped = 0;          // bad samples
};

std::string to_json(const PackRecord& record);
// Error{kCorrupt | kUnsupported}.
PackRecord parse_pack_record(std::string_view text);

// Why a pack that was begun as `before` cannot go on as `now`; nullopt when it can. Looks at
// options and source only.
std::optional<std::string> difference(const PackRecord& before, const PackRecord& now);

}  // namespace bedplate::data
