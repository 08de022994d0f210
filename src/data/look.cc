#include "data/look.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "data/internal/sidecar_state.h"

namespace bedplate::data {
namespace {

// What a window of samples is, read and checked one after the other.
void visit_window(const Dataset& dataset, std::span<const std::int64_t> numbers,
                  PieceReader& reader, const VisitSample& visit) {
  std::vector<Piece> pieces;
  for (const std::int64_t number : numbers) pieces.push_back(dataset.piece(number));
  reader.read(pieces);
  Sample sample;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    try {
      if (pieces[i].error) throw *pieces[i].error;
      dataset.unpack(numbers[i], pieces[i].got, sample);
    } catch (const Error& error) {
      throw Error(error.code(), "sample {} ({}): {}", numbers[i], dataset.name_of(numbers[i]),
                  error.what());
    }
    visit(numbers[i], sample);
  }
}

void visit_all(const Dataset& dataset, std::int64_t first, std::int64_t last, std::int64_t step,
               const VisitSample& visit, Progress& progress) {
  PieceReader reader(600 * kSecond);
  std::vector<std::int64_t> numbers;
  for (std::int64_t at = first; at < last;) {
    numbers.clear();
    std::int64_t bytes = 0;
    for (; at < last && bytes < kWindowBytes && std::ssize(numbers) < kWindowSamples; at += step) {
      numbers.push_back(at);
      bytes += dataset.piece(at).bytes;
    }
    visit_window(dataset, numbers, reader, visit);
    progress.add(std::ssize(numbers), bytes);
  }
}

std::shared_ptr<const Dataset> open_watched(std::span<const std::string> urls,
                                            DatasetOptions options, const Watch& watch) {
  Progress progress(watch, "opening", "shards");
  options.on_open = [&](std::size_t, std::size_t) { progress.add(1, 0); };
  return Dataset::open(urls, options);
}

void take_field(const Field& field, FieldFacts& facts) {
  const bool numbers = field.dtype != Dtype::kBytes && field.dtype != Dtype::kUtf8;
  const auto bytes = std::ssize(field.bytes);
  if (facts.samples == 0) {
    facts.dtype = field.dtype;
    if (numbers) facts.shape = field.shape;
    facts.least_bytes = facts.most_bytes = bytes;
  }
  facts.other_dtypes |= field.dtype != facts.dtype;
  if (numbers && field.shape.size() != facts.shape.size()) {
    facts.other_dimensions = true;
  } else if (numbers) {
    for (std::size_t i = 0; i < facts.shape.size(); ++i) {
      if (facts.shape[i] != field.shape[i]) facts.shape[i] = kAny;
    }
  }
  facts.least_bytes = std::min(facts.least_bytes, bytes);
  facts.most_bytes = std::max(facts.most_bytes, bytes);
  ++facts.samples;
  facts.mean_bytes +=
      (static_cast<double>(bytes) - facts.mean_bytes) / static_cast<double>(facts.samples);
}

// Bytes of what its samples lie in, which may be other objects than the shard.
std::int64_t bytes_of(const Dataset::Shard& shard) {
  const ShardIndex& index = shard.index();
  store::ObjectInfo scratch;
  if (index.samples() == 0 || index.object(0, scratch).key == shard.object.key)
    return shard.object.size;
  std::int64_t bytes = 0;
  for (std::int64_t i = 0; i < index.samples(); ++i) bytes += index.extent(i).bytes;
  return bytes;
}

void take_sizes(const Dataset& dataset, DataFacts& facts) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(static_cast<std::size_t>(dataset.samples()));
  for (const Dataset::Shard& shard : dataset.shards()) {
    const ShardIndex& index = shard.index();
    for (std::int64_t i = 0; i < shard.samples; ++i) sizes.push_back(index.extent(i).bytes);
  }
  for (const std::int64_t size : sizes) {
    facts.sample_bytes += size;
    ++facts.by_size[static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size))) - 1];
  }
  if (sizes.empty()) return;
  // The smallest that is not below `part` of `of` of them.
  const auto at = [&](std::size_t part, std::size_t of) {
    const std::size_t rank = (sizes.size() * part + of - 1) / of;
    const auto place = sizes.begin() + static_cast<std::ptrdiff_t>(rank - 1);
    std::ranges::nth_element(sizes, place);
    return *place;
  };
  facts.median = at(1, 2);
  facts.p99 = at(99, 100);
  facts.least = std::ranges::min(sizes);
  facts.most = std::ranges::max(sizes);
}

}  // namespace

