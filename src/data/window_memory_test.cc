// What is shuffled together is read together, and only where that pays.
#include "data/internal/window_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "data/packed_writer.h"
#include "os/test_folder.h"
#include "store/fault_store.h"

namespace bedplate::data {
namespace {

constexpr std::int64_t kSample = 4 * kKiB;
constexpr std::int64_t kShards = 4;
constexpr std::int64_t kInShard = 1024;

// A store on disk that says that it is far away, and counts what is read.
class FarStore : public store::FaultStore {
 public:
  struct Counted {
    std::atomic<std::int64_t> reads{0};
    std::atomic<std::int64_t> bytes{0};
    std::atomic<std::int64_t> finds{0};
  };
  FarStore(std::shared_ptr<Store> inner, std::string url, Counted& counted, store::Faults faults)
      : FaultStore(std::move(inner), std::move(faults)), url_(std::move(url)), counted_(counted) {}

  std::string url() const override { return url_; }
  std::optional<store::ObjectInfo> find(std::string_view key, Deadline deadline) override {
    ++counted_.finds;
    return FaultStore::find(key, deadline);
  }
  void read(std::span<store::Read> reads, Deadline deadline) override {
    for (const store::Read& read : reads) {
      ++counted_.reads;
      counted_.bytes += std::ssize(read.into);
    }
    FaultStore::read(reads, deadline);
  }

 private:
  const std::string url_;
  Counted& counted_;
};

class WindowOf : public ::testing::Test {
 protected:
  std::shared_ptr<const Dataset> dataset(const std::string& url = "s3://far/",
                                         store::Faults faults = {}) {
    const std::string folder = (folder_.path() / "set").string() + "/";
    if (!std::filesystem::exists(folder)) write(folder);
    DatasetOptions options;
    options.wrap = [this, url, faults](std::shared_ptr<store::Store> inner) {
      return std::make_shared<FarStore>(std::move(inner), url, counted_, faults);
    };
    const std::string urls[] = {folder};
    return Dataset::open(urls, options);
  }
  static std::shared_ptr<const Source> source(std::shared_ptr<const Dataset> dataset,
                                              std::int64_t block = 256,
                                              std::int64_t window = 1024) {
    return std::make_shared<Source>(std::vector<SourcePart>{{.dataset = std::move(dataset)}},
                                    SourceOptions{.seed = 7, .block = block, .window = window});
  }
  static std::vector<std::int64_t> rest(Loader& loader) {
    std::vector<std::int64_t> out;
    while (const auto batch = loader.next()) {
      for (std::size_t i = 0; i < batch->samples.size(); ++i) {
        std::int64_t number = -1;
        std::memcpy(&number, batch->columns[0].data.data() + i * kSample, sizeof number);
        EXPECT_EQ(number, batch->samples[i]);
        out.push_back(number);
      }
    }
    return out;
  }

  os::TestFolder folder_;
  FarStore::Counted counted_;

