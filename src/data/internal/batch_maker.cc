#include "data/internal/batch_maker.h"

#include <time.h>

#include <algorithm>
#include <tuple>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/text.h"
#include "data/permutation.h"

namespace bedplate::data {
namespace {

constexpr std::size_t kMostTold = 100;  // bad samples
constexpr std::int64_t kArenaAlign = 16;

Nanos thread_cpu_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

// Errors of the sample's own; others are of the machine or of the caller, and no sample's fault.
bool is_of_the_sample(const Error& error) {
  return error.code() == Code::kCorrupt || error.code() == Code::kIo ||
         error.code() == Code::kNotFound || error.code() == Code::kUnsupported;
}

Collator collator_of(const Source& source, const LoaderOptions& options) {
  if (options.decode) {
    if (!options.fields.empty())
      throw Error(Code::kInvalid, "fields and a decode function exclude each other");
    Sample nothing;
    nothing.fields.push_back({.name = "none", .dtype = Dtype::kBytes, .shape = {0}, .bytes = {}});
    return Collator({}, nothing);
  }
  const Dataset& first = source.dataset(0);
  for (std::int64_t i = 0;; ++i) {
    try {
      return Collator(options.fields, first.get(i, Deadline::after(options.read_timeout)));
    } catch (const Error& error) {
      const bool go_on = options.on_bad == OnBad::kSkip && is_of_the_sample(error);
      if (!go_on || i == options.most_skipped || i + 1 == first.samples()) throw;
    }
  }
}

}  // namespace

// --- what threads share -----------------------------------------------------------------------

LoaderShared::LoaderShared(std::shared_ptr<const Source> source, LoaderOptions options)
    : source_(std::move(source)),
      options_(std::move(options)),
      collator_(collator_of(*source_, options_)),
      window_(WindowMemory::open(*source_, options_.keep_window)),
      parts_(source_->parts()) {
  for (std::size_t i = 1; i < parts_.size(); ++i) check_part(i);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Dataset& dataset = source_->dataset(i);
    parts_[i].into_rows = std::make_unique<std::atomic<std::int8_t>[]>(dataset.shards().size());
    if (options_.verify == Verify::kFirst) {
      parts_[i].checked = std::make_unique<std::atomic<std::uint64_t>[]>(
          static_cast<std::size_t>(dataset.samples() + 63) / 64);
    }
  }
}

// Columns are made of the first part's first sample: the others must have the same.
void LoaderShared::check_part(std::size_t part) const {
  if (options_.decode) return;
  const Sample example = source_->dataset(part).get(0, Deadline::after(options_.read_timeout));
  const auto mismatch = [&](std::string_view what) {
    return Error(Code::kInvalid, "data set {} of the mix does not go with the first: {}", part,
                 what);
  };
  try {
    const Collator own(options_.fields, example);
    if (own.names() != collator_.names())
      throw Error(Code::kInvalid,
                  "its fields are {}, those of the first {}; name in fields= what to take",
                  own.names(), collator_.names());
    if (!own.same_columns(collator_))
      throw Error(Code::kInvalid, "types or shapes of its fields are others");
  } catch (const Error& error) {
    throw mismatch(error.what());
  }
}

bool LoaderShared::reads_into_rows(std::size_t part, std::size_t shard) {
  std::atomic<std::int8_t>& known = parts_[part].into_rows[shard];
  std::int8_t answer = known.load(std::memory_order_relaxed);
  if (answer == 0) {
    const ShardIndex& index = source_->dataset(part).shards()[shard].index();
    answer = !options_.decode && collator_.whole_record(index) ? 2 : 1;
    known.store(answer, std::memory_order_relaxed);
  }
  return answer == 2;
}

bool LoaderShared::checks(std::size_t part, std::int64_t sample) const {
  if (options_.verify != Verify::kFirst) return options_.verify == Verify::kAlways;
  const auto at = static_cast<std::uint64_t>(sample);
  return (parts_[part].checked[at / 64].load(std::memory_order_relaxed) >> at % 64 & 1) == 0;
}

