#include "data/loading_speed.h"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "os/page_cache.h"

namespace bedplate::data {
namespace {

constexpr std::int64_t kBlockOfUsage = 512;      // bytes, of ru_inblock (getrusage(2))
constexpr std::int64_t kBetweenStatistics = 64;  // batches
constexpr Nanos kBetweenLooks = 100 * kMillisecond;

Nanos process_cpu_time() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

rusage usage() {
  rusage out{};
  ::getrusage(RUSAGE_SELF, &out);
  return out;
}

std::shared_ptr<const Dataset> open_watched(std::span<const std::string> urls,
                                            DatasetOptions options, const Watch& watch) {
  Progress progress(watch, "opening", "shards");
  options.on_open = [&](std::size_t, std::size_t) { progress.add(1, 0); };
  return Dataset::open(urls, options);
}

// Those that hold samples and lie in a file system of this machine.
std::set<std::string> files_of(const Dataset& dataset) {
  std::set<std::string> files;
  for (const Dataset::Shard& shard : dataset.shards()) {
    const std::string folder = shard.store->url();
    if (!folder.starts_with('/')) {
      throw Error(Code::kInvalid,
                  "{} is not read through this machine's page cache: there is none to be dropped",
                  folder);
    }
    const ShardIndex& index = shard.index();
    store::ObjectInfo scratch;
    std::string last;
    files.insert(folder + "/" + shard.object.key);
    for (std::int64_t i = 0; i < index.samples(); ++i) {
      const std::string& key = index.object(i, scratch).key;
      if (key == last) continue;
      last = key;
      files.insert(folder + "/" + key);
    }
  }
  return files;
}

// The data set is closed again before: pages that it has mapped would stay.
std::int64_t drop_files(std::span<const std::string> urls, const DatasetOptions& options,
                        const Watch& watch) {
  const std::set<std::string> files = files_of(*open_watched(urls, options, watch));
  Progress progress(watch, "dropping the page cache", "files", std::ssize(files));
  for (const std::string& file : files) {
    os::drop_from_page_cache(std::filesystem::path(file));
    progress.add(1, 0);
  }
  return std::ssize(files);
}

bool is_number(Dtype dtype) { return dtype != Dtype::kBytes && dtype != Dtype::kUtf8; }

bool is_picture(const Field& field) {
  if (is_number(field.dtype)) return false;
  try {
    image_size(field.bytes);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Whether the samples' arrays differ in length, by the schema or by a few of the samples.
bool is_ragged(const Field& field, const Dataset& dataset) {
  if (!is_number(field.dtype) || field.shape.empty()) return false;
  const ShardIndex& index = dataset.shards()[dataset.place(0).shard].index();
  if (const Schema* schema = index.schema()) {
    const auto column = std::ranges::find(schema->columns(), field.name, &Column::name);
    if (column != schema->columns().end() && !column->shape.empty())
      return column->shape.front() == kAny;
  }
  for (const std::int64_t other : {dataset.samples() / 2, dataset.samples() - 1}) {
    for (const Field& one : dataset.get(other).fields) {
      if (one.name == field.name && one.shape != field.shape) return true;
    }
  }
  return false;
}

std::vector<FieldSpec> specs_of(const Dataset& dataset, const LoadingOptions& options,
                                LoadingSpeed& speed) {
  const Sample example = dataset.get(0);
  std::vector<std::string> names;
  std::vector<FieldSpec> specs;
  bool all_as_is = options.fields.empty();
  for (const Field& field : example.fields) {
    names.push_back(to_utf8(field.name));
    if (!options.fields.empty() &&
        std::ranges::find(options.fields, field.name) == options.fields.end())
      continue;
    FieldSpec spec{.name = field.name};
    if (options.decode && is_picture(field)) {
      spec.kind = FieldKind::kImage;
      spec.image = *options.decode;
      speed.decoded.push_back(names.back());
    } else if (is_ragged(field, dataset)) {
      spec.kind = FieldKind::kRagged;
    }
    all_as_is &= spec.kind == FieldKind::kAsIs;
    speed.fields.push_back(names.back());
    specs.push_back(std::move(spec));
  }
  for (const std::string& wanted : options.fields) {
    if (std::ranges::find(example.fields, wanted, &Field::name) == example.fields.end())
      throw Error(Code::kInvalid, "the samples have no field {}; they have {}", to_utf8(wanted),
                  fmt::join(names, ", "));
  }
  if (options.decode && speed.decoded.empty())
    throw Error(Code::kInvalid, "there is no picture to decode (JPEG, PNG) among the fields {}",
                fmt::join(speed.fields, ", "));
  if (all_as_is) specs.clear();  // what the loader takes by itself
  return specs;
}

SourceOptions order_of(const Dataset& dataset, const LoadingOptions& options) {
  using Shuffle = LoadingOptions::Shuffle;
  SourceOptions order{.seed = options.seed};
  if (options.shuffle == Shuffle::kNone) {
    order.block = std::max<std::int64_t>(1, dataset.samples());
  } else if (options.shuffle == Shuffle::kBlock) {
    const BlockShuffle usual = block_shuffle(dataset.stored_bytes(), dataset.samples());
    order.block = usual.block;
    order.window = usual.window;
  }
  return order;
}

// The next batch; nullptr at the epoch's end.
std::shared_ptr<const Batch> next(Loader& loader, Nanos most, const Watch& watch) {
  const Deadline deadline = Deadline::after(most);
  for (;;) {
    if (auto batch = loader.next_within(deadline.within(kBetweenLooks).left()))
      return std::move(*batch);
    if (watch.stopped()) throw Error(Code::kUnavailable, "reading was stopped");
    if (deadline.passed())
      throw Error(Code::kTimeout, "no batch came within {}", human_duration(most));
  }
}

void describe(const Dataset& dataset, LoadingSpeed& speed) {
  speed.shards = std::ssize(dataset.shards());
  speed.dataset_samples = dataset.samples();
  for (const Dataset::Shard& shard : dataset.shards()) {
    const std::string format(shard.format->name);
    if (std::ranges::find(speed.formats, format) == speed.formats.end())
      speed.formats.push_back(format);
  }
}

}  // namespace

LoadingSpeed measure_loading(std::span<const std::string> urls, const LoadingOptions& options,
                             const Watch& watch) {
  const bool cold = options.page_cache == LoadingOptions::PageCache::kDropped;
  LoadingSpeed speed;
  if (cold) speed.files_dropped = drop_files(urls, options.dataset, watch);
  const std::int64_t disk_before = usage().ru_inblock;
  const Nanos began_opening = real_clock().now();
  const auto dataset = open_watched(urls, options.dataset, watch);
  if (dataset->samples() == 0) throw Error(Code::kNotFound, "the shards hold no samples");
  speed.opening = real_clock().now() - began_opening;
  describe(*dataset, speed);

  const Nanos cpu_before = process_cpu_time();
  const Nanos began = real_clock().now();
  LoaderOptions how = options.loader;
  how.fields = specs_of(*dataset, options, speed);
  const Nanos most_wait = 2 * how.read_timeout;
  Loader loader(std::make_shared<const Source>(std::vector<SourcePart>{{.dataset = dataset}},
                                               order_of(*dataset, options)),
                std::move(how));
  Progress progress(watch, "reading", "samples");
  const std::int64_t most_epochs = cold ? 1 : options.epochs;
  std::int64_t bytes = 0;
  std::int64_t batches = 0;
  std::int64_t samples_before = 0;  // of the epoch
  while (speed.length < options.length) {
    const auto batch = next(loader, most_wait, watch);
    speed.length = real_clock().now() - began;
    if (batch) {
      if (speed.samples == 0) speed.first_batch = speed.length;
      speed.samples += batch->count;
      // Asking for statistics costs as much as a small batch.
      if (++batches % kBetweenStatistics == 0) {
        const std::int64_t all = loader.stats().bytes;
        progress.add(0, all - std::exchange(bytes, all));
      }
      progress.add(batch->count, 0);
      continue;
    }
    if (speed.samples == samples_before) {
      throw Error(Code::kInvalid,
                  "this rank gets no batch of the {} samples: fewer ranks or smaller batches",
                  dataset->samples());
    }
    samples_before = speed.samples;
    if (++speed.epochs == most_epochs) break;
    loader.begin(loader.state());
  }
  speed.cpu = process_cpu_time() - cpu_before;
  speed.stats = loader.stats();
  const rusage after = usage();
  speed.bytes_from_disk = (after.ru_inblock - disk_before) * kBlockOfUsage;
  speed.peak_memory = after.ru_maxrss * kKiB;
  return speed;
}

}  // namespace bedplate::data
