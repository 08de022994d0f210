#include "data/pack.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/text.h"
#include "data/internal/pack_destination.h"
#include "data/pack_record.h"
#include "data/packed_index.h"
#include "data/parallel.h"
#include "data/permutation.h"
#include "data/shard_writer.h"
#include "data/tar_index.h"

namespace bedplate::data {
namespace {

using State = PackRecord::State;
using End = PackReport::End;

constexpr std::size_t kMostNamed = 100;  // bad samples

class Packing {
 public:
  Packing(std::span<const std::string> urls, const std::string& destination,
          const PackOptions& options, const Watch& watch)
      : urls_(urls),
        options_(options),
        watch_(watch),
        destination_(destination, {.target = options.target,
                                   .existing = options.existing,
                                   .timeout = options.source.timeout,
                                   .store = options.source.store,
                                   .wrap = options.wrap_destination}) {
    check_shard_size(options.shard_bytes, options.shard_samples);
  }

  PackReport plan() {
    prepare(look_at_source());
    if (report_.end == End::kDone) {
      report_.end = End::kPlanned;
      for (const std::int64_t n : record_.planned) report_.samples += n;
    }
    return std::move(report_);
  }

  PackReport run() {
    const SourceListing listing = look_at_source();
    if (listing.kind != kParquet) destination_.claim();
    prepare(listing);
    if (report_.end != End::kDone) return std::move(report_);
    record_.most_bad = options_.most_bad;
    destination_.begin(record_);
    report_.abandoned = destination_.remove_abandoned();
    pack_missing();
    finish();
    return std::move(report_);
  }

 private:
  std::string name_of_shard(std::size_t shard) const {
    return destination_.name_of_shard(shard, record_.planned.size());
  }

  // Before anything is written.
  SourceListing look_at_source() const;
  void prepare(const SourceListing& listing);
  void make_plan();
  // Writing.
  void pack_missing();
  void refuse_left_out(std::int64_t skipped) const;
  void take_found(std::size_t shard, const store::ObjectInfo& info);
  void make_shard(std::size_t shard, std::int64_t first, Progress& progress);
  void leave_out(std::int64_t sample, const Error& error);
  void finish();