void LoaderShared::checked(std::size_t part, std::int64_t sample) {
  if (options_.verify != Verify::kFirst) return;
  const auto at = static_cast<std::uint64_t>(sample);
  parts_[part].checked[at / 64].fetch_or(std::uint64_t{1} << at % 64, std::memory_order_relaxed);
}

void LoaderShared::skip(std::int64_t sample, const Error& error) {
  const std::lock_guard lock(mutex_);
  ++skipped_;
  if (bad_.size() < kMostTold) bad_.push_back({sample, error.what()});
  if (skipped_ > options_.most_skipped) {
    throw Error(error.code(), "{} (bad sample number {}; at most {} are to be skipped)",
                error.what(), skipped_, options_.most_skipped);
  }
}

std::int64_t LoaderShared::skipped() const {
  const std::lock_guard lock(mutex_);
  return skipped_;
}

std::vector<BadSample> LoaderShared::bad() const {
  const std::lock_guard lock(mutex_);
  return bad_;
}

// --- one batch --------------------------------------------------------------------------------

std::shared_ptr<Batch> BatchMaker::make(const Source::Epoch& epoch, std::int64_t epoch_number,
                                        const Share& share, std::shared_ptr<Slab> slab) {
  const Nanos begun = real_clock().now();
  const auto batch = std::make_shared<Batch>();
  shared_.collator().lay_out(share.count, std::move(slab), *batch);
  by_window_ = shared_.window() != nullptr && !epoch.is_listed();
  draw(epoch, share);
  place_in_memory(*batch);
  read(in_order_);
  const Nanos began_cpu = thread_cpu_time();
  if (shared_.options().decode) {
    decode_by_caller(epoch_number, *batch);
  } else {
    fill(epoch_number, *batch);
    shared_.collator().finish(*batch);
  }
  shared_.decode_ns += thread_cpu_time() - began_cpu;
  shared_.samples += share.count;
  shared_.make_ns += real_clock().now() - begun;
  return batch;
}

void BatchMaker::draw(const Source::Epoch& epoch, const Share& share) {
  items_.resize(static_cast<std::size_t>(share.count));
  in_order_.clear();
  for (std::int64_t i = 0; i < share.count; ++i) {
    Item& item = items_[static_cast<std::size_t>(i)];
    item.position = share.position(i);
    item.drawn = epoch.at(item.position);
    const Dataset& dataset = shared_.source().dataset(item.drawn.part);
    const Dataset::Place place = dataset.place(item.drawn.sample);
    item.shard = &dataset.shards()[place.shard];
    item.in_shard = place.sample;
    item.in_row = shared_.reads_into_rows(item.drawn.part, place.shard);
    item.error.reset();
    in_order_.push_back(&item);
  }
  // A loop of its own: its cache misses then overlap.
  for (Item& item : items_) {
    item.extent = item.shard->index().extent(item.in_shard);
    // A record of another length is no row; unpacking it says what is wrong.
    item.in_row = item.in_row &&
                  static_cast<std::size_t>(item.extent.bytes) == shared_.collator().row_bytes(0);
  }
  std::ranges::sort(in_order_, {},
                    [](const Item* item) { return std::tuple(item->shard, item->extent.offset); });
}

void BatchMaker::place_in_memory(Batch& batch) {
  std::int64_t bytes = 0;
  const auto padded = [](std::int64_t n) {
    return (n + kArenaAlign - 1) / kArenaAlign * kArenaAlign;
  };
  for (const Item& item : items_) {
    if (!item.in_row) bytes += padded(item.extent.bytes);
  }
  if (std::ssize(arena_) < bytes) arena_ = std::vector<std::byte>(static_cast<std::size_t>(bytes));
  std::int64_t at = 0;
  for (std::size_t row = 0; row < items_.size(); ++row) {
    Item& item = items_[row];
    const auto size = static_cast<std::size_t>(item.extent.bytes);
    if (item.in_row) {
      item.raw = batch.columns[0].data.subspan(row * size, size);
    } else {
      item.raw = std::span(arena_).subspan(static_cast<std::size_t>(at), size);
      at += padded(item.extent.bytes);
    }
  }
}

