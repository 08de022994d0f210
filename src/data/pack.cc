#include "data/pack.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/text.h"
#include "data/pack_record.h"
#include "data/packed_index.h"
#include "data/parallel.h"
#include "data/permutation.h"
#include "data/shard_writer.h"
#include "data/tar_index.h"
#include "os/durable_file.h"

namespace bedplate::data {
namespace {

using State = PackRecord::State;
using End = PackReport::End;
using store::IfExists;

constexpr std::size_t kMostNamed = 100;  // bad samples
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
  if (name.ends_with(kTarSidecarSuffix)) name.remove_suffix(kTarSidecarSuffix.size());
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  const std::string_view rest = name.substr(digits);
  return digits >= 6 && (rest == ".shard" || rest == ".tar");
}

class Packing {
 public:
  Packing(std::span<const std::string> urls, const std::string& destination,
          const PackOptions& options, const Watch& watch)
      : urls_(urls), destination_(destination), options_(options), watch_(watch) {
    check(options);
    // With the slash it is a folder, whether it is there or not.
    auto place = store::locate(destination.ends_with('/') ? destination : destination + "/",
                               options.source.store);
    prefix_ = place.key;
    store_ = options.wrap_destination ? options.wrap_destination(place.store) : place.store;
  }

  PackReport plan() {
    prepare(look_at_source());
    if (report_.end != End::kNothingToDo) {
      report_.end = End::kPlanned;
      for (const std::int64_t n : record_.planned) report_.samples += n;
    }
    return std::move(report_);
  }

  PackReport run() {
    const SourceListing listing = look_at_source();
    claim_ = store_->claim(prefix_, Deadline::after(kLongestClaim));
    prepare(listing);
    if (report_.end == End::kNothingToDo) return std::move(report_);
    begin_writing();
    report_.abandoned = store_->remove_abandoned(prefix_, deadline());
    pack_missing();
    finish();
    return std::move(report_);
  }

 private:
  Deadline deadline() const { return Deadline::after(options_.source.timeout); }
  std::string key_of_name(std::string_view name) const {
    return fmt::format("{}{}", prefix_, name);
  }
  std::string name_of_shard(std::size_t shard) const {
    const std::size_t digits = std::to_string(record_.planned.size() - 1).size();
    return fmt::format("{:0{}}{}", shard, std::max<std::size_t>(6, digits),
                       suffix_of(options_.target));
  }
  bool overwrites() const { return options_.existing == PackOptions::Existing::kOverwrite; }

  static void check(const PackOptions& options);
  // Before anything is written.
  SourceListing look_at_source() const;
  void prepare(const SourceListing& listing);
  void look_at_destination();
  void refuse_overlaps(const SourceListing& listing) const;
  void refuse_foreign_shards() const;
  bool is_all_there() const;
  void make_plan();
  // Writing.
  void begin_writing();
  void put_record(State state, IfExists if_exists);
  void check_still_ours();
  void pack_missing();
  void take_found(std::size_t shard, const store::ObjectInfo& info);
  void make_shard(std::size_t shard, std::int64_t first, Progress& progress);
  store::ObjectInfo finish_shard(ShardWriter& writer);
  Error has_appeared(std::size_t shard);
  void leave_out(std::int64_t sample, const Error& error);
  void finish();