  const std::span<const std::string> urls_;
  const PackOptions& options_;
  const Watch& watch_;
  PackDestination destination_;
  std::unique_ptr<PackSource> source_;
  PackRecord record_;
  PackReport report_;
  std::mutex mutex_;  // of what follows
  std::vector<PackRecord::Shard> made_;
  std::map<std::int64_t, std::string> bad_;
  std::atomic<std::int64_t> skipped_ = 0;
};

// The options that decide which bytes are made.
std::vector<PackRecord::Option> options_of(const PackOptions& options, const std::string& kind) {
  const PackSourceOptions& source = options.source;
  constexpr std::string_view kUnits[] = {"", "name", "file", "line"};
  constexpr std::string_view kKeys[] = {"text", "bytes", "none"};
  constexpr std::string_view kLabels[] = {"", "folder", "none"};
  std::vector<std::string> fill;
  for (const PackSourceOptions::Fill& one : source.fill)
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
  if (listing.kind != kParquet) destination_.refuse_overlaps(listing);
  return listing;
}

void Packing::prepare(const SourceListing& listing) {
  report_.kind = listing.kind;
  if (listing.kind == kParquet) {
    report_.end = End::kForPython;
    return;
  }
  destination_.look();
  record_.options = options_of(options_, listing.kind);
  record_.source = {std::ssize(listing.objects), listing.bytes, listing.fingerprint};
  report_.source_objects = record_.source.objects;
  report_.source_bytes = record_.source.bytes;
  report_.notes = listing.notes;
  destination_.refuse_what_is_not_ours(record_);
  if (destination_.is_all_there()) {
    const PackRecord& before = *destination_.before();
    refuse_left_out(before.skipped);
    report_.end = End::kNothingToDo;
    report_.schema = before.schema;
    report_.classes = before.classes;
    report_.shards = std::ssize(before.shards);
    report_.skipped = before.skipped;
    for (const PackRecord::Shard& shard : before.shards) {
      report_.samples += shard.samples;
      report_.bytes += shard.bytes;
    }
    return;
  }
  PackSourceOptions source = options_.source;
  if (options_.most_bad > 0) source.bad = PackSourceOptions::Bad::kSkipped;
  source_ = open_source(listing, options_.target, source, watch_);
  for (std::string& note : source_->notes()) report_.notes.push_back(std::move(note));
  make_plan();
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
  const auto& before = destination_.before();
  if (before && !destination_.overwrites() && before->state != State::kClearing &&
      (before->planned != record_.planned || before->schema != record_.schema)) {
    throw Error(Code::kExists,
                "{} holds a pack of another Bedplate, which divides samples otherwise: give "
                "another folder, or --overwrite",
                destination_.store().url());
  }
}

void Packing::pack_missing() {
  std::vector<std::int64_t> firsts;
  std::vector<std::size_t> missing;
  std::int64_t samples = 0;
  made_.resize(record_.planned.size());
  for (std::size_t i = 0; i < record_.planned.size(); ++i) {
    firsts.push_back(samples);
    samples += record_.planned[i];
    if (const store::ObjectInfo* found = destination_.find(name_of_shard(i))) {
      take_found(i, *found);
    } else {
      missing.push_back(i);
    }
  }
  Progress progress(watch_, "packing", "samples", samples);
  refuse_left_out(skipped_);
  try {
    std::int64_t found = samples;
    for (const std::size_t i : missing) found -= record_.planned[i];
    progress.add(found, 0);
    for_each_of(missing.size(), options_.source.threads, [&](std::size_t i) {
      try {
        make_shard(missing[i], firsts[missing[i]], progress);
      } catch (const Error& error) {
        if (error.code() != Code::kExists) throw;
        throw destination_.has_appeared(name_of_shard(missing[i]), record_);
      }
    });
  } catch (const Error&) {
    if (!watch_.stopped()) throw;
    report_.end = End::kStopped;
  }
}

// What was left out of shards that are there must be no more than what may be.
void Packing::refuse_left_out(std::int64_t skipped) const {
  if (skipped <= options_.most_bad) return;
  throw Error(Code::kExists,
              "{} bad samples were left out of the shards in {} already: --on-bad skip:{} goes on "
              "with them, --overwrite begins anew",
              skipped, to_utf8(destination_.url()), skipped);
}

// A shard that was there when this run began. Whatever lies under its name was made whole; how many
// samples were left out of it, only it knows.
void Packing::take_found(std::size_t shard, const store::ObjectInfo& info) {
  const std::int64_t planned = record_.planned[shard];
  store::Store& store = destination_.store();
  const Deadline deadline = destination_.deadline();
  std::int64_t samples = planned;
  const auto& before = destination_.before();
  if (before && before->state == PackRecord::State::kDone) {
    samples = before->shards[shard].samples;
  } else if (options_.target == Target::kPacked) {
    samples = open_packed(store, info, CutOff::kRefuse, deadline)->samples();
  } else if (record_.most_bad > 0) {
    samples = scan_tar(store, info, CutOff::kRefuse, deadline)->samples();
  }
  if (samples > planned || (samples < planned && options_.most_bad == 0)) {
    throw Error(Code::kCorrupt, "{} in {} has {} samples where {} were planned{}",
                to_utf8(info.key), store.url(), samples, planned,
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
      destination_.create(name));
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
  const store::ObjectInfo info = destination_.finish([&] { return writer->finish(); });
  const std::lock_guard lock(mutex_);
  made_[shard] = {name, samples, info.size};
  ++report_.shards_made;
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
  record_.shards = made_;
  record_.skipped = skipped_;
  destination_.end(record_);
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