store::Store& BatchMaker::store_of(const Item& item) const {
  return by_window_ ? shared_.window()->over(*item.shard->store) : *item.shard->store;
}

// Ascending: those of one store lie together.
void BatchMaker::read(std::span<Item*> items) {
  const Nanos began = real_clock().now();
  const Deadline deadline = Deadline::after(shared_.options().read_timeout);
  reads_.resize(std::max(reads_.size(), items.size()));
  store::ObjectInfo scratch;
  std::int64_t bytes = 0;
  std::size_t begin = 0;
  while (begin < items.size()) {
    const store::Store* const origin = items[begin]->shard->store.get();
    std::size_t end = begin;
    for (; end < items.size() && items[end]->shard->store.get() == origin; ++end) {
      const Item& item = *items[end];
      const store::ObjectInfo& object = item.shard->index().object(item.in_shard, scratch);
      store::Read& one = reads_[end];
      one.key = object.key;
      one.version = object.version;
      one.object_size = object.size;
      one.offset = item.extent.offset;
      one.into = item.raw;
      one.error.reset();
      bytes += item.extent.bytes;
    }
    store_of(*items[begin]).read(std::span(reads_).subspan(begin, end - begin), deadline);
    begin = end;
  }
  shared_.bytes += bytes;
  const Nanos came = real_clock().now();
  shared_.read_ns += came - began;
  for (std::size_t i = 0; i < items.size(); ++i) {
    items[i]->error = std::move(reads_[i].error);
    if (!items[i]->error) check(*items[i]);
    if (!items[i]->error) continue;
    if (shared_.options().on_bad == OnBad::kRefetch) {
      refetch(*items[i], shared_.options().refetches);
    } else if (by_window_ || shared_.source().dataset(items[i]->drawn.part).cache()) {
      refetch(*items[i], 1);  // a cache never makes a read fail that would not fail without it
    }
  }
  shared_.check_ns += real_clock().now() - came;
}

void BatchMaker::check(Item& item) const {
  if (!item.extent.crc || !shared_.checks(item.drawn.part, item.drawn.sample)) return;
  if (crc32c(item.raw) != *item.extent.crc) {
    item.error = Error(Code::kCorrupt, "the checksum of its {} bytes is wrong", item.extent.bytes);
  } else {
    shared_.checked(item.drawn.part, item.drawn.sample);
  }
}

void BatchMaker::refetch(Item& item, int times) {
  store::ObjectInfo scratch;
  const store::ObjectInfo& object = item.shard->index().object(item.in_shard, scratch);
  for (int i = 0; i < times && item.error; ++i) {
    if (!is_of_the_sample(*item.error)) return;
    ++shared_.refetched;
    store::Read again{.key = object.key,
                      .offset = item.extent.offset,
                      .into = item.raw,
                      .version = object.version,
                      .from = store::From::kOrigin};
    store_of(item).read({&again, 1}, Deadline::after(shared_.options().read_timeout));
    item.error = std::move(again.error);
    if (!item.error) check(item);
  }
}

std::string BatchMaker::place_of(const Item& item) const {
  store::ObjectInfo scratch;
  const store::ObjectInfo& object = item.shard->index().object(item.in_shard, scratch);
  return fmt::format(
      "sample {}{} ({} of {} in {}, from byte {} on)", item.drawn.sample,
      shared_.source().mixed() ? fmt::format(" of data set {}", item.drawn.part) : "",
      item.in_shard, to_utf8(object.key), item.shard->store->url(), item.extent.offset);
}

void BatchMaker::fail(const Item& item) const {
  throw Error(item.error->code(), "{}: {}", place_of(item), item.error->what());
}

// Counts a bad sample that is to be left out; throws when it is not to be.
void BatchMaker::pass_over(const Item& item) {
  if (shared_.options().on_bad != OnBad::kSkip || !is_of_the_sample(*item.error)) fail(item);
  shared_.skip(item.drawn.sample,
               Error(item.error->code(), "{}: {}", place_of(item), item.error->what()));
}

