// The loader: every sample once in the order that arithmetic says, whatever the ranks, threads,
// stops and faults.
#include "data/loader.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "data/packed_writer.h"
#include "data/test_bytes.h"
#include "os/test_folder.h"
#include "store/fault_store.h"

namespace bedplate::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;

class LoaderOf : public ::testing::Test {
 protected:
  // `samples` numbers in shards of `a_shard`; sample i holds {i} as i64, and a text of its own.
  std::shared_ptr<const Dataset> numbers(std::int64_t samples, std::int64_t a_shard = 100,
                                         DatasetOptions options = {}) {
    const std::string name = fmt::format("{}-{}", samples, a_shard);
    const Schema schema({{.name = "number", .dtype = Dtype::kI64}});
    const std::string folder = (folder_.path() / name).string() + "/";
    std::int64_t number = 0;
    for (std::int64_t shard = 0; number < samples || shard == 0; ++shard) {
      const auto place = store::locate(folder + fmt::format("{:06}.shard", shard));
      PackedWriter writer(place.store->create(place.key, store::IfExists::kReplace, kSecond),
                          schema);
      for (std::int64_t i = 0; i < a_shard && number < samples; ++i, ++number) {
        const std::span<const std::byte> value[] = {std::as_bytes(std::span(&number, 1))};
        writer.add(value);
      }
      writer.finish();
    }
    const std::string urls[] = {folder};
    return Dataset::open(urls, options);
  }

  std::shared_ptr<const Source> shuffled(std::shared_ptr<const Dataset> dataset,
                                         std::int64_t block = 8, std::int64_t window = 64) {
    return std::make_shared<Source>(std::vector<SourcePart>{{.dataset = std::move(dataset)}},
                                    SourceOptions{.seed = 7, .block = block, .window = window});
  }

  os::TestFolder folder_;
};

std::vector<std::int64_t> rows(const Batch& batch) {
  const auto data = batch.columns.at(0).data;
  std::vector<std::int64_t> out(static_cast<std::size_t>(batch.count));
  EXPECT_EQ(data.size(), out.size() * 8);
  if (!out.empty()) std::memcpy(out.data(), data.data(), data.size());
  EXPECT_EQ(out, batch.samples);
  return out;
}

// All that is left of the loader's epoch.
std::vector<std::int64_t> rest(Loader& loader) {
  std::vector<std::int64_t> out;
  while (const auto batch = loader.next()) {
    for (const std::int64_t n : rows(*batch)) out.push_back(n);
  }
  return out;
}

std::vector<std::int64_t> reference(const Source& source, std::int64_t epoch) {
  std::vector<std::int64_t> out;
  const auto drawn = source.epoch(epoch);
  for (std::int64_t i = 0; i < source.epoch_samples(); ++i) out.push_back(drawn.at(i).sample);
  return out;
}

TEST_F(LoaderOf, TakesEachSampleOnceInTheOrderOfItsSource) {
  const auto source = shuffled(numbers(1003));
  for (const int threads : {1, 2, 5}) {
    Loader loader(source, {.batch_size = 10, .tail = Tail::kUneven, .threads = threads});
    EXPECT_EQ(loader.steps_left(), 101);
    EXPECT_EQ(rest(loader), reference(*source, 0));
    EXPECT_EQ(loader.next(), nullptr);
    EXPECT_EQ(loader.state().consumed, 1003);
    loader.begin(loader.state());
    EXPECT_EQ(rest(loader), reference(*source, 1));
  }
}

// Acceptance case 1: 16 and 1,003 samples; stop after k; go on with other ranks and threads.
TEST_F(LoaderOf, GoesOnExactlyWithAnyNumberOfRanksAndThreads) {
  for (const std::int64_t samples : {16, 1003}) {
    const auto source = shuffled(numbers(samples), 4, 32);
    const auto order = reference(*source, 0);
    for (const int ranks_before : {1, 3}) {
      for (const std::int64_t steps : {0, 1, 3}) {
        std::vector<std::int64_t> taken;
        LoaderState state;
        for (int rank = 0; rank < ranks_before; ++rank) {
          Loader loader(source, {.batch_size = 2,
                                 .rank = rank,
                                 .world_size = ranks_before,
                                 .tail = Tail::kUneven,
                                 .threads = 2});
          for (int i = 0; i < steps; ++i) {
            const auto batch = loader.next();
            ASSERT_NE(batch, nullptr);
            for (const std::int64_t n : rows(*batch)) taken.push_back(n);
          }
          state = loader.state();
        }
        state = LoaderState::from_json(state.to_json());
        if (state.consumed == samples) continue;  // what comes next is another epoch
        for (const int ranks : {1, 2, 3, 4}) {
          for (const int threads : {1, 4}) {
            std::vector<std::int64_t> all = taken;
            std::set<std::size_t> lengths;
            for (int rank = 0; rank < ranks; ++rank) {
              Loader loader(source, {.batch_size = 3,
                                     .rank = rank,
                                     .world_size = ranks,
                                     .tail = Tail::kUneven,
                                     .threads = threads});
              loader.begin(state);
              const auto mine = rest(loader);
              lengths.insert(mine.size());
              all.insert(all.end(), mine.begin(), mine.end());
            }
            EXPECT_LE(*lengths.rbegin() - *lengths.begin(), 1U);
            auto expected = order;
            std::ranges::sort(all);
            std::ranges::sort(expected);
            EXPECT_EQ(all, expected)
                << samples << " samples, " << ranks_before << " then " << ranks;
          }
        }
      }
    }
  }
}

