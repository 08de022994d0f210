#include "bench/need.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/render.h"
#include "data/packed_writer.h"
#include "data/test_bytes.h"
#include "os/test_folder.h"
#include "store/driver.h"

namespace bedplate::bench {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// So many calls of so many bytes in a second.
Figures figures(std::int64_t calls, std::int64_t bytes) {
  return {.calls = calls,
          .amount = calls * bytes,
          .length = kSecond,
          .median = kMillisecond,
          .p99 = 2 * kMillisecond,
          .longest = 3 * kMillisecond};
}

DiskResult disk(std::int64_t block, std::int64_t random, std::int64_t sequential) {
  DiskResult result;
  result.folder = "/data";
  result.engine = "fio-3.33, io_uring";
  result.block = block;
  result.depth = 32;
  result.size = kGiB;
  result.filling = figures(1024, kMiB);
  result.phases = {{"sequential read", figures(sequential, block)},
                   {"random read", figures(random, block)}};
  return result;
}

const Need kNeed{.ranks = 8, .samples_per_second = 2000, .sample_bytes = 150.0 * kKiB};

TEST(Need, IsWhatAllRanksTake) {
  EXPECT_EQ(kNeed.reads_per_second(), 16'000);
  EXPECT_EQ(kNeed.bytes_per_second(), 16'000 * 150.0 * kKiB);
  EXPECT_EQ(human_bytes(kNeed.bytes_per_second()), "2.29 GiB");
  EXPECT_EQ(block_for(kNeed), 152 * kKiB);
  EXPECT_EQ(block_for({.sample_bytes = 1}), 4 * kKiB);
  EXPECT_EQ(block_for({.sample_bytes = 4096}), 4 * kKiB);
  EXPECT_EQ(block_for({.sample_bytes = 1e12}), 64 * kMiB);
}

TEST(Need, NonsenseIsRefused) {
  check_need(kNeed);
  for (const Need& bad : {Need{0, 1, 1}, Need{-1, 1, 1}, Need{1, 0, 1}, Need{1, -5, 1},
                          Need{1, 1, 0}, Need{1, 1e19, 1}, Need{1, 1e17, 1e17},
                          Need{1, std::numeric_limits<double>::quiet_NaN(), 1}}) {
    EXPECT_THROW(check_need(bad), Error);
  }
}

TEST(JudgeDisk, FitsWithAMargin) {
  const Judgement judgement = judge_disk(kNeed, disk(152 * kKiB, 21'600, 30'000));
  EXPECT_DOUBLE_EQ(judgement.margin, 1.35);
  EXPECT_TRUE(judgement.fits());
  EXPECT_THAT(judgement.advice, IsEmpty());
  EXPECT_EQ(judgement.gives, "random reads of 152 KiB: 3.13 GiB/s and 21.6 k a second");
}

TEST(JudgeDisk, TheBoundaryFitsAndBelowItDoesNot) {
  EXPECT_TRUE(judge_disk(kNeed, disk(152 * kKiB, 16'000, 16'000)).fits());
  EXPECT_FALSE(judge_disk(kNeed, disk(152 * kKiB, 15'999, 16'000)).fits());
}

TEST(JudgeDisk, SaysWhatWouldHelp) {
  const Judgement judgement = judge_disk(kNeed, disk(152 * kKiB, 8'000, 24'000));
  EXPECT_DOUBLE_EQ(judgement.margin, 0.5);
  EXPECT_THAT(judgement.advice,
              AllOf(Contains(HasSubstr("read in sequence, in larger blocks: so it gives 3.48 GiB/s "
                                       "(margin 1.52 ×)")),
                    Contains(HasSubstr("answers 50 % of the reads")),
                    Contains("fewer ranks: it feeds 4 of the 8")));
  const Judgement slow = judge_disk(kNeed, disk(152 * kKiB, 1'000, 2'000));
  EXPECT_THAT(slow.advice, AllOf(Not(Contains(HasSubstr("in sequence"))),
                                 Contains(HasSubstr("answers 94 % of the reads")),
                                 Not(Contains(HasSubstr("fewer ranks")))));
}

TEST(JudgeDisk, ASampleOfSeveralBlocksTakesSeveralReads) {
  // 150 KiB are 3 blocks of 64 KiB.
  EXPECT_DOUBLE_EQ(judge_disk(kNeed, disk(64 * kKiB, 48'000, 48'000)).margin, 1.0);
  EXPECT_DOUBLE_EQ(judge_disk(kNeed, disk(kMiB, 16'000, 48'000)).margin, 1.0);
}

TEST(JudgeMeta, CountsOpenedFiles) {
  MetaResult meta{"/data", 100, 4096, 8, Folders::kOwn, {{kOpenAndRead, figures(8'000, 1)}}, {}};
  const Judgement judgement = judge_meta(kNeed, meta);
  EXPECT_DOUBLE_EQ(judgement.margin, 0.5);
  EXPECT_THAT(judgement.advice, Contains(HasSubstr("shards: one open for thousands")));
  meta.phases = {{kOpenAndRead, figures(32'000, 1)}};
  EXPECT_TRUE(judge_meta(kNeed, meta).fits());
}

TEST(LookAtDataset, TellsTheMeanAndTheDatasetIsRead) {
  const os::TestFolder folder;
  const auto place = store::locate((folder.path() / "a.shard").string());
  data::PackedWriter writer(place.store->create(place.key, store::IfExists::kReplace, kSecond),
                            data::Schema({{.name = "bytes", .dtype = data::Dtype::kBytes}}));
  for (const std::size_t length : {1'000, 3'000}) {
    const std::string value(length, 'x');
    const auto bytes = data::bytes_of(value);
    writer.add({&bytes, 1});
  }
  writer.finish();
  const DatasetSource urls{{(folder.path() / "a.shard").string()}};
  const DatasetFacts facts = look_at_dataset(urls);
  EXPECT_EQ(facts.samples, 2);
  EXPECT_NEAR(facts.sample_bytes, 2'000, 32);  // and what a record costs beyond its bytes
  EXPECT_EQ(facts.lie, DatasetFacts::Samples::kInShards);
  const Figures read = measure_dataset(urls, 2, 50 * kMillisecond, {});
  EXPECT_GT(read.calls, 0);
  EXPECT_NEAR(static_cast<double>(read.amount) / static_cast<double>(read.calls), 2'001, 1'001);
  EXPECT_TRUE(judge_dataset({.samples_per_second = 1e-3, .sample_bytes = 2'000}, read, 2).fits());
  EXPECT_FALSE(judge_dataset({.samples_per_second = 1e12, .sample_bytes = 2'000}, read, 2).fits());
  for (const char* name : {"a.txt", "b.txt", "c.txt"})
    store::put(*place.store, fmt::format("loose/{}", name), std::string(500, 'x'));
  const DatasetSource loose{{(folder.path() / "loose").string() + "/"}, "files"};
  const DatasetFacts files = look_at_dataset(loose);
  EXPECT_EQ(files.samples, 3);
  EXPECT_EQ(files.sample_bytes, 500);
  EXPECT_EQ(files.lie, DatasetFacts::Samples::kFiles);
  const DatasetSource missing{{(folder.path() / "none.shard").string()}};
  EXPECT_THROW(look_at_dataset(missing), Error);
}

TEST(Render, TextAndJsonSayTheSame) {
  Verdict verdict{kNeed, {judge_disk(kNeed, disk(152 * kKiB, 8'000, 24'000))}};
  DiskResult result = disk(152 * kKiB, 8'000, 24'000);
  result.folder = "/d\x1b[31m";
  result.notes = {"a note"};
  const std::string text = render_text(result, verdict);
  EXPECT_THAT(text, AllOf(HasSubstr("the job needs 2.29 GiB/s and 16 k samples a second "
                                    "(8 ranks × 2 k samples/s × 150 KiB)"),
                          HasSubstr("(margin 0.50 ×): does not fit"), HasSubstr("note: a note"),
                          Not(HasSubstr("\x1b"))));
  const auto json = nlohmann::json::parse(render_json(result, verdict));
  EXPECT_EQ(json["fits"], false);
  EXPECT_EQ(json["judgements"][0]["margin"], 0.5);
  EXPECT_EQ(json["phases"]["random read"]["calls_per_second"], 8'000);
  EXPECT_EQ(json["phases"]["sequential read"]["median_ns"], kMillisecond);
  EXPECT_EQ(json["need"]["samples_per_second"], 16'000);
  const auto without = nlohmann::json::parse(render_json(result, {}));
  EXPECT_FALSE(without.contains("fits"));
  EXPECT_THAT(render_text(result, {}), Not(HasSubstr("needs")));
}

}  // namespace
}  // namespace bedplate::bench