  const std::span<const std::string> urls_;
  const std::string& destination_;
  const PackOptions& options_;
  const Watch& watch_;
  std::shared_ptr<store::Store> store_;  // the destination, shared with its writers
  std::string prefix_;                   // of the keys in it: empty, or ends in a slash
  std::unique_ptr<store::Claim> claim_;  // none: the store has no locks, only the record tells
  std::unique_ptr<PackSource> source_;
  std::optional<PackRecord> before_;  // that lies in the destination
  // Objects in the destination by what follows the prefix: shards, and what is named like ours.
  std::map<std::string, store::ObjectInfo> there_;
  PackRecord record_;
  PackReport report_;
  bool cleared_ = false;        // what an earlier pack had made
  std::mutex mutex_;            // of what follows
  std::string record_version_;  // of pack.json as this pack has put it
  std::vector<PackRecord::Shard> made_;
  std::map<std::int64_t, std::string> bad_;
  std::atomic<std::int64_t> skipped_ = 0;
};

void Packing::check(const PackOptions& options) {
  if (options.shard_samples < 0)
    throw Error(Code::kInvalid, "shards cannot have {} samples", options.shard_samples);
  if (options.shard_samples == 0 && options.shard_bytes < kLeastShardBytes)
    throw Error(Code::kInvalid,
                "shards of {} bytes are too small: at least {}, or a number of samples",
                options.shard_bytes, human_bytes(kLeastShardBytes));
}

// The options that decide which bytes are made.
std::vector<PackRecord::Option> options_of(const PackOptions& options, const std::string& kind) {
  const SourceOptions& source = options.source;
  constexpr std::string_view kUnits[] = {"", "name", "file", "line"};
  constexpr std::string_view kKeys[] = {"text", "bytes", "none"};
  constexpr std::string_view kLabels[] = {"", "folder", "none"};
  std::vector<std::string> fill;
  for (const SourceOptions::Fill& one : source.fill)
    fill.push_back(fmt::format("{}={}", one.name, one.value));
  return {
      {"--format", options.target == Target::kPacked ? "packed" : "webdataset"},
      {"--from", kind},
      {"--sample", std::string(kUnits[static_cast<std::size_t>(source.unit)])},
      {"--shard-format", source.shard_format},
      {"--tokens", source.tokens ? std::string(name(*source.tokens)) : ""},
      {"--length", source.length > 0 ? fmt::format("{}", source.length) : ""},
      {"--schema", source.schema ? source.schema->to_json() : ""},
      {"--column", source.column},
      {"--keys", std::string(kKeys[static_cast<std::size_t>(source.keys)])},
      {"--labels", std::string(kLabels[static_cast<std::size_t>(source.labels)])},
      {"--exclude", fmt::format("{}", fmt::join(source.exclude, " "))},
      {"--fill", fmt::format("{}", fmt::join(fill, " "))},
      {"--shard-bytes", options.shard_samples > 0 ? "" : fmt::format("{}", options.shard_bytes)},
      {"--shard-samples",
       options.shard_samples > 0 ? fmt::format("{}", options.shard_samples) : ""},
      {"--shuffle", options.shuffle ? fmt::format("{}", *options.shuffle) : ""},
  };
}

SourceListing Packing::look_at_source() const {
  SourceListing listing = list_source(urls_, options_.source, watch_);
  refuse_overlaps(listing);
  return listing;
}

void Packing::prepare(const SourceListing& listing) {
  look_at_destination();
  record_.options = options_of(options_, listing.kind);
  record_.source = {std::ssize(listing.objects), listing.bytes, listing.fingerprint};
  report_.kind = listing.kind;
  report_.source_objects = record_.source.objects;
  report_.source_bytes = record_.source.bytes;
  report_.notes = listing.notes;
  refuse_foreign_shards();
  if (is_all_there()) {
    report_.end = End::kNothingToDo;
    report_.schema = before_->schema;
    report_.classes = before_->classes;
    report_.shards = std::ssize(before_->shards);
    report_.skipped = before_->skipped;
    for (const PackRecord::Shard& shard : before_->shards) {
      report_.samples += shard.samples;
      report_.bytes += shard.bytes;
    }
    return;
  }
  SourceOptions source = options_.source;
  if (options_.most_bad > 0) source.bad = SourceOptions::Bad::kSkipped;
  source_ = open_source(listing, options_.target, source, watch_);
  for (std::string& note : source_->notes()) report_.notes.push_back(std::move(note));
  make_plan();
}

void Packing::look_at_destination() {
  if (const auto info = store_->find(key_of_name(kPackRecordName), deadline())) {
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

// Reading what is written, or removing what is read, ends badly.
void Packing::refuse_overlaps(const SourceListing& listing) const {
  const std::string target = canonical(fmt::format("{}/{}", store_->url(), prefix_));
  for (const std::string& folder : listing.folders) {
    if (target.starts_with(canonical(folder))) {
      throw Error(Code::kInvalid,
                  "the destination {} lies in the source {}: give one outside of it",
                  to_utf8(destination_), to_utf8(folder));
    }
  }
  for (const SourceObject& one : listing.objects) {
    const std::string_view key = one.object.key;
    const std::size_t name = key.rfind('/') + 1;
    if (!is_name_of_ours(key.substr(name))) continue;
    if (canonical(fmt::format("{}/{}", one.store->url(), key.substr(0, name))) == target) {
      throw Error(Code::kInvalid, "{} lies in the destination {} under a name of its shards",
                  to_utf8(key), to_utf8(destination_));
    }
  }
}

void Packing::refuse_foreign_shards() const {
  for (const auto& [name, info] : there_) {
    if (before_ && is_name_of_ours(name)) continue;
    if (overwrites() && is_name_of_ours(name)) continue;
    throw Error(Code::kExists, "{} holds {}, which no pack has made here: give an empty folder{}",
                to_utf8(destination_), to_utf8(name),
                is_name_of_ours(name) ? ", or --overwrite" : "");
  }
  if (!before_ || overwrites()) return;
  if (const auto why = difference(*before_, record_)) {
    throw Error(Code::kExists,
                "{} holds another pack: {}; go on with what it was begun with, give another "
                "folder, or --overwrite",
                to_utf8(destination_), *why);
  }
}

bool Packing::is_all_there() const {
  if (!before_ || before_->state != State::kDone || overwrites()) return false;
  bool all = true;
  for (const PackRecord::Shard& shard : before_->shards) {
    const auto found = there_.find(shard.name);
    if (found == there_.end()) {
      all = false;
    } else if (found->second.size != shard.bytes) {
      throw Error(Code::kCorrupt,
                  "{} in {} has {} bytes, the pack had made {}: remove it, and it is made again",
                  shard.name, to_utf8(destination_), found->second.size, shard.bytes);
    }
  }
  if (before_->skipped > options_.most_bad) {
    throw Error(Code::kExists,
                "{} holds a pack that has left {} bad samples out: --on-bad skip:{} takes it, "
                "--overwrite begins anew",
                to_utf8(destination_), before_->skipped, before_->skipped);
  }
  return all;
}

void Packing::make_plan() {
  const std::int64_t samples = source_->samples();
  std::optional<Permutation> shuffled;
  if (options_.shuffle) shuffled.emplace(samples, key_of({*options_.shuffle}));
  std::int64_t in_shard = 0;
  std::int64_t bytes = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::int64_t more =
        options_.shard_samples > 0
            ? 0
            : bytes_in_shard(options_.target, source_->cost(shuffled ? shuffled->at(i) : i));
    const bool full = options_.shard_samples > 0 ? in_shard == options_.shard_samples
                                                 : bytes + more > options_.shard_bytes;
    if (in_shard > 0 && full) {
      record_.planned.push_back(in_shard);
      in_shard = bytes = 0;
    }
    ++in_shard;
    bytes += more;
  }
  record_.planned.push_back(in_shard);
  if (options_.target == Target::kPacked) record_.schema = source_->schema().to_json();
  record_.classes = source_->classes();
  report_.schema = record_.schema;
  report_.classes = record_.classes;
  report_.shards = std::ssize(record_.planned);
  if (before_ && !overwrites() && before_->state != State::kClearing &&
      (before_->planned != record_.planned || before_->schema != record_.schema)) {
    throw Error(Code::kExists,
                "{} holds a pack of another Bedplate, which divides samples otherwise: give "
                "another folder, or --overwrite",
                to_utf8(destination_));
  }
}

void Packing::put_record(State state, IfExists if_exists) {
  record_.state = state;
  record_version_ = store::put(*store_, key_of_name(kPackRecordName), to_json(record_), if_exists,
                               options_.source.timeout)
                        .version;
}

// From here on the destination is ours. What an earlier pack has made is removed before anything
// else: no shard of it can be taken for one of this pack.
void Packing::begin_writing() {
  cleared_ = overwrites() || (before_ && before_->state == State::kClearing);
  record_.run = fmt::format("{:016x}", os::random_bits());
  record_.most_bad = options_.most_bad;
  if (before_ && !cleared_) record_.most_bad = std::max(record_.most_bad, before_->most_bad);
  if (cleared_) {
    put_record(State::kClearing, IfExists::kReplace);
    for (const auto& [name, info] : there_) store_->remove(info.key, deadline());
    there_.clear();
  }
  try {
    put_record(State::kPacking, before_ || cleared_ ? IfExists::kReplace : IfExists::kRefuse);
  } catch (const Error& error) {
    if (error.code() != Code::kExists) throw;
    throw Error(Code::kExists, "another pack has begun in {} meanwhile: wait for its end",
                to_utf8(destination_));
  }
}

// That no other pack has taken our place, where no lock keeps it from that.
void Packing::check_still_ours() {
  const auto info = store_->find(key_of_name(kPackRecordName), deadline());
  std::string run;
  if (info) {
    const std::lock_guard lock(mutex_);
    if (info->version == record_version_) return;
  }
  if (info) run = parse_pack_record(store::get(*store_, info->key, kGiB, deadline())).run;
  if (run == record_.run) return;
  throw Error(Code::kExists, "{} in {} is no more what this pack has written: {}",
              to_utf8(key_of_name(kPackRecordName)), store_->url(),
              info ? "another pack has taken its place, and this one ends"
                   : "it was removed; the same call with --overwrite begins anew");
}

void Packing::pack_missing() {
  std::vector<std::int64_t> firsts;
  std::vector<std::size_t> missing;
  std::int64_t samples = 0;
  made_.resize(record_.planned.size());
  for (std::size_t i = 0; i < record_.planned.size(); ++i) {
    firsts.push_back(samples);
    samples += record_.planned[i];
    const auto found = there_.find(name_of_shard(i));
    if (found == there_.end()) {
      missing.push_back(i);
    } else {
      take_found(i, found->second);
    }
  }
  Progress progress(watch_, "packing", "samples", samples);
  if (skipped_ > options_.most_bad) {
    throw Error(Code::kExists,
                "{} bad samples were left out of the shards in {} already: --on-bad skip:N with as "
                "many goes on, --overwrite begins anew",
                skipped_.load(), to_utf8(destination_));
  }
  try {
    std::int64_t found = samples;
    for (const std::size_t i : missing) found -= record_.planned[i];
    progress.add(found, 0);
    for_each_of(missing.size(), options_.source.threads, [&](std::size_t i) {
      try {
        make_shard(missing[i], firsts[missing[i]], progress);
      } catch (const Error& error) {
        if (error.code() != Code::kExists) throw;
        throw has_appeared(missing[i]);
      }
    });
  } catch (const Error&) {
    if (!watch_.stopped()) throw;
    report_.end = End::kStopped;
  }
}

// A shard that was there when this run began. Whatever lies under its name was made whole; how many
// samples were left out of it, only it knows.
void Packing::take_found(std::size_t shard, const store::ObjectInfo& info) {
  const std::int64_t planned = record_.planned[shard];
  std::int64_t samples = planned;
  if (before_ && before_->state == State::kDone) {
    samples = before_->shards[shard].samples;
  } else if (options_.target == Target::kPacked) {
    samples = open_packed(*store_, info, CutOff::kRefuse, deadline())->samples();
  } else if (record_.most_bad > 0) {
    samples = scan_tar(*store_, info, CutOff::kRefuse, deadline())->samples();
  }
  if (samples > planned || (samples < planned && options_.most_bad == 0)) {
    throw Error(Code::kCorrupt, "{} in {} has {} samples where {} were planned{}",
                to_utf8(info.key), store_->url(), samples, planned,
                samples < planned ? "; --on-bad skip:N takes shards with samples left out" : "");
  }
  skipped_ += planned - samples;
  made_[shard] = {name_of_shard(shard), samples, info.size};
}

void Packing::make_shard(std::size_t shard, std::int64_t first, Progress& progress) {
  const std::string name = name_of_shard(shard);
  const std::int64_t end = first + record_.planned[shard];
  std::optional<Permutation> shuffled;
  if (options_.shuffle) shuffled.emplace(source_->samples(), key_of({*options_.shuffle}));
  const auto writer = make_shard_writer(
      options_.target, options_.target == Target::kPacked ? &source_->schema() : nullptr,
      store_->create(key_of_name(name), IfExists::kRefuse, options_.source.timeout));
  PieceReader reader(options_.source.timeout);
  std::vector<std::int64_t> numbers;  // of the samples in a window
  std::vector<std::size_t> begins;    // of their pieces
  std::vector<Piece> pieces;
  std::vector<std::span<const std::byte>> raw;
  Sample sample;
  for (std::int64_t at = first; at < end;) {
    numbers.clear();
    begins.clear();
    pieces.clear();
    std::int64_t bytes = 0;
    for (; at < end && bytes < kWindowBytes && std::ssize(numbers) < kWindowSamples; ++at) {
      numbers.push_back(shuffled ? shuffled->at(at) : at);
      begins.push_back(pieces.size());
      source_->pieces(numbers.back(), pieces);
      for (std::size_t i = begins.back(); i < pieces.size(); ++i) bytes += pieces[i].bytes;
    }
    begins.push_back(pieces.size());
    reader.read(pieces);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      try {
        raw.clear();
        for (std::size_t p = begins[i]; p < begins[i + 1]; ++p) {
          if (pieces[p].error) throw *pieces[p].error;
          raw.push_back(pieces[p].got);
        }
        source_->unpack(numbers[i], raw, sample);
      } catch (const Error& error) {
        leave_out(numbers[i], error);
        continue;
      }
      try {
        writer->add(sample, numbers[i]);
      } catch (const Error& error) {
        if (error.code() != Code::kInvalid) throw;  // the destination's
        leave_out(numbers[i], error);
      }
    }
    progress.add(std::ssize(numbers), bytes);
  }
  const std::int64_t samples = writer->samples();
  const store::ObjectInfo info = finish_shard(*writer);
  const std::lock_guard lock(mutex_);
  made_[shard] = {name, samples, info.size};
  ++report_.shards_made;
}

// Where no lock keeps others away, they are noticed: before, so that nothing of ours comes among
// what is theirs, and after, since they may have begun in between.
store::ObjectInfo Packing::finish_shard(ShardWriter& writer) {
  if (claim_) return writer.finish();
  check_still_ours();
  const store::ObjectInfo info = writer.finish();
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

// A shard that was not there when this pack began: somebody else writes here. After what an earlier
// pack had made was removed, it may be that very pack, whose shards are not ours: all is made
// again.
Error Packing::has_appeared(std::size_t shard) {
  try {
    check_still_ours();
  } catch (const Error& error) {
    return error;
  }
  if (cleared_) {
    const std::lock_guard lock(mutex_);
    put_record(State::kClearing, IfExists::kReplace);
  }
  return {
      Code::kExists,
      "{} has appeared in {} while this pack was at work: somebody else writes there; end that, "
      "then the same call {}",
      name_of_shard(shard), to_utf8(destination_), cleared_ ? "begins anew" : "goes on"};
}

// Throws it, unless it is to be skipped.
void Packing::leave_out(std::int64_t sample, const Error& error) {
  const std::string text =
      fmt::format("sample {} ({}): {}", sample, source_->name_of(sample), error.what());
  const bool of_the_sample = error.code() != Code::kTimeout && error.code() != Code::kUnavailable &&
                             error.code() != Code::kNoSpace && error.code() != Code::kInternal;
  if (!of_the_sample || options_.most_bad == 0) throw Error(error.code(), "{}", text);
  if (++skipped_ > options_.most_bad) {
    throw Error(error.code(), "{}; this is one bad sample more than the {} that may be skipped",
                text, options_.most_bad);
  }
  const std::lock_guard lock(mutex_);
  bad_.emplace(sample, text);
  if (bad_.size() > kMostNamed) bad_.erase(std::prev(bad_.end()));
}

void Packing::finish() {
  report_.skipped = skipped_;
  for (const auto& [sample, text] : bad_) report_.bad.push_back(text);
  for (const PackRecord::Shard& shard : made_) {
    report_.samples += shard.samples;
    report_.bytes += shard.bytes;
  }
  if (report_.end == End::kStopped) return;
  check_still_ours();
  record_.shards = made_;
  record_.skipped = skipped_;
  put_record(State::kDone, IfExists::kReplace);
}

PackReport stopped(const Watch& watch, const std::function<PackReport()>& work) {
  try {
    return work();
  } catch (const Error&) {
    if (!watch.stopped()) throw;
    return {.end = End::kStopped};  // before anything was written
  }
}

}  // namespace

PackReport plan_pack(std::span<const std::string> urls, const std::string& destination,
                     const PackOptions& options, const Watch& watch) {
  return stopped(watch, [&] { return Packing(urls, destination, options, watch).plan(); });
}

PackReport pack(std::span<const std::string> urls, const std::string& destination,
                const PackOptions& options, const Watch& watch) {
  return stopped(watch, [&] { return Packing(urls, destination, options, watch).run(); });
}

}  // namespace bedplate::data