// Acceptance case 2: through windows and batches that were made ahead.
TEST_F(LoaderOf, WhatWasMadeAheadIsNotLost) {
  for (const std::int64_t samples : {12, 200}) {
    for (const std::int64_t stop : {3, 20}) {
      if (stop > samples) continue;
      const auto source = shuffled(numbers(samples), 2, 16);
      Loader first(source, {.batch_size = 1, .threads = 3});
      std::vector<std::int64_t> taken;
      for (std::int64_t i = 0; i < stop; ++i) {
        const auto batch = first.next();
        if (!batch) break;
        taken.push_back(rows(*batch)[0]);
      }
      Loader second(source, {.batch_size = 1, .threads = 3});
      second.begin(first.state());
      const auto left = rest(second);
      taken.insert(taken.end(), left.begin(), left.end());
      EXPECT_EQ(taken, reference(*source, 0));
    }
  }
}

// Acceptance case 3: the state on the last batch, three more epochs, all full, all in a new order.
TEST_F(LoaderOf, AfterTheLastBatchComesTheNextEpoch) {
  const auto source = shuffled(numbers(64), 1, 64);
  Loader loader(source, {.batch_size = 16, .threads = 2});
  for (int i = 0; i < 4; ++i) ASSERT_NE(loader.next(), nullptr);
  LoaderState state = loader.state();
  EXPECT_EQ(state.epoch, 0);
  EXPECT_EQ(state.consumed, 64);
  std::set<std::vector<std::int64_t>> orders = {reference(*source, 0)};
  for (int epoch = 1; epoch <= 3; ++epoch) {
    Loader again(source, {.batch_size = 16, .threads = 2});
    again.begin(state);
    const auto order = rest(again);
    EXPECT_EQ(order, reference(*source, epoch));
    orders.insert(order);
    state = again.state();
  }
  EXPECT_EQ(orders.size(), 4U);
}

// Acceptance case 4: an early end with batches in flight.
TEST_F(LoaderOf, AnEarlyEndHangsNowhere) {
  const auto source = shuffled(numbers(1000));
  for (int i = 0; i < 50; ++i) {
    Loader loader(source, {.batch_size = 4, .threads = 4});
    for (int k = 0; k < i % 5; ++k) loader.next();
  }
}

