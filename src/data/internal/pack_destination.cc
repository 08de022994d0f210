#include "data/internal/pack_destination.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"
#include "data/format.h"
#include "data/scanned_index.h"
#include "os/durable_file.h"

namespace bedplate::data {
namespace {

using State = PackRecord::State;
using store::IfExists;

constexpr std::int64_t kLeastShardBytes = 64 * kKiB;
// For a pack that was killed to come to its end.
constexpr Nanos kLongestClaim = kSecond;

// "s3://bucket/a" for all spellings of it; links are followed.
std::string canonical(const std::string& place) {
  std::string out = place;
  if (place.starts_with('/')) {
    std::error_code error;
    const auto path = std::filesystem::weakly_canonical(place, error);
    if (!error) out = path.string();
  }
  while (out.ends_with('/')) out.pop_back();
  return out + "/";
}

std::string_view suffix_of(Target target) { return target == Target::kPacked ? ".shard" : ".tar"; }

// "000017.tar", and the index beside it: names that a pack gives.
bool is_name_of_ours(std::string_view name) {
  if (name.ends_with(kSidecarSuffix)) name.remove_suffix(kSidecarSuffix.size());
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  const std::string_view rest = name.substr(digits);
  return digits >= 6 && (rest == ".shard" || rest == ".tar");
}

}  // namespace

void check_shard_size(std::int64_t bytes, std::int64_t samples) {
  if (samples < 0) throw Error(Code::kInvalid, "shards cannot have {} samples", samples);
  if (samples == 0 && bytes < kLeastShardBytes)
    throw Error(Code::kInvalid,
                "shards of {} bytes are too small: at least {}, or a number of samples", bytes,
                human_bytes(kLeastShardBytes));
}

PackDestination::PackDestination(const std::string& url, Options options)
    : url_(url), options_(std::move(options)) {
  // With the slash it is a folder, whether it is there or not.
  auto place = store::locate(url.ends_with('/') ? url : url + "/", options_.store);
  prefix_ = place.key;
  store_ = options_.wrap ? options_.wrap(place.store) : place.store;
}

std::string PackDestination::key_of(std::string_view name) const {
  return fmt::format("{}{}", prefix_, name);
}

std::string PackDestination::name_of_shard(std::size_t shard, std::size_t shards) const {
  const std::size_t digits = std::to_string(std::max<std::size_t>(1, shards) - 1).size();
  return fmt::format("{:0{}}{}", shard, std::max<std::size_t>(6, digits),
                     suffix_of(options_.target));
}

void PackDestination::look() {
  if (const auto info = store_->find(key_of(kPackRecordName), deadline())) {
    try {
      before_ = parse_pack_record(store::get(*store_, info->key, kGiB, deadline()));
    } catch (const Error& error) {
      if (!overwrites())
        throw Error(error.code(), "{} in {} cannot be gone on with: {}; --overwrite begins anew",
                    to_utf8(info->key), store_->url(), error.what());
    }
  }
  store_->list(
      prefix_,
      [&](const store::ObjectInfo& info) {
        std::string name = info.key.substr(prefix_.size());
        if (is_name_of_ours(name) || format_of_shard(name) != nullptr)
          there_.emplace(std::move(name), info);
      },
      deadline());
}

void PackDestination::refuse_overlaps(const SourceListing& listing) const {
  const std::string target = canonical(fmt::format("{}/{}", store_->url(), prefix_));
  for (const std::string& folder : listing.folders) {
    if (target.starts_with(canonical(folder))) {
      throw Error(Code::kInvalid,
                  "the destination {} lies in the source {}: give one outside of it", to_utf8(url_),
                  to_utf8(folder));
    }
  }
  for (const SourceObject& one : listing.objects) {
    const std::string_view key = one.object.key;
    const std::size_t name = key.rfind('/') + 1;
    if (!is_name_of_ours(key.substr(name))) continue;
    if (canonical(fmt::format("{}/{}", one.store->url(), key.substr(0, name))) == target) {
      throw Error(Code::kInvalid, "{} lies in the destination {} under a name of its shards",
                  to_utf8(key), to_utf8(url_));
    }
  }
}

void PackDestination::refuse_what_is_not_ours(const PackRecord& now) const {
  for (const auto& [name, info] : there_) {
    if (before_ && is_name_of_ours(name)) continue;
    if (overwrites() && is_name_of_ours(name)) continue;
    throw Error(Code::kExists, "{} holds {}, which no pack has made here: give an empty folder{}",
                to_utf8(url_), to_utf8(name), is_name_of_ours(name) ? ", or --overwrite" : "");
  }
  if (!before_ || overwrites()) return;
  if (const auto why = difference(*before_, now)) {
    throw Error(Code::kExists,
                "{} holds another pack: {}; go on with what it was begun with, give another "
                "folder, or --overwrite",
                to_utf8(url_), *why);
  }
}

bool PackDestination::is_all_there() const {
  if (!before_ || before_->state != State::kDone || overwrites()) return false;
  bool all = true;
  for (const PackRecord::Shard& shard : before_->shards) {
    const store::ObjectInfo* found = find(shard.name);
    if (found == nullptr) {
      all = false;
    } else if (found->size != shard.bytes) {
      throw Error(Code::kCorrupt,
                  "{} in {} has {} bytes, the pack had made {}: remove it, and it is made again",
                  shard.name, to_utf8(url_), found->size, shard.bytes);
    }
  }
  return all;
}

void PackDestination::claim() { claim_ = store_->claim(prefix_, Deadline::after(kLongestClaim)); }

void PackDestination::put(PackRecord& record, State state, IfExists if_exists) {
  record.state = state;
  const auto info =
      store::put(*store_, key_of(kPackRecordName), to_json(record), if_exists, options_.timeout);
  const std::lock_guard lock(mutex_);
  version_ = info.version;
}

void PackDestination::begin(PackRecord& record) {
  cleared_ = overwrites() || (before_ && before_->state == State::kClearing);
  fresh_ = !before_ || cleared_;
  run_ = record.run = fmt::format("{:016x}", os::random_bits());
  if (!fresh_) record.most_bad = std::max(record.most_bad, before_->most_bad);
  if (cleared_) {
    put(record, State::kClearing, IfExists::kReplace);
    for (const auto& [name, info] : there_) store_->remove(info.key, deadline());
    there_.clear();
  }
  try {
    put(record, State::kPacking, before_ || cleared_ ? IfExists::kReplace : IfExists::kRefuse);
  } catch (const Error& error) {
    if (error.code() != Code::kExists) throw;
    throw Error(Code::kExists, "another pack has begun in {} meanwhile: wait for its end",
                to_utf8(url_));
  }
}

void PackDestination::end(PackRecord& record) {
  check_still_ours();
  put(record, State::kDone, IfExists::kReplace);
  release();
}

// That no other pack has taken our place, where no lock keeps it from that.
void PackDestination::check_still_ours() {
  const auto info = store_->find(key_of(kPackRecordName), deadline());
  if (info) {
    const std::lock_guard lock(mutex_);
    if (info->version == version_) return;
  }
  std::string run;
  if (info) run = parse_pack_record(store::get(*store_, info->key, kGiB, deadline())).run;
  if (run == run_) return;
  throw Error(Code::kExists, "{} in {} is no more what this pack has written: {}",
              to_utf8(key_of(kPackRecordName)), store_->url(),
              info ? "another pack has taken its place, and this one ends"
                   : "it was removed; the same call with --overwrite begins anew");
}

store::ObjectInfo PackDestination::finish(const std::function<store::ObjectInfo()>& writer) {
  if (claim_) return writer();
  check_still_ours();
  const store::ObjectInfo info = writer();
  try {
    check_still_ours();
  } catch (const Error& error) {
    const auto there = store_->find(info.key, deadline());
    if (error.code() == Code::kExists && there && there->version == info.version)
      store_->remove(info.key, deadline());
    throw;
  }
  return info;
}

Error PackDestination::has_appeared(const std::string& name, const PackRecord& record) {
  try {
    check_still_ours();
  } catch (const Error& error) {
    return error;
  }
  if (cleared_) {
    PackRecord anew = record;
    put(anew, State::kClearing, IfExists::kReplace);
  }
  return {Code::kExists,
          "{} has appeared in {} while this pack was at work: somebody else writes there; end "
          "that, then the same call {}",
          name, to_utf8(url_), cleared_ ? "begins anew" : "goes on"};
}

void PackDestination::withdraw() const {
  if (fresh_) store_->remove(key_of(kPackRecordName), deadline());
}

const store::ObjectInfo* PackDestination::find(const std::string& name) const {
  const auto found = there_.find(name);
  return found == there_.end() ? nullptr : &found->second;
}

std::unique_ptr<store::ObjectWriter> PackDestination::create(std::string_view name) const {
  return store_->create(key_of(name), IfExists::kRefuse, options_.timeout);
}

}  // namespace bedplate::data
