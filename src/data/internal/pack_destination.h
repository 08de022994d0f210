// Where packed shards go: what lies there, whether that may be gone on with, and pack.json.
//
//   PackDestination to(url, options);
//   to.claim();                         // no other pack of this machine is at work here
//   to.look();                          // reads pack.json and the names that are there
//   to.refuse_what_is_not_ours(record); // throws; nothing was written yet
//   to.begin(record);                   // from here on it is ours
//   … to.create("000000.shard") … to.finish([&] { return writer.finish(); }) …
//   to.end(record);
//
// Where the store has locks, claim() keeps other packs away. Where it has none they are noticed:
// the record has an identity of its own for each run, which is looked at before and after each
// shard.
//
// One thread, but create(), finish() and has_appeared(), which any may call. Errors are those of
// the store, and those that are named.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/error.h"
#include "data/pack_record.h"
#include "data/pack_source.h"
#include "store/driver.h"

namespace bedplate::data {

// Error{kInvalid} for shards that cannot be so large. samples: 0 when bytes decide.
void check_shard_size(std::int64_t bytes, std::int64_t samples);

class PackDestination {
 public:
  struct Options {
    Target target = Target::kPacked;
    ExistingPack existing = ExistingPack::kRefuse;
    Nanos timeout = 600 * kSecond;
    store::StoreOptions store = {};
    std::function<std::shared_ptr<store::Store>(std::shared_ptr<store::Store>)> wrap = {};
  };

  PackDestination(const std::string& url, Options options);

  // Error{kInvalid} when it lies in what is packed, or what is packed in it: reading what is
  // written, or removing what is read, ends badly.
  void refuse_overlaps(const SourceListing& listing) const;
  void look();
  // Error{kExists} for shards that no pack has made here, and for another pack than `now`.
  void refuse_what_is_not_ours(const PackRecord& now) const;
  // Error{kExists} when another pack is at work here. Until end(), release() or the destructor.
  void claim();
  void release() { claim_.reset(); }
  // Whether the pack that made what is there ended, and all its shards are there. Error{kCorrupt}
  // when one has another size.
  bool is_all_there() const;
  // What lies there goes on as it was begun, unless it is to be overwritten: then, and when that
  // was once begun, it is all removed before anything else, so that no shard of an earlier pack
  // can be taken for one of this.
  void begin(PackRecord& record);
  void end(PackRecord& record);
  // Takes back the pack.json that begin() wrote, for a pack that failed before its first shard:
  // it may be begun otherwise. What was gone on with stays.
  void withdraw() const;
  std::int64_t remove_abandoned() const { return store_->remove_abandoned(prefix_, deadline()); }

  // "000017.shard"; `shards`: how many there will be, or 0.
  std::string name_of_shard(std::size_t shard, std::size_t shards) const;
  // A shard that was there when it was looked at.
  const store::ObjectInfo* find(const std::string& name) const;
  std::unique_ptr<store::ObjectWriter> create(std::string_view name) const;
  // Ends a shard's writer. Error{kExists} when another pack has taken our place, among whose shards
  // nothing of ours is left.
  store::ObjectInfo finish(const std::function<store::ObjectInfo()>& writer);
  // The error for a shard that create() or finish() found there although it was not when this pack
  // began: somebody else writes here. After what an earlier pack had made was removed, it may be
  // that very pack, whose shards are not ours: all is made again.
  Error has_appeared(const std::string& name, const PackRecord& record);

  bool overwrites() const { return options_.existing == ExistingPack::kOverwrite; }
  // pack.json as it was; nullopt when there was none.
  const std::optional<PackRecord>& before() const { return before_; }
  const std::string& url() const { return url_; }
  store::Store& store() const { return *store_; }
  Deadline deadline() const { return Deadline::after(options_.timeout); }

 private:
  std::string key_of(std::string_view name) const;
  void put(PackRecord& record, PackRecord::State state, store::IfExists if_exists);
  void check_still_ours();

  const std::string url_;
  const Options options_;
  std::shared_ptr<store::Store> store_;  // shared with its writers
  std::string prefix_;                   // of the keys in it: empty, or ends in a slash
  std::unique_ptr<store::Claim> claim_;  // none: the store has no locks, only the record tells
  std::optional<PackRecord> before_;
  bool fresh_ = false;    // nothing of an earlier pack is gone on with
  bool cleared_ = false;  // what an earlier pack had made
  std::string run_;       // PackRecord::run
  std::mutex mutex_;      // of what follows
  std::string version_;   // of pack.json as we have put it
  // By what follows the prefix: shards, and what is named like ours.
  std::map<std::string, store::ObjectInfo> there_;
};

}  // namespace bedplate::data