 private:
  static void write(const std::string& folder) {
    const Schema schema({{.name = "bytes", .dtype = Dtype::kU8, .shape = {kSample}}});
    std::vector<std::byte> row(kSample);
    std::int64_t number = 0;
    for (int shard = 0; shard < kShards; ++shard) {
      const auto place = store::locate(folder + fmt::format("{:06}.shard", shard));
      PackedWriter writer(place.store->create(place.key, store::IfExists::kReplace, kSecond),
                          schema);
      const std::span<const std::byte> value[] = {row};
      for (std::int64_t i = 0; i < kInShard; ++i, ++number) {
        std::memcpy(row.data(), &number, sizeof number);
        writer.add(value);
      }
      writer.finish();
    }
  }
};

TEST_F(WindowOf, EachBlockOfAFarSetIsFetchedOnce) {
  const auto source = WindowOf::source(dataset());
  Loader plain(source, {.batch_size = 16, .keep_window = KeepWindow::kNever});
  EXPECT_EQ(plain.window(), nullptr);
  const auto expected = rest(plain);
  ASSERT_EQ(std::ssize(expected), kShards * kInShard);

  Loader loader(source, {.batch_size = 16, .threads = 3});
  ASSERT_NE(loader.window(), nullptr);
  counted_.reads = counted_.bytes = counted_.finds = 0;
  EXPECT_EQ(rest(loader), expected);
  EXPECT_EQ(counted_.finds, 0);
  EXPECT_LE(counted_.reads, kShards * (kInShard * kSample / kMiB + 1));
  EXPECT_LE(counted_.bytes, kShards * (kInShard * kSample + kMiB));
  loader.begin(loader.state());  // the next epoch; all of it has room
  counted_.reads = 0;
  EXPECT_EQ(std::ssize(rest(loader)), kShards * kInShard);
  EXPECT_EQ(counted_.reads, 0);
}

TEST_F(WindowOf, RanksOfAMachineShareIt) {
  const auto source = WindowOf::source(dataset());
  Loader one(source, {.batch_size = 16, .rank = 0, .world_size = 2});
  Loader two(source, {.batch_size = 16, .rank = 1, .world_size = 2});
  for (const Dataset::Shard& shard : source->dataset(0).shards()) shard.index();
  counted_.reads = 0;
  while (one.next() && two.next()) {
  }
  // Not to fetch what another fetches is agreed among processes; two of one may do it twice.
  EXPECT_LE(counted_.reads, 2 * kShards * (kInShard * kSample / kMiB + 1));
}

TEST_F(WindowOf, NothingIsReadBeforeABatchIsAskedFor) {
  const auto source = WindowOf::source(dataset());
  for (const Dataset::Shard& shard : source->dataset(0).shards()) shard.index();
  Loader loader(source, {.batch_size = 16, .threads = 3});
  const std::int64_t reads = counted_.reads;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(counted_.reads, reads);
  ASSERT_NE(loader.next(), nullptr);
  EXPECT_GT(counted_.reads, reads);
}

TEST_F(WindowOf, AnOrderOfSomebodyElsesPassesItBy) {
  Loader loader(source(dataset()), {.batch_size = 2});
  ASSERT_NE(loader.window(), nullptr);
  loader.begin_with({4000, 3, 2000, 77}, loader.state());
  counted_.bytes = 0;
  EXPECT_EQ(rest(loader), (std::vector<std::int64_t>{4000, 3, 2000, 77}));
  EXPECT_LE(counted_.bytes, 4 * (kSample + 64));
}

TEST_F(WindowOf, WhatItSpoiltComesFromTheOriginAgain) {
  const std::int64_t place = dataset()->shards()[0].index().extent(17).offset;
  const auto bad = dataset("s3://far/", {.after_read = store::flip_bit("000000.shard", place, 1)});
  Loader loader(source(bad), {.batch_size = 16, .threads = 1});
  EXPECT_EQ(std::ssize(rest(loader)), kShards * kInShard);
  EXPECT_EQ(loader.stats().refetched, 1);
}

TEST_F(WindowOf, IsKeptOnlyWhereItPays) {
  const auto kept = [](const std::shared_ptr<const Source>& of,
                       KeepWindow keep = KeepWindow::kAuto) {
    return WindowMemory::open(*of, keep) != nullptr;
  };
  EXPECT_TRUE(kept(source(dataset("s3://far/"))));
  EXPECT_TRUE(kept(source(dataset("https://far/set/"))));
  EXPECT_FALSE(kept(source(dataset("s3://far/")), KeepWindow::kNever));
  EXPECT_FALSE(kept(source(dataset("/data/set/"))));
  EXPECT_TRUE(kept(source(dataset("/data/set/")), KeepWindow::kAlways));
  const Source mixed({{.dataset = dataset()}, {.dataset = dataset()}}, {.seed = 7});
  EXPECT_EQ(WindowMemory::open(mixed, KeepWindow::kAlways), nullptr);
}

TEST_F(WindowOf, TakesWhatTheOrderMixes) {
  const auto set = dataset();
  const std::int64_t stored = kShards * kInShard * kSample;
  const auto bytes = [&](std::int64_t block, std::int64_t window) {
    return window_bytes(*source(set, block, window));
  };
  constexpr std::int64_t kAhead = 64 * kMiB;
  EXPECT_EQ(bytes(kShards * kInShard, 1), kAhead);  // storage order
  EXPECT_NEAR(static_cast<double>(bytes(1024, 1024)), kAhead + 1024 * kSample * 9 / 8., kMiB / 10);
  EXPECT_NEAR(static_cast<double>(bytes(1, 1)), kAhead + stored + kMiB, kMiB);  // a full shuffle
}

}  // namespace
}  // namespace bedplate::data
