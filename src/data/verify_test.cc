// Verifying: no flipped bit is missed, everything that is bad is named, the rest is read.
#include "data/verify.h"

#include <bit>
#include <random>

#include "base/crc32c.h"
#include "data/look.h"
#include "data/manifest.h"
#include "data/pack_fixture.h"
#include "data/sidecars.h"
#include "data/tar_index.h"
#include "store/fault_store.h"

namespace bedplate::data {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

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
  EXPECT_THAT(verify_all({"out/"}).notes,
              UnorderedElementsAre(HasSubstr("of another version"), HasSubstr("not as")));
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
  auto made = make_indexes(urls, {}, watch_).indexes;
  ASSERT_EQ(made.size(), 2u);
  EXPECT_TRUE(made[0].made && made[1].made);
  EXPECT_EQ(made[0].samples, 10);
  made = make_indexes(urls, {}, watch_).indexes;
  EXPECT_FALSE(made[0].made || made[1].made);
  EXPECT_EQ(made[0].samples, 10);
  write("out/000001.tar.bpidx", "damaged");
  made = make_indexes(urls, {}, watch_).indexes;
  EXPECT_FALSE(made[0].made);
  EXPECT_TRUE(made[1].made);
  EXPECT_EQ(made[1].before, SidecarState::kOfAnother);
  made = make_indexes(urls, {.fresh = IndexOptions::Fresh::kMadeAgain}, watch_).indexes;
  EXPECT_TRUE(made[0].made && made[1].made);
  EXPECT_EQ(open("out")->samples(), 20);
  pack_all({"in"}, "packed", {});
  const std::string packed[] = {path("packed/000000.shard")};
  EXPECT_THROW(make_indexes(packed, {}, watch_), Error);
  const std::string folder[] = {path("packed") + "/"};
  const IndexesMade of_folder = make_indexes(folder, {}, watch_);
  EXPECT_THAT(of_folder.indexes, IsEmpty());
  ASSERT_EQ(of_folder.manifests.size(), 1u);
  EXPECT_EQ(of_folder.manifests[0].samples, 20);
  EXPECT_TRUE(files("packed").contains("bedplate.manifest"));
  EXPECT_EQ(open("packed")->samples(), 20);
  // What it leaves beside the shards is no part of the source, and does not hinder the pack.
  EXPECT_EQ(pack_all({"in"}, "packed", {}).end, PackReport::End::kNothingToDo);
}

