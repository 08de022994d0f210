#include "data/dataset.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <set>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/text.h"
#include "data/internal/find_shards.h"
#include "data/manifest.h"
#include "data/parallel.h"
#include "data/permutation.h"

namespace bedplate::data {
namespace {

constexpr std::int64_t kUnknown = -1;  // samples of a shard that no manifest knows

}  // namespace

std::shared_ptr<const Dataset> Dataset::open(std::span<const std::string> urls,
                                             const DatasetOptions& options) {
  if (urls.empty()) throw Error(Code::kInvalid, "a data set needs the URL of at least one shard");
  std::vector<FoundShard> found = find_shards(urls, options);
  const std::shared_ptr<Dataset> dataset(new Dataset(found.size(), options.shard));
  KnownCounts known;
  std::vector<std::size_t> unknown;
  std::set<std::pair<store::Store*, std::string>> whole_folders;
  for (std::size_t i = 0; i < found.size(); ++i) {
    FoundShard& one = found[i];
    Shard& shard = dataset->shards_[i];
    shard.store = one.store;
    shard.object = std::move(one.object);
    shard.format = one.format;
    shard.dataset_ = dataset.get();
    shard.samples = kUnknown;
    if (one.opened) {
      shard.samples = one.opened->samples();
      shard.opened_ = new Shard::Opened(std::move(one.opened));
    } else if (one.folder) {
      shard.samples = known
                          .samples_of(*one.store, *one.folder, shard.object, shard.format->name,
                                      Deadline::after(options.shard.timeout))
                          .value_or(kUnknown);
    }
    if (shard.samples == kUnknown) unknown.push_back(i);
    if (one.of_whole_folder) whole_folders.emplace(one.store.get(), *one.folder);
  }
  if (options.missing == DatasetOptions::Missing::kRefuse) {
    for (const auto& [store, folder] : whole_folders) known.check_whole(*store, folder);
  }
  std::atomic<std::size_t> opened = 0;
  for_each_of(unknown.size(), options.open_at_once, [&](std::size_t i) {
    Shard& shard = dataset->shards_[unknown[i]];
    shard.samples = shard.index().samples();
    const std::size_t done = ++opened;
    if (options.on_open) options.on_open(done, unknown.size());
  });
  dataset->number_samples();
  dataset->notes_ = known.notes();
  dataset->cache_ = options.cache;
  return dataset;
}

Dataset::~Dataset() {
  for (Shard& shard : shards_) delete shard.opened_.load();
}

void Dataset::number_samples() {
  fingerprint_ = key_of({shards_.size()});
  for (Shard& shard : shards_) {
    shard.first = samples_;
    if (__builtin_add_overflow(samples_, shard.samples, &samples_))
      throw Error(Code::kCorrupt, "the shards claim more than 2^63 samples, up to {} in {}",
                  to_utf8(shard.object.key), shard.store->url());
    if (__builtin_add_overflow(stored_bytes_, shard.object.size, &stored_bytes_))
      throw Error(Code::kCorrupt, "the shards claim more than 2^63 bytes, up to {} in {}",
                  to_utf8(shard.object.key), shard.store->url());
    const std::string_view key = shard.object.key;
    const std::size_t name = key.rfind('/') + 1;  // a copy elsewhere is the same data
    fingerprint_ = key_of({fingerprint_, hash_of(key.substr(name)),
                           static_cast<std::uint64_t>(shard.object.size),
                           static_cast<std::uint64_t>(shard.samples)});
  }
}

const ShardIndex& Dataset::Shard::index() const {
  if (const Opened* opened = opened_.load(std::memory_order_acquire)) return **opened;
  const Nanos timeout = dataset_->options_.timeout;
  auto& locks = dataset_->locks_.get().of_shards;
  const auto number = static_cast<std::size_t>(this - dataset_->shards_.data());
  const std::unique_lock lock(locks[number % locks.size()], std::chrono::nanoseconds(timeout));
  if (!lock)
    throw Error(Code::kTimeout, "{} in {} was not opened in time: other threads open it, or others",
                to_utf8(object.key), store->url());
  if (const Opened* opened = opened_.load(std::memory_order_acquire)) return **opened;
  auto fresh = format->open(store, object, dataset_->options_);
  if (samples != kUnknown && fresh->samples() != samples) {
    throw Error(Code::kCorrupt,
                "{} in {} has {} samples, where the manifest says {}; write the manifest again",
                to_utf8(object.key), store->url(), fresh->samples(), samples);
  }
  const auto* const kept = new Opened(std::move(fresh));
  opened_.store(kept, std::memory_order_release);
  return **kept;
}

Dataset::Place Dataset::place(std::int64_t sample) const {
  if (sample < 0 || sample >= samples_)
    throw Error(Code::kInvalid, "there is no sample {}; the data set has {}", sample, samples_);
  const auto behind = std::ranges::upper_bound(shards_, sample, {}, &Shard::first);
  const auto shard = static_cast<std::size_t>(behind - shards_.begin()) - 1;
  return {shard, sample - shards_[shard].first};
}

Piece piece_of(store::Store& store, const ShardIndex& index, std::int64_t sample) {
  store::ObjectInfo scratch;
  const store::ObjectInfo& object = index.object(sample, scratch);
  const Extent extent = index.extent(sample);
  return {.store = &store,
          .key = object.key,
          .version = object.version,
          .offset = extent.offset,
          .bytes = extent.bytes};
}

void unpack_checked(const ShardIndex& index, std::int64_t sample, std::span<const std::byte> raw,
                    Sample& out) {
  const Extent extent = index.extent(sample);
  if (extent.crc && crc32c(raw) != *extent.crc)
    throw Error(Code::kCorrupt, "the checksum of its {} bytes is wrong", extent.bytes);
  index.unpack(sample, raw, out);
}

Piece Dataset::piece(std::int64_t sample) const {
  const Place at = place(sample);
  const Shard& shard = shards_[at.shard];
  return piece_of(*shard.store, shard.index(), at.sample);
}

void Dataset::unpack(std::int64_t sample, std::span<const std::byte> raw, Sample& out) const {
  const Place at = place(sample);
  unpack_checked(shards_[at.shard].index(), at.sample, raw, out);
}

std::string Dataset::name_of(std::int64_t sample) const {
  const Place at = place(sample);
  const Shard& shard = shards_[at.shard];
  store::ObjectInfo scratch;
  return fmt::format("{} of {} in {}, from byte {} on", at.sample,
                     to_utf8(shard.index().object(at.sample, scratch).key), shard.store->url(),
                     shard.index().extent(at.sample).offset);
}

Sample Dataset::get(std::int64_t sample, Deadline deadline) const {
  const Piece piece = this->piece(sample);
  // A deque's elements stay where they are when the deque is moved.
  std::deque<std::string> owned;
  owned.emplace_back(static_cast<std::size_t>(piece.bytes), '\0');
  const auto bytes = std::as_writable_bytes(std::span(owned.front()));
  try {
    store::read_exactly(
        *piece.store,
        {.key = piece.key, .offset = piece.offset, .into = bytes, .version = piece.version},
        deadline);
    Sample out;
    unpack(sample, bytes, out);
    out.raw = std::move(owned);
    return out;
  } catch (const Error& error) {
    throw Error(error.code(), "sample {} ({}): {}", sample, name_of(sample), error.what());
  }
}

std::int64_t Dataset::memory_bytes() const {
  std::int64_t bytes = 0;
  for (const Shard& shard : shards_) {
    if (const auto* opened = shard.opened_.load(std::memory_order_acquire))
      bytes += (*opened)->memory_bytes();
  }
  return bytes;
}

}  // namespace bedplate::data