std::vector<ShardFacts> list_shards(std::span<const std::string> urls,
                                    const DatasetOptions& options, const Watch& watch) {
  const auto dataset = open_watched(urls, options, watch);
  std::vector<ShardFacts> facts;
  for (const Dataset::Shard& shard : dataset->shards()) {
    // What was made of a folder just now has a name, and no object.
    const bool is_folder = shard.format->open_folder && shard.object.version.empty();
    store::ObjectInfo named = shard.object;
    if (is_folder) named.key.erase(named.key.rfind('/') + 1);
    const bool in_it = shard.format->samples == Format::Samples::kInShard;
    facts.push_back({shard_url(*shard.store, named), shard.format->name, shard.samples,
                     in_it ? shard.object.size : bytes_of(shard)});
  }
  return facts;
}

void for_each_sample(const Dataset& dataset, std::int64_t first, std::int64_t last,
                     const VisitSample& visit, const Watch& watch) {
  if (first < 0 || last > dataset.samples() || first > last) {
    throw Error(Code::kInvalid, "samples {} to {} are not there: the data set has {}", first, last,
                dataset.samples());
  }
  Progress progress(watch, "reading", "samples", last - first);
  visit_all(dataset, first, last, 1, visit, progress);
}

std::string_view key_of(const Sample& sample) {
  if (!sample.key.empty()) return sample.key;
  const auto field = std::ranges::find(sample.fields, kKeyColumn, &Field::name);
  if (field == sample.fields.end()) return {};
  return {reinterpret_cast<const char*>(field->bytes.data()), field->bytes.size()};
}

DataFacts describe(std::span<const std::string> urls, const DatasetOptions& options,
                   std::int64_t looks, const Watch& watch) {
  const auto dataset = open_watched(urls, options, watch);
  DataFacts facts{.shards = std::ssize(dataset->shards()),
                  .samples = dataset->samples(),
                  .fingerprint = dataset->fingerprint()};
  std::vector<std::int64_t> counts;
  for (const Dataset::Shard& shard : dataset->shards()) {
    counts.push_back(shard.samples);
    facts.object_bytes += bytes_of(shard);
    const std::string format(shard.format->name);
    if (std::ranges::find(facts.formats, format) == facts.formats.end())
      facts.formats.push_back(format);
  }
  facts.fewest_in_shard = std::ranges::min(counts);
  facts.most_in_shard = std::ranges::max(counts);
  take_sizes(*dataset, facts);  // opens all shards
  facts.index_bytes = dataset->memory_bytes();
  facts.notes.assign(dataset->notes().begin(), dataset->notes().end());
  for (const Dataset::Shard& shard : dataset->shards()) {
    const SidecarState sidecar = state_of_sidecar(
        {.store = shard.store, .object = shard.object, .folder = {}, .format = shard.format},
        options.shard.timeout);
    if (sidecar == SidecarState::kNone) continue;
    ++facts.without_index;
    if (sidecar == SidecarState::kFresh) ++facts.indexed;
  }

  std::map<std::string, FieldFacts> fields;
  const std::int64_t step = std::max<std::int64_t>(1, (facts.samples + looks - 1) / looks);
  Progress progress(watch, "looking at samples", "samples", (facts.samples + step - 1) / step);
  const auto visit = [&](std::int64_t, const Sample& sample) {
    ++facts.looked_at;
    for (const Field& field : sample.fields) {
      FieldFacts& one = fields[field.name];
      one.name = field.name;
      take_field(field, one);
    }
  };
  visit_all(*dataset, 0, facts.samples, step, visit, progress);
  for (auto& [name, one] : fields) facts.fields.push_back(std::move(one));
  return facts;
}

}  // namespace bedplate::data
