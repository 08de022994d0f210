// Measuring: that what is counted is what was read.
#include "data/loading_speed.h"

#include <gmock/gmock.h>

#include <atomic>

#include "base/error.h"
#include "data/packed_writer.h"
#include "os/test_folder.h"
#include "store/driver.h"

namespace bedplate::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 100 samples in four shards: a number, and one or two more in a row.
class LoadingSpeedOf : public ::testing::Test {
 protected:
  LoadingSpeedOf() {
    const Schema schema({{.name = "n", .dtype = Dtype::kI64},
                         {.name = "row", .dtype = Dtype::kI64, .shape = {kAny}}});
    for (std::int64_t shard = 0; shard < 4; ++shard) {
      const auto place = store::locate(path(fmt::format("out/{:06}.shard", shard)));
      PackedWriter writer(
          place.store->create(place.key, store::IfExists::kRefuse, store::kDefaultTimeout), schema);
      for (std::int64_t i = shard * 25; i < shard * 25 + 25; ++i) {
        const std::int64_t numbers[] = {i, 2, 1};
        const auto all = std::as_bytes(std::span(numbers));
        const std::span<const std::byte> values[] = {all.first(8), all.last(i % 3 == 0 ? 16 : 8)};
        writer.add(values);
      }
      writer.finish();
    }
  }
  std::string path(std::string_view name) const { return (folder_.path() / name).string(); }
  LoadingSpeed measure(LoadingOptions options) {
    const std::string urls[] = {path("out") + "/"};
    return measure_loading(urls, options, watch_);
  }
  std::string error_of(const LoadingOptions& options) {
    try {
      measure(options);
    } catch (const Error& error) {
      code_ = error.code();
      return error.what();
    }
    return "";
  }

  os::TestFolder folder_;
  Watch watch_;
  Code code_ = Code::kInternal;
};

TEST_F(LoadingSpeedOf, CountsEverySampleOfItsEpochs) {
  const LoadingSpeed speed =
      measure({.loader = {.batch_size = 20}, .length = 60 * kSecond, .epochs = 3});
  EXPECT_EQ(speed.samples, 300);
  EXPECT_EQ(speed.epochs, 3);
  EXPECT_EQ(speed.stats.batches, 15);
  EXPECT_EQ(speed.shards, 4);
  EXPECT_THAT(speed.formats, ElementsAre("packed"));
  EXPECT_THAT(speed.fields, ElementsAre("n", "row"));
  EXPECT_GT(speed.stats.bytes, 300 * 16);
  EXPECT_GT(speed.first_batch, 0);
  EXPECT_GE(speed.length, speed.first_batch);
  EXPECT_GT(speed.cpu, 0);
  EXPECT_GT(speed.peak_memory, 0);
  EXPECT_NEAR(speed.samples_per_second() * seconds(speed.length), 300, 1e-6);
  // Threads do one thing at a time.
  EXPECT_LE(speed.stats.read_ns + speed.stats.check_ns, speed.stats.make_ns);
}

TEST_F(LoadingSpeedOf, ARankReadsItsPartOnly) {
  const LoadingSpeed speed = measure({.loader = {.batch_size = 5, .rank = 3, .world_size = 4},
                                      .length = 60 * kSecond,
                                      .epochs = 1});
  EXPECT_EQ(speed.samples, 25);
}

TEST_F(LoadingSpeedOf, EndsByTime) {
  const LoadingSpeed speed = measure({.loader = {.batch_size = 1}, .length = 50 * kMillisecond});
  EXPECT_GE(speed.length, 50 * kMillisecond);
  EXPECT_GT(speed.samples, 0);
}

TEST_F(LoadingSpeedOf, FieldsCanBeChosen) {
  const LoadingSpeed speed =
      measure({.loader = {.batch_size = 10}, .fields = {"n"}, .length = 60 * kSecond, .epochs = 1});
  EXPECT_THAT(speed.fields, ElementsAre("n"));
  EXPECT_EQ(speed.samples, 100);
  EXPECT_THAT(error_of({.fields = {"nn"}}), HasSubstr("no field nn; they have n, row"));
}

TEST_F(LoadingSpeedOf, ColdItDropsTheFilesAndReadsOneEpoch) {
  const LoadingSpeed speed = measure({.loader = {.batch_size = 10},
                                      .length = 60 * kSecond,
                                      .page_cache = LoadingOptions::PageCache::kDropped});
  EXPECT_EQ(speed.files_dropped, 4);
  EXPECT_EQ(speed.epochs, 1);
  EXPECT_EQ(speed.samples, 100);
}

TEST_F(LoadingSpeedOf, WhatCannotBeMeasuredIsSaid) {
  EXPECT_THAT(error_of({.decode = ImageSpec{}}), HasSubstr("no picture to decode"));
  EXPECT_THAT(error_of({.loader = {.batch_size = 64, .world_size = 8, .tail = Tail::kDrop}}),
              HasSubstr("gets no batch"));
  const std::atomic<bool> stop = true;
  watch_.stop = [&] { return stop.load(); };
  error_of({});
  EXPECT_EQ(code_, Code::kUnavailable);
}

}  // namespace
}  // namespace bedplate::data