std::uint64_t BatchMaker::seed_of(const Item& item, std::int64_t epoch_number) const {
  return key_of({shared_.source().options().seed, static_cast<std::uint64_t>(epoch_number),
                 static_cast<std::uint64_t>(item.position)});
}

// Puts the item into the row; false, and item.error set, when it is bad.
bool BatchMaker::put(std::size_t at, std::int64_t row, std::int64_t epoch_number, Batch& batch) {
  Item& item = items_[at];
  if (item.error) return false;
  batch.samples[static_cast<std::size_t>(row)] = item.drawn.sample;
  if (shared_.source().mixed())
    batch.sources[static_cast<std::size_t>(row)] = static_cast<std::int64_t>(item.drawn.part);
  if (item.in_row) return true;
  try {
    samples_.resize(1);
    item.shard->index().unpack(item.in_shard, item.raw, samples_[0]);
    shared_.collator().put(samples_[0], row, seed_of(item, epoch_number), batch);
    return true;
  } catch (const Error& error) {
    item.error = error;
    return false;
  }
}

void BatchMaker::fill(std::int64_t epoch_number, Batch& batch) {
  const std::size_t count = items_.size();
  batch.samples.resize(count);
  if (shared_.source().mixed()) batch.sources.resize(count);
  std::optional<std::size_t> whole;  // the last row that is
  for (std::size_t i = 0; i < count; ++i) {
    const auto row = static_cast<std::int64_t>(i);
    if (put(i, row, epoch_number, batch)) {
      whole = i;
      continue;
    }
    pass_over(items_[i]);
    if (whole) {
      shared_.collator().repeat(static_cast<std::int64_t>(*whole), row, batch);
      batch.samples[i] = batch.samples[*whole];
      if (shared_.source().mixed()) batch.sources[i] = batch.sources[*whole];
      continue;
    }
    std::size_t next = i + 1;
    while (next < count && !put(next, row, epoch_number, batch)) ++next;
    if (next == count)
      throw Error(items_[i].error->code(), "{}: {}; no other sample of its batch is whole",
                  place_of(items_[i]), items_[i].error->what());
    if (items_[next].in_row)
      std::ranges::copy(items_[next].raw,
                        batch.columns[0].data.begin() +
                            static_cast<std::ptrdiff_t>(i * shared_.collator().row_bytes(0)));
    whole = i;
  }
}

void BatchMaker::decode_by_caller(std::int64_t epoch_number, Batch& batch) {
  samples_.resize(items_.size());
  batch.samples.clear();
  batch.sources.clear();
  std::vector<Item*> kept;
  std::vector<std::uint64_t> seeds;
  for (Item& item : items_) {
    try {
      if (!item.error) item.shard->index().unpack(item.in_shard, item.raw, samples_[kept.size()]);
    } catch (const Error& error) {
      item.error = error;
    }
    if (item.error) {
      pass_over(item);
      continue;
    }
    kept.push_back(&item);
  }
  if (kept.empty() && !items_.empty()) fail(items_[0]);
  for (std::size_t i = kept.size(); i < items_.size(); ++i) {
    samples_[i] = samples_[0];
    kept.push_back(kept[0]);
  }
  for (const Item* item : kept) {
    batch.samples.push_back(item->drawn.sample);
    if (shared_.source().mixed())
      batch.sources.push_back(static_cast<std::int64_t>(item->drawn.part));
    seeds.push_back(seed_of(*item, epoch_number));
  }
  const auto leave_out = [&](std::size_t sample, std::string_view why) {
    Item& item = *kept[sample];
    item.error = Error(Code::kCorrupt, "decode() raised {}", why);
    if (shared_.options().on_bad != OnBad::kSkip) return false;
    pass_over(item);
    return true;
  };
  batch.columns.clear();
  shared_.options().decode({.samples = samples_,
                            .seeds = seeds,
                            .sources = batch.sources,
                            .leave_out = leave_out,
                            .place = [&](std::size_t sample) { return place_of(*kept[sample]); }},
                           batch);
}

}  // namespace bedplate::data