// Acceptance case 11: fewer shards than ranks × threads, one shard, empty shards, uneven shards.
TEST_F(LoaderOf, ShardsNeedNotBeAsManyAsRanks) {
  for (const std::int64_t a_shard : {1, 7, 10'000}) {
    const auto source = shuffled(numbers(29, a_shard));
    std::vector<std::int64_t> all;
    for (int rank = 0; rank < 8; ++rank) {
      Loader loader(
          source,
          {.batch_size = 2, .rank = rank, .world_size = 8, .tail = Tail::kUneven, .threads = 4});
      const auto mine = rest(loader);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    std::ranges::sort(all);
    std::vector<std::int64_t> expected(29);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected);
  }
}

TEST_F(LoaderOf, TheTailIsPaddedDroppedOrUneven) {
  const auto source = shuffled(numbers(10));
  const auto sizes = [&](Tail tail) {
    Loader loader(source, {.batch_size = 4, .tail = tail, .threads = 1});
    std::vector<std::int64_t> out;
    while (const auto batch = loader.next()) out.push_back(batch->count);
    return out;
  };
  EXPECT_THAT(sizes(Tail::kPad), ElementsAre(4, 4, 4));
  EXPECT_THAT(sizes(Tail::kDrop), ElementsAre(4, 4));
  EXPECT_THAT(sizes(Tail::kUneven), ElementsAre(4, 4, 2));
}

// Several batches are handed over together where they are made in no time; not when the next one
// hangs.
TEST_F(LoaderOf, ABatchThatIsThereDoesNotWaitForOnesThatAreNot) {
  numbers(40, 40);
  std::atomic<bool> hang = false;
  std::atomic<int> begun = 0;
  DatasetOptions options;
  options.wrap = [&](std::shared_ptr<store::Store> inner) -> std::shared_ptr<store::Store> {
    const auto before = [&](const store::Read&) -> std::optional<Error> {
      if (hang && ++begun > 4) hang.wait(true);
      return std::nullopt;
    };
    return std::make_shared<store::FaultStore>(std::move(inner),
                                               store::Faults{.before_read = before});
  };
  const std::string urls[] = {(folder_.path() / "40-40").string() + "/"};
  Loader loader(shuffled(Dataset::open(urls, options), 40, 1), {.batch_size = 4, .threads = 1});
  hang = true;
  const Nanos asked = real_clock().now();
  const auto first = loader.next_within(20 * kSecond);
  EXPECT_LT(real_clock().now() - asked, 10 * kSecond);  // and not at the end of its patience
  hang = false;
  hang.notify_all();
  ASSERT_TRUE(first);
  EXPECT_EQ((*first)->count, 4);
  EXPECT_EQ(rest(loader).size(), 36U);
}

// --- bad samples ------------------------------------------------------------------------------

class BadSamples : public LoaderOf {
 protected:
  // 40 numbers of which those are damaged on disk.
  std::shared_ptr<const Source> damaged(const std::set<std::int64_t>& which) {
    const auto dataset = numbers(40, 40);
    const auto& shard = dataset->shards()[0];
    store::ObjectInfo scratch;
    const auto& object = shard.index().object(0, scratch);
    std::string bytes = store::get(*shard.store, object.key);
    for (const std::int64_t i : which)
      bytes[static_cast<std::size_t>(shard.index().extent(i).offset)] ^= 0x40;
    store::put(*shard.store, object.key, bytes);
    const std::string urls[] = {(folder_.path() / "40-40").string() + "/"};
    return shuffled(Dataset::open(urls), 40, 1);
  }
  static std::string failure(Loader& loader) {
    try {
      while (loader.next()) {
      }
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(BadSamples, RaiseNamesShardSampleAndPlace) {
  Loader loader(damaged({17}), {.batch_size = 4, .threads = 2});
  const std::string text = failure(loader);
  EXPECT_THAT(text, HasSubstr("sample 17 (17 of 000000.shard in"));
  EXPECT_THAT(text, HasSubstr("from byte"));
  EXPECT_THAT(text, HasSubstr("checksum"));
  EXPECT_EQ(failure(loader), text);  // and again: it is at its end
}

// Acceptance case 12: a rank that drops a sample stops at the same step as the others.
TEST_F(BadSamples, SkipKeepsTheSizeOfBatchesAndTheNumberOfSteps) {
  Loader loader(damaged({0, 17, 18, 39}),
                {.batch_size = 4, .threads = 2, .on_bad = OnBad::kSkip, .most_skipped = 4});
  std::vector<std::int64_t> all;
  std::int64_t steps = 0;
  while (const auto batch = loader.next()) {
    ++steps;
    for (const std::int64_t n : rows(*batch)) all.push_back(n);
  }
  EXPECT_EQ(steps, 10);
  EXPECT_EQ(all.size(), 40U);
  EXPECT_EQ(all[0], 1);    // the next whole one
  EXPECT_EQ(all[17], 16);  // the last whole one before
  EXPECT_EQ(all[18], 16);
  EXPECT_EQ(loader.stats().skipped, 4);
  EXPECT_EQ(loader.stats().bad.size(), 4U);
}

TEST_F(BadSamples, OneMoreThanTheLimitIsAnError) {
  Loader loader(damaged({1, 2, 3}),
                {.batch_size = 4, .threads = 1, .on_bad = OnBad::kSkip, .most_skipped = 2});
  EXPECT_THAT(failure(loader), HasSubstr("at most 2 are to be skipped"));
}

TEST_F(BadSamples, ABatchWithoutAnyWholeSampleIsAnError) {
  Loader loader(damaged({4, 5, 6, 7}),
                {.batch_size = 4, .threads = 1, .on_bad = OnBad::kSkip, .most_skipped = 100});
  EXPECT_THAT(failure(loader), HasSubstr("no other sample of its batch is whole"));
}

TEST_F(BadSamples, RefetchReadsAgainAndThenRaises) {
  Loader loader(damaged({17}), {.batch_size = 4, .threads = 1, .on_bad = OnBad::kRefetch});
  EXPECT_THAT(failure(loader), HasSubstr("checksum"));
  EXPECT_EQ(loader.stats().refetched, 2);
}

// --- the cache --------------------------------------------------------------------------------

// What came wrong from the origin lies in the cache with a good checksum of the cache's own.
TEST_F(BadSamples, RefetchGoesPastTheCacheAndOutOfItGoesWhatWasBad) {
  const auto plain = numbers(40, 40);
  const std::int64_t place = plain->shards()[0].index().extent(17).offset;
  DatasetOptions options;
  options.cache = store::Cache::open({.folder = folder_.path() / "cache", .cap_bytes = 8 * kMiB});
  options.wrap = [place](std::shared_ptr<store::Store> inner) -> std::shared_ptr<store::Store> {
    return std::make_shared<store::FaultStore>(
        std::move(inner), store::Faults{.after_read = store::flip_bit("000000.shard", place, 1)});
  };
  const std::string urls[] = {(folder_.path() / "40-40").string() + "/"};
  const auto source = shuffled(Dataset::open(urls, options));
  for (const OnBad on_bad : {OnBad::kRefetch, OnBad::kRaise}) {
    Loader loader(source, {.batch_size = 4, .threads = 1, .on_bad = on_bad});
    EXPECT_EQ(rest(loader), reference(*source, 0));
    EXPECT_EQ(loader.stats().refetched, on_bad == OnBad::kRefetch ? 1 : 0);
  }
}

// Acceptance case 7: a scan over twice the cache, again and again; least recently used has no hits.
TEST_F(LoaderOf, ACacheKeepsWhatTheOrderNeedsSoonest) {
  const std::string folder = (folder_.path() / "wide").string() + "/";
  const Schema schema({{.name = "bytes", .dtype = Dtype::kU8, .shape = {64 * 1024}}});
  const std::vector<std::byte> row(64 * 1024);
  for (int shard = 0; shard < 4; ++shard) {
    const auto place = store::locate(folder + fmt::format("{:06}.shard", shard));
    PackedWriter writer(place.store->create(place.key, store::IfExists::kReplace, kSecond), schema);
    const std::span<const std::byte> value[] = {row};
    for (int i = 0; i < 64; ++i) writer.add(value);
    writer.finish();
  }
  DatasetOptions options;
  options.cache = store::Cache::open({.folder = folder_.path() / "cache",
                                      .cap_bytes = 8 * kMiB + 512 * kKiB,
                                      .block_bytes = 64 * kKiB});
  const std::string urls[] = {folder};
  const auto dataset = Dataset::open(urls, options);
  for (const std::int64_t block : {256, 16}) {  // storage order; blocks in a new order each time
    Loader loader(shuffled(dataset, block, 1), {.batch_size = 4, .threads = 1});
    std::int64_t fetched = 0;
    for (int epoch = 0; epoch < 3; ++epoch) {
      const std::int64_t before = options.cache->counters().origin_bytes;
      while (loader.next()) {
      }
      fetched = options.cache->counters().origin_bytes - before;
      loader.begin(loader.state());
    }
    // Least recently used would fetch all of it.
    EXPECT_LE(fetched, 0.65 * 16 * kMiB) << "blocks of " << block;
  }
}

// --- bounds -----------------------------------------------------------------------------------

// Acceptance case 14: a slow consumer, many epochs, flat memory.
TEST_F(LoaderOf, MemoryIsBoundedHoweverSlowTheConsumer) {
  const auto source = shuffled(numbers(400));
  Loader loader(source, {.batch_size = 4, .threads = 3, .prefetch_bytes = 5 * 64});
  EXPECT_EQ(loader.ahead(), 5);
  for (int epoch = 0; epoch < 50; ++epoch) {
    while (const auto batch = loader.next()) EXPECT_LE(loader.slabs(), 6);
    loader.begin(loader.state());
  }
}

TEST_F(LoaderOf, ASlabThatIsHeldIsNotUsedAgain) {
  const auto source = shuffled(numbers(400));
  Loader loader(source, {.batch_size = 4, .threads = 2, .prefetch_bytes = 64});
  std::vector<std::shared_ptr<const Batch>> held;
  while (auto batch = loader.next()) held.push_back(std::move(batch));
  std::vector<std::int64_t> all;
  for (const auto& batch : held) {
    for (const std::int64_t n : rows(*batch)) all.push_back(n);
  }
  EXPECT_EQ(all, reference(*source, 0));
}

TEST_F(LoaderOf, BatchesOutliveTheirLoader) {
  const auto source = shuffled(numbers(8));
  std::shared_ptr<const Batch> batch;
  {
    Loader loader(source, {.batch_size = 8, .threads = 1});
    batch = loader.next();
  }
  EXPECT_EQ(rows(*batch).size(), 8U);
}

// Acceptance case 13: a child that makes a loader of its own while the parent's threads work.
TEST_F(LoaderOf, AChildReadsOnWithALoaderOfItsOwn) {
  const auto source = shuffled(numbers(400));
  Loader loader(source, {.batch_size = 4, .threads = 3});
  ASSERT_NE(loader.next(), nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    Loader own(source, {.batch_size = 4, .threads = 3});
    own.begin(loader.state());
    std::int64_t count = 0;
    while (const auto batch = own.next()) count += batch->count;
    ::_exit(count == 396 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(rest(loader).size(), 396U);
}

TEST_F(LoaderOf, TheStateIsSmallAndOfThisDataAndOrderOnly) {
  const auto source = shuffled(numbers(100));
  Loader loader(source, {.batch_size = 4});
  LoaderState state{INT64_MAX, INT64_MAX, UINT64_MAX};
  EXPECT_LT(state.to_json().size(), 200U);
  EXPECT_THROW(loader.begin(state), Error);
  const auto other = std::make_shared<Source>(std::vector<SourcePart>{{.dataset = numbers(100)}},
                                              SourceOptions{.seed = 8});
  Loader of_other(other, {.batch_size = 4});
  EXPECT_THROW(of_other.begin(loader.state()), Error);
  for (const char* wrong :
       {"", "{}", "[1]", R"({"version":2,"epoch":0,"consumed":0,"data":"0"})",
        R"({"version":1,"epoch":-1,"consumed":0,"data":"0"})",
        R"({"version":1,"epoch":0,"consumed":0,"data":"xyz"})",
        R"({"version":1,"epoch":0,"consumed":0,"data":"-000000000000001"})",
        R"({"version":true,"epoch":0,"consumed":0,"data":"0000000000000000"})",
        R"({"version":1,"epoch":0,"consumed":1.5,"data":"0000000000000000"})",
        R"({"version":1,"epoch":1e300,"consumed":0,"data":"0000000000000000"})",
        R"({"version":1,"epoch":9223372036854775808,"consumed":0,"data":"0000000000000000"})"})
    EXPECT_THROW(LoaderState::from_json(wrong), Error) << wrong;
}

TEST_F(LoaderOf, AMixGoesOnExactly) {
  const auto big = numbers(300);
  const auto small = numbers(40);
  const auto source = std::make_shared<Source>(
      std::vector<SourcePart>{{.dataset = big, .weight = 0.7}, {.dataset = small, .weight = 0.3}},
      SourceOptions{.seed = 3, .block = 4, .window = 16});
  const auto drawn = [&](Loader& loader) {
    std::vector<std::pair<std::int64_t, std::int64_t>> out;
    while (const auto batch = loader.next()) {
      for (std::int64_t i = 0; i < batch->count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        out.emplace_back(batch->sources[at], batch->samples[at]);
      }
    }
    return out;
  };
  Loader whole(source, {.batch_size = 5, .tail = Tail::kUneven});
  const auto expected = drawn(whole);
  ASSERT_EQ(expected.size(), 340U);
  EXPECT_NEAR(static_cast<double>(
                  std::ranges::count(expected, 0, &std::pair<std::int64_t, std::int64_t>::first)),
              0.7 * 340, 20);
  Loader first(source, {.batch_size = 5});
  for (int i = 0; i < 20; ++i) first.next();
  Loader second(source, {.batch_size = 7, .tail = Tail::kUneven});
  second.begin(first.state());
  const auto left = drawn(second);
  EXPECT_TRUE(std::equal(left.begin(), left.end(), expected.begin() + 100, expected.end()));
}

TEST_F(LoaderOf, RefusesOptionsThatContradictThemselves) {
  const auto source = shuffled(numbers(10));
  const auto refuses = [&](LoaderOptions options) {
    EXPECT_THROW(Loader(source, std::move(options)), Error);
  };
  refuses({.batch_size = 0});
  refuses({.rank = 2, .world_size = 2});
  refuses({.rank = -1});
  refuses({.threads = 0});
  refuses({.prefetch_bytes = -1});
  refuses({.fields = {{.name = "nothing"}}});
  EXPECT_THROW(Source({}, {}), Error);
}

}  // namespace
}  // namespace bedplate::data