// Records of a TFRecord file around `count` texts, as tensorflow/core/lib/io/record_writer.h has
// it.
std::string tf_records(int count) {
  const auto masked = [](std::string_view text) {
    return std::rotr(crc32c(text), 15) + 0xa282ead8U;
  };
  std::string out;
  const auto put = [&](auto number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  for (int i = 0; i < count; ++i) {
    const std::string text = fmt::format("record {}", i);
    const std::uint64_t size = text.size();
    put(size);
    put(masked({reinterpret_cast<const char*>(&size), sizeof size}));
    out += text;
    put(masked(text));
  }
  return out;
}

TEST_F(Verify, ATfRecordFileGetsAnIndexToo) {
  write("out/a.tfrecord", tf_records(30));
  const std::string urls[] = {path("out") + "/"};
  auto made = make_indexes(urls, {}, watch_);
  ASSERT_EQ(made.indexes.size(), 1u);
  EXPECT_TRUE(made.indexes[0].made);
  EXPECT_EQ(made.indexes[0].samples, 30);
  EXPECT_EQ(made.manifests.size(), 1u);
  EXPECT_FALSE(make_indexes(urls, {}, watch_).indexes[0].made);
  const DataFacts facts = describe(urls, {}, 100, watch_);
  EXPECT_EQ(facts.without_index, 1);
  EXPECT_EQ(facts.indexed, 1);
  const VerifyReport whole = verify_all({"out/"});
  EXPECT_EQ(whole.unchecked, 0);
  EXPECT_EQ(whole.samples, 30);

  // Its checksums are its own: they hold without an index, and with one of another file.
  std::string other = tf_records(31);
  other[other.size() - 6] ^= 1;  // of the last record
  write("out/a.tfrecord", other);
  const VerifyReport changed = verify_all({"out/"});
  EXPECT_THAT(changed.notes,
              UnorderedElementsAre(HasSubstr("not as"), HasSubstr("of another version")));
  ASSERT_EQ(changed.bad.size(), 1u);
  EXPECT_EQ(changed.bad[0].sample, 30);
  EXPECT_EQ(changed.unchecked, 0);
  EXPECT_EQ(describe(urls, {}, 1, watch_).indexed, 0);
  EXPECT_EQ(make_indexes(urls, {}, watch_).indexes[0].before, SidecarState::kOfAnother);
}

TEST_F(Verify, LooseFilesAreListedOnceAndAgainWhenTheyChange) {
  using Before = ListingMade::Before;
  write_pictures("in", 10);
  const std::string urls[] = {path("in") + "/"};
  const IndexOptions of_files{.dataset = {.format = "files"}};
  const auto listing = [&](const IndexOptions& options) {
    const auto made = make_indexes(urls, options, watch_);
    EXPECT_EQ(made.listings.size(), 1u);
    EXPECT_TRUE(made.indexes.empty() && made.manifests.empty());
    return made.listings.at(0).made;
  };
  EXPECT_EQ(listing(of_files).before, Before::kNothing);
  EXPECT_EQ(listing(of_files).files, 20);
  // From now on the folder needs no format.
  EXPECT_EQ(listing({}).before, Before::kTheSame);
  EXPECT_EQ(verify_all({"in/"}).samples, 20);
  const DataFacts facts = describe(urls, {}, 100, watch_);
  EXPECT_EQ(facts.samples, 20);
  EXPECT_EQ(facts.object_bytes, facts.sample_bytes);

  write("in/000.jpg", "another picture");
  const VerifyReport changed = verify_all({"in/"});
  ASSERT_EQ(changed.bad.size(), 1u);
  EXPECT_EQ(listing({}).before, Before::kAnother);
  EXPECT_THAT(verify_all({"in/"}).bad, IsEmpty());

  const std::string one[] = {path("in/000.jpg")};
  EXPECT_THROW(make_indexes(one, of_files, watch_), Error);
}

TEST_F(Verify, AManifestThatIsWrongIsFound) {
  write_pictures("in", 30);
  pack_all({"in"}, "out", {.shard_samples = 10});
  const std::string urls[] = {path("out") + "/"};
  make_indexes(urls, {}, watch_);
  EXPECT_THAT(verify_all({"out/"}).bad, IsEmpty());
  const std::string good = files("out").at(std::string(kManifestName));
  const ObjectTable table(good, kManifestMagic);
  std::vector<ObjectRow> rows = {table.row(0), table.row(1), table.row(2)};
  rows[1].number = 11;
  write("out/bedplate.manifest", ObjectTable::write(kManifestMagic, table.text(), rows));
  const VerifyReport wrong = verify_all({"out/"});
  ASSERT_EQ(wrong.bad.size(), 1u);
  EXPECT_THAT(wrong.bad[0].what, HasSubstr("10 samples, where the manifest of its folder says 11"));
  write("out/bedplate.manifest", good);
  std::filesystem::remove(path("out/000001.shard"));
  const VerifyReport missing = verify_all({"out/"});
  ASSERT_EQ(missing.bad.size(), 1u);
  EXPECT_THAT(missing.bad[0].shard, HasSubstr("out"));
  EXPECT_THAT(missing.bad[0].what, HasSubstr("000001.shard"));
  EXPECT_EQ(missing.samples, 20);
  write("out/bedplate.manifest", good.substr(1));
  EXPECT_THAT(verify_all({"out/"}).notes, ElementsAre(HasSubstr("damaged")));
}

}  // namespace
}  // namespace bedplate::data
