// Verifying: no flipped bit is missed, everything that is bad is named, the rest is read.
#include "data/verify.h"

#include <random>

#include "data/pack_fixture.h"
#include "data/tar_index.h"
#include "data/tar_sidecars.h"
#include "store/fault_store.h"

namespace bedplate::data {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Verify : public PackTest {
 protected:
  VerifyReport verify_all(std::vector<std::string> names, VerifyOptions options = {.threads = 3}) {
    for (std::string& name : names) name = path(name);
    return verify(names, options, watch_);
  }
  void flip(const std::string& name, std::int64_t byte) {
    std::fstream file(path(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(byte);
    const char was = static_cast<char>(file.get());
    file.seekp(byte);
    file.put(static_cast<char>(was ^ 4));
  }
};

TEST_F(Verify, WholeShardsAreWell) {
  write_pictures("in", 40);
  pack_all({"in"}, "out", {.shard_samples = 10});
  const VerifyReport report = verify_all({"out/"});
  EXPECT_EQ(report.shards, 4);
  EXPECT_EQ(report.samples, 40);
  EXPECT_EQ(report.unchecked, 0);
  EXPECT_THAT(report.bad, IsEmpty());
}

TEST_F(Verify, EachFlippedBitOfASampleIsFoundAndNamed) {
  write_pictures("in", 40);
  pack_all({"in"}, "out", {.shard_samples = 20});
  const auto dataset = open("out");
  const auto before = files("out");
  std::mt19937 random(11);
  for (int i = 0; i < 40; ++i) {
    const auto place = dataset->place(i);
    const Extent extent = dataset->shards()[place.shard].index().extent(place.sample);
    const std::string name = fmt::format("out/{:06}.shard", place.shard);
    flip(name, extent.offset + static_cast<std::int64_t>(random()) % extent.bytes);
    const VerifyReport report = verify_all({"out/"});
    ASSERT_EQ(report.bad.size(), 1u) << i;
    EXPECT_EQ(report.bad_samples, 1);
    EXPECT_EQ(report.bad[0].sample, place.sample);
    EXPECT_EQ(report.bad[0].offset, extent.offset);
    EXPECT_THAT(report.bad[0].shard, HasSubstr(name));
    EXPECT_EQ(report.samples, 40);
    write(name, before.at(name.substr(4)));
  }
}

TEST_F(Verify, ADamagedShardDoesNotHideTheOthers) {
  write_pictures("in", 30);
  pack_all({"in"}, "out", {.shard_samples = 10});
  std::string cut = files("out").at("000001.shard");
  cut.resize(cut.size() / 2);
  write("out/000001.shard", cut);
  write("out/000002.shard", "");
  const VerifyReport report = verify_all({"out/"});
  EXPECT_EQ(report.samples, 10);
  EXPECT_THAT(report.bad, ElementsAre(Field(&DamagedSample::shard, HasSubstr("000001.shard")),
                                      Field(&DamagedSample::shard, HasSubstr("000002.shard"))));
  EXPECT_EQ(report.bad[0].sample, -1);
}

TEST_F(Verify, ATarIsGuardedByItsIndexOnly) {
  write_pictures("in", 20);
  pack_all({"in"}, "out", {.target = Target::kWebDataset});
  EXPECT_EQ(verify_all({"out/"}).unchecked, 20);
  const std::string urls[] = {path("out") + "/"};
  make_indexes(urls, {}, watch_);
  const VerifyReport indexed = verify_all({"out/"});
  EXPECT_EQ(indexed.unchecked, 0);
  EXPECT_EQ(indexed.samples, 20);
  EXPECT_THAT(indexed.bad, IsEmpty());

  // Bits that rot do not change a file's time.
  const auto time = std::filesystem::last_write_time(path("out/000000.tar"));
  flip("out/000000.tar", open("out")->shards()[0].index().extent(7).offset + 600);
  std::filesystem::last_write_time(path("out/000000.tar"), time);
  const VerifyReport rotten = verify_all({"out/"});
  ASSERT_EQ(rotten.bad.size(), 1u);
  EXPECT_EQ(rotten.bad[0].sample, 7);

  write("out/000000.tar", files("out").at("000000.tar"));
  EXPECT_THAT(verify_all({"out/"}).notes, ElementsAre(HasSubstr("of another archive")));
}

TEST_F(Verify, AReadThatFailsIsOfThatSampleOnly) {
  write_pictures("in", 20);
  pack_all({"in"}, "out", {});
  const Extent bad = open("out")->shards()[0].index().extent(5);
  VerifyOptions options{.threads = 2};
  options.dataset.wrap = [&](std::shared_ptr<store::Store> inner) {
    return std::make_shared<store::FaultStore>(
        inner, store::Faults{.before_read = [&](const store::Read& read) -> std::optional<Error> {
          const std::int64_t end = read.offset + std::ssize(read.into);
          if (read.offset > bad.offset || end <= bad.offset) return std::nullopt;
          return Error(Code::kIo, "a bad sector");
        }});
  };
  const VerifyReport report = verify_all({"out/"}, options);
  ASSERT_EQ(report.bad.size(), 1u);
  EXPECT_EQ(report.bad[0].sample, 5);
  EXPECT_THAT(report.bad[0].what, HasSubstr("a bad sector"));
}

TEST_F(Verify, ToldToStopItStops) {
  write_pictures("in", 20);
  pack_all({"in"}, "out", {});
  const std::atomic<bool> stop = true;
  watch_.stop = [&] { return stop.load(); };
  EXPECT_THROW(verify_all({"out/"}), Error);
}

TEST_F(Verify, IndexesAreKeptWhileTheyAreOfTheirArchive) {
  write_pictures("in", 20);
  pack_all({"in"}, "out", {.target = Target::kWebDataset, .shard_samples = 10});
  const std::string urls[] = {path("out") + "/"};
  auto made = make_indexes(urls, {}, watch_).archives;
  ASSERT_EQ(made.size(), 2u);
  EXPECT_TRUE(made[0].made && made[1].made);
  EXPECT_EQ(made[0].samples, 10);
  made = make_indexes(urls, {}, watch_).archives;
  EXPECT_FALSE(made[0].made || made[1].made);
  EXPECT_EQ(made[0].samples, 10);
  write("out/000001.tar.bpidx", "damaged");
  made = make_indexes(urls, {}, watch_).archives;
  EXPECT_FALSE(made[0].made);
  EXPECT_TRUE(made[1].made);
  EXPECT_EQ(made[1].before, SidecarState::kOfAnother);
  made = make_indexes(urls, {.fresh = IndexOptions::Fresh::kMadeAgain}, watch_).archives;
  EXPECT_TRUE(made[0].made && made[1].made);
  EXPECT_EQ(open("out")->samples(), 20);
  pack_all({"in"}, "packed", {});
  const std::string packed[] = {path("packed/000000.shard")};
  EXPECT_THROW(make_indexes(packed, {}, watch_), Error);
  const std::string folder[] = {path("packed") + "/"};
  const IndexesMade of_folder = make_indexes(folder, {}, watch_);
  EXPECT_THAT(of_folder.archives, IsEmpty());
  ASSERT_EQ(of_folder.manifests.size(), 1u);
  EXPECT_EQ(of_folder.manifests[0].samples, 20);
  EXPECT_TRUE(files("packed").contains("bedplate.manifest"));
  EXPECT_EQ(open("packed")->samples(), 20);
  // What it leaves beside the shards is no part of the source, and does not hinder the pack.
  EXPECT_EQ(pack_all({"in"}, "packed", {}).end, PackReport::End::kNothingToDo);
}

}  // namespace
}  // namespace bedplate::data
