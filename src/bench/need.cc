#include "bench/need.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "base/error.h"
#include "base/text.h"
#include "bench/internal/crew.h"
#include "data/dataset.h"
#include "os/durable_file.h"

namespace bedplate::bench {
namespace {

constexpr std::int64_t kUnit = 4096;
constexpr std::int64_t kMostBlock = 64 * kMiB;

std::string rate(double bytes_per_second) { return human_bytes(bytes_per_second) + "/s"; }

// What holds for every disk that does not feed the job.
void advise(const Need& need, Judgement& judgement) {
  const int ranks = static_cast<int>(judgement.margin * need.ranks);
  judgement.advice.push_back(
      fmt::format("a cache in memory or on a faster disk that answers {} of the reads",
                  human_share(std::min(1.0, std::ceil((1 - judgement.margin) * 100) / 100))));
  if (ranks > 0)
    judgement.advice.push_back(
        fmt::format("fewer ranks: it feeds {} of the {}", ranks, need.ranks));
}

constexpr std::int64_t kMostShards = 64;  // that are opened to look at their samples
constexpr std::int64_t kMostSamples = 10'000;

std::shared_ptr<const data::Dataset> opened(const DatasetSource& source) {
  auto dataset = data::Dataset::open(source.urls, {.format = source.format});
  if (dataset->samples() == 0)
    throw Error(Code::kInvalid, "the data set {} has no samples", to_utf8(source.urls.at(0)));
  return dataset;
}

// Of at most `most` samples that lie evenly in the shard.
double mean_bytes(const data::ShardIndex& index, std::int64_t most) {
  const std::int64_t step = (index.samples() + most - 1) / most;
  double bytes = 0;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < index.samples(); i += step, ++count)
    bytes += static_cast<double>(index.extent(i).bytes);
  return bytes / static_cast<double>(count);
}

}  // namespace

void check_need(const Need& need) {
  const auto sane = [](double value) { return value > 0 && value < 1e18; };
  if (need.ranks < 1) throw Error(Code::kInvalid, "{} ranks: give at least one", need.ranks);
  if (!sane(need.samples_per_second)) {
    throw Error(Code::kInvalid, "{} samples per second: give what one rank takes",
                need.samples_per_second);
  }
  if (!sane(need.sample_bytes) || !sane(need.bytes_per_second()))
    throw Error(Code::kInvalid, "samples of {} bytes are none", need.sample_bytes);
}

std::int64_t block_for(const Need& need) {
  const double units = std::ceil(need.sample_bytes / static_cast<double>(kUnit));
  return static_cast<std::int64_t>(
             std::clamp(units, 1.0, static_cast<double>(kMostBlock / kUnit))) *
         kUnit;
}

Judgement judge_disk(const Need& need, const DiskResult& disk) {
  const Figures& random = disk.random_read();
  const Figures& sequential = disk.sequential_read();
  const double reads_of_a_sample =
      std::max(1.0, std::ceil(need.sample_bytes / static_cast<double>(disk.block)));
  Judgement judgement;
  judgement.margin = random.calls_per_second() / reads_of_a_sample / need.reads_per_second();
  judgement.gives = fmt::format(
      "random reads of {}: {} and {} a second", human_bytes(static_cast<double>(disk.block)),
      rate(random.amount_per_second()), human_count(random.calls_per_second()));
  if (judgement.fits()) return judgement;
  const double in_sequence = sequential.amount_per_second() / need.bytes_per_second();
  if (in_sequence >= 1) {
    judgement.advice.push_back(fmt::format(
        "shards that are read in sequence, in larger blocks: so it gives {} (margin {:.2f} ×)",
        rate(sequential.amount_per_second()), in_sequence));
  }
  advise(need, judgement);
  return judgement;
}

Judgement judge_meta(const Need& need, const MetaResult& meta) {
  const Figures& opened = meta.of(kOpenAndRead).figures;
  Judgement judgement;
  judgement.margin = opened.amount_per_second() / need.reads_per_second();
  judgement.gives = fmt::format("{} threads open and read {} files of {} a second", meta.threads,
                                human_count(opened.amount_per_second()),
                                human_bytes(static_cast<double>(meta.bytes)));
  if (judgement.fits()) return judgement;
  judgement.advice.emplace_back(
      "shards: one open for thousands of samples in place of one for each");
  advise(need, judgement);
  return judgement;
}

Judgement judge_dataset(const Need& need, const Figures& figures, int threads) {
  Judgement judgement;
  judgement.margin = figures.calls_per_second() / need.reads_per_second();
  judgement.gives =
      fmt::format("the data set itself, read by {} threads: {} and {} samples a second", threads,
                  rate(figures.amount_per_second()), human_count(figures.calls_per_second()));
  if (!judgement.fits()) advise(need, judgement);
  return judgement;
}

DatasetFacts look_at_dataset(const DatasetSource& source) {
  const auto dataset = opened(source);
  const auto& shards = dataset->shards();
  const std::size_t step = (shards.size() + kMostShards - 1) / kMostShards;
  const std::int64_t of_each = kMostSamples / std::min(std::ssize(shards), kMostShards);
  double bytes = 0;
  double samples = 0;
  for (std::size_t i = 0; i < shards.size(); i += step) {
    if (shards[i].samples == 0) continue;
    const double mean = mean_bytes(shards[i].index(), of_each);
    bytes += mean * static_cast<double>(shards[i].samples);
    samples += static_cast<double>(shards[i].samples);
  }
  DatasetFacts facts{.samples = dataset->samples()};
  facts.sample_bytes = samples > 0 ? bytes / samples : 0;
  // Neighbours in two objects: an index may be of several shards.
  const data::ShardIndex& index = shards[dataset->place(0).shard].index();
  store::ObjectInfo first;
  store::ObjectInfo second;
  const bool one_object =
      index.samples() < 2 || index.object(0, first).key == index.object(1, second).key;
  facts.lie = one_object ? DatasetFacts::Samples::kInShards : DatasetFacts::Samples::kFiles;
  return facts;
}

Figures measure_dataset(const DatasetSource& source, int threads, Nanos length,
                        const Watch& watch) {
  const auto dataset = opened(source);
  const auto samples = static_cast<std::uint64_t>(dataset->samples());
  std::vector<std::mt19937_64> random;
  for (int t = 0; t < threads; ++t) random.emplace_back(os::random_bits());
  return measure({.threads = threads, .what = "samples", .enough = length, .watch = &watch},
                 [&](int thread) {
                   auto& numbers = random[static_cast<std::size_t>(thread)];
                   const auto number = static_cast<std::int64_t>(numbers() % samples);
                   const data::Sample sample = dataset->get(number);
                   std::int64_t bytes = 1;  // an empty one is one as well
                   for (const data::Field& field : sample.fields) bytes += std::ssize(field.bytes);
                   return bytes;
                 });
}

}  // namespace bedplate::bench
