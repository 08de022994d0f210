// Shards as one row: names, places, fingerprints, errors that name what they are about.
#include "data/dataset.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "data/manifest.h"
#include "data/packed_writer.h"
#include "data/tar_writer.h"
#include "data/test_bytes.h"
#include "os/test_folder.h"
#include "store/fault_store.h"

namespace bedplate::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ExpandBraces, CountsListsAndMultiplies) {
  EXPECT_THAT(expand_braces("a"), ElementsAre("a"));
  EXPECT_THAT(expand_braces("a{08..11}"), ElementsAre("a08", "a09", "a10", "a11"));
  EXPECT_THAT(expand_braces("{8..10}"), ElementsAre("8", "9", "10"));
  EXPECT_THAT(expand_braces("{x,y}/{0..1}"), ElementsAre("x/0", "x/1", "y/0", "y/1"));
  EXPECT_THAT(expand_braces("a\\{1\\}"), ElementsAre("a{1}"));
  for (const char* wrong :
       {"a{1..2", "{3..1}", "{0..99999999}", "{0..9999}{0..9999}", "{a{b,c}}"}) {
    EXPECT_THROW(expand_braces(wrong), Error) << wrong;
  }
}

class DatasetOf : public ::testing::Test {
 protected:
  std::string url(std::string_view name) { return (folder_.path() / name).string(); }
  void packed(std::string_view name, int samples) {
    const auto place = store::locate(url(name));
    PackedWriter writer(place.store->create(place.key, store::IfExists::kReplace, kSecond),
                        Schema({{.name = "text", .dtype = Dtype::kUtf8}}));
    for (int i = 0; i < samples; ++i) {
      const std::string text = fmt::format("{}/{}", name, i);
      const std::span<const std::byte> value[] = {bytes_of(text)};
      writer.add(value);
    }
    writer.finish();
  }
  std::shared_ptr<const Dataset> open(std::vector<std::string> urls) { return Dataset::open(urls); }
  std::string refusal(std::vector<std::string> urls) {
    try {
      open(std::move(urls));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  os::TestFolder folder_;
};

TEST_F(DatasetOf, NumbersSamplesThroughItsShards) {
  packed("0.shard", 3);
  packed("1.shard", 0);
  packed("2.shard", 2);
  const auto dataset = open({url("{0..2}.shard")});
  EXPECT_EQ(dataset->samples(), 5);
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < 5; ++i) texts.push_back(text_of(dataset->get(i).fields[0].bytes));
  EXPECT_THAT(texts, ElementsAre("0.shard/0", "0.shard/1", "0.shard/2", "2.shard/0", "2.shard/1"));
  EXPECT_THROW(dataset->place(5), Error);
  EXPECT_THROW(dataset->place(-1), Error);
  EXPECT_EQ(open({url("") + "/"})->samples(), 5);
}

TEST_F(DatasetOf, AFingerprintIsOfNamesSizesAndCounts) {
  packed("0.shard", 3);
  packed("1.shard", 4);
  const auto one = open({url("{0..1}.shard")})->fingerprint();
  EXPECT_EQ(one, open({url("0.shard"), url("1.shard")})->fingerprint());
  EXPECT_NE(one, open({url("1.shard"), url("0.shard")})->fingerprint());
  packed("1.shard", 5);
  EXPECT_NE(one, open({url("{0..1}.shard")})->fingerprint());
}

TEST_F(DatasetOf, SaysWhatIsMissingOrUnknown) {
  packed("0.shard", 1);
  EXPECT_THAT(refusal({url("{0..1}.shard")}), HasSubstr("1.shard is not there"));
  EXPECT_THAT(refusal({}), HasSubstr("at least one"));
  store::put(*store::locate(url("x.bin")).store, "x.bin", "x");
  EXPECT_THAT(refusal({url("x.bin")}), HasSubstr("no format"));
  DatasetOptions options{.format = "webdatset"};
  const std::vector<std::string> urls = {url("0.shard")};
  try {
    Dataset::open(urls, options);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean webdataset?"));
  }
}

TEST_F(DatasetOf, ADamagedSampleIsNamed) {
  packed("0.shard", 3);
  const auto dataset = open({url("0.shard")});
  const auto place = store::locate(url("0.shard"));
  std::string bytes = store::get(*place.store, place.key);
  bytes[static_cast<std::size_t>(dataset->shards()[0].index().extent(1).offset) + 5] ^= 1;
  store::put(*place.store, place.key, bytes);
  const auto again = open({url("0.shard")});
  EXPECT_EQ(text_of(again->get(2).fields[0].bytes), "0.shard/2");
  try {
    again->get(1);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kCorrupt);
    EXPECT_THAT(error.what(), HasSubstr("sample 1 (1 of"));
    EXPECT_THAT(error.what(), HasSubstr("0.shard"));
  }
}

// --- manifests ------------------------------------------------------------------------------

class Manifests : public DatasetOf {
 protected:
  static std::size_t opened(const Dataset& dataset) {
    return static_cast<std::size_t>(
        std::ranges::count_if(dataset.shards(), [](const auto& shard) { return shard.is_open(); }));
  }
  std::string folder() { return url("") + "/"; }
  void damage(std::string_view name, std::size_t byte) {
    const auto place = store::locate(url(name));
    std::string bytes = store::get(*place.store, place.key);
    bytes[byte] ^= 1;
    store::put(*place.store, place.key, bytes);
  }
};

TEST_F(Manifests, ShardsAreOpenedWhenTheyAreUsed) {
  for (int i = 0; i < 40; ++i) packed(fmt::format("{:02}.shard", i), i % 3);
  const auto before = open({folder()});
  EXPECT_EQ(opened(*before), 40u);
  const ManifestMade made = write_manifest(folder());
  EXPECT_EQ(made.shards, 40);
  EXPECT_EQ(made.samples, before->samples());
  for (const std::string& url : {folder(), url("{00..39}.shard"), url("{00..19}.shard")}) {
    const auto dataset = open({url});
    EXPECT_EQ(opened(*dataset), 0u) << url;
    EXPECT_EQ(dataset->memory_bytes(), 0);
    EXPECT_THAT(dataset->notes(), ElementsAre());
    EXPECT_EQ(text_of(dataset->get(0).fields[0].bytes), "01.shard/0");
    EXPECT_EQ(text_of(dataset->get(2).fields[0].bytes), "02.shard/1");
    EXPECT_EQ(opened(*dataset), 2u);
  }
  EXPECT_EQ(open({folder()})->fingerprint(), before->fingerprint());
}

TEST_F(Manifests, AShardThatChangedIsOpenedAndNamed) {
  for (int i = 0; i < 3; ++i) packed(fmt::format("{}.shard", i), 5);
  write_manifest(folder());
  packed("1.shard", 7);
  packed("3.shard", 1);
  const auto dataset = open({folder()});
  EXPECT_EQ(dataset->samples(), 18);
  EXPECT_EQ(opened(*dataset), 2u);
  EXPECT_THAT(dataset->notes(), ElementsAre(AllOf(HasSubstr("2 of 4 shards are not as"),
                                                  HasSubstr("first: 1.shard"))));
  write_manifest(folder());
  EXPECT_EQ(opened(*open({folder()})), 0u);
}

TEST_F(Manifests, ADamagedOneIsPassedOverAndNamed) {
  packed("0.shard", 3);
  const std::string name(kManifestName);
  const auto size = static_cast<std::size_t>(write_manifest(folder()).object.size);
  for (std::size_t i = 0; i < size; ++i) {
    damage(name, i);
    const auto dataset = open({folder()});
    ASSERT_EQ(dataset->samples(), 3) << i;
    ASSERT_EQ(opened(*dataset), 1u) << i;
    ASSERT_THAT(dataset->notes(), ElementsAre(HasSubstr("damaged and was passed over"))) << i;
    damage(name, i);
  }
}

TEST_F(Manifests, AWrongCountIsFoundWhenTheShardIsOpened) {
  packed("0.shard", 3);
  const auto place = store::locate(url("0.shard"));
  const auto info = store::info(*place.store, place.key);
  const ObjectRow row{"0.shard", info.size, 4, info.version};
  store::put(*place.store, std::string(kManifestName),
             ObjectTable::write(kManifestMagic, "packed", {&row, 1}));
  const auto dataset = open({folder()});
  EXPECT_EQ(dataset->samples(), 4);
  try {
    dataset->get(0);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kCorrupt);
    EXPECT_THAT(error.what(), HasSubstr("has 3 samples, where the manifest says 4"));
  }
}

TEST_F(Manifests, ManyThreadsAndAChildOpenAShardOnceEach) {
  for (int i = 0; i < 8; ++i) packed(fmt::format("{}.shard", i), 10);
  write_manifest(folder());
  std::atomic<int> reads = 0;
  DatasetOptions options;
  options.wrap = [&](std::shared_ptr<store::Store> inner) {
    return std::make_shared<store::FaultStore>(
        std::move(inner), store::Faults{.before_read = [&](const store::Read& read) {
          // A packed shard's header is read once by each opening.
          if (read.offset == 0 && read.key.ends_with(".shard")) ++reads;
          return std::optional<Error>();
        }});
  };
  const std::string urls[] = {folder()};
  const auto dataset = Dataset::open(urls, options);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        for (std::int64_t i = 0; i < 40; ++i) dataset->get(i);
      });
    }
  }
  EXPECT_EQ(reads, 4);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool right = text_of(dataset->get(3).fields[0].bytes) == "0.shard/3" &&
                       text_of(dataset->get(79).fields[0].bytes) == "7.shard/9";
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(opened(*dataset), 4u);
}

// A store that cannot list, as those behind plain HTTP.
class Unlisted : public store::FaultStore {
 public:
  explicit Unlisted(std::shared_ptr<Store> inner) : FaultStore(std::move(inner), {}) {}
  void list(std::string_view, const Visit&, Deadline) override {
    throw Error(Code::kUnsupported, "this store cannot list");
  }
};

TEST_F(Manifests, ManyNamesAreFoundWithAndWithoutAListing) {
  for (int i = 0; i < 50; ++i) packed(fmt::format("{:02}.shard", i), 1);
  write_manifest(folder());
  for (int i = 0; i < 1600; ++i)  // far more than is asked for: no listing to its end
    std::ofstream(folder_.path() / fmt::format("00-{}", i));
  DatasetOptions unlisted;
  unlisted.wrap = [](std::shared_ptr<store::Store> inner) {
    return std::make_shared<Unlisted>(std::move(inner));
  };
  const std::string urls[] = {url("{00..49}.shard")};
  for (const DatasetOptions& options : {DatasetOptions(), unlisted}) {
    const auto dataset = Dataset::open(urls, options);
    EXPECT_EQ(dataset->samples(), 50);
    EXPECT_EQ(opened(*dataset), 0u);
    EXPECT_EQ(text_of(dataset->get(49).fields[0].bytes), "49.shard/0");
  }
  EXPECT_THAT(refusal({url("{00..50}.shard")}), HasSubstr("50.shard is not there"));
}

TEST_F(Manifests, ManyShardsCostAtMost24BytesASampleWhenAllAreOpen) {
  constexpr int kShards = 500;
  constexpr int kEach = 100;
  packed("x", kEach);
  const std::string bytes = store::get(*store::locate(url("x")).store, "x");
  for (int i = 0; i < kShards; ++i)
    std::ofstream(folder_.path() / fmt::format("{:04}.shard", i)) << bytes;
  write_manifest(folder());
  const auto dataset = open({folder()});
  ASSERT_EQ(dataset->samples(), kShards * kEach);
  dataset->get(dataset->samples() - 1);
  EXPECT_EQ(opened(*dataset), 1u);
  for (const auto& shard : dataset->shards()) shard.index();
  EXPECT_EQ(opened(*dataset), static_cast<std::size_t>(kShards));
  EXPECT_LE(dataset->memory_bytes(), 24 * dataset->samples());
}

TEST_F(Manifests, AFolderOfSeveralFormatsIsRefused) {
  packed("0.shard", 1);
  TarWriter tar(
      store::locate(url("1.tar")).store->create("1.tar", store::IfExists::kReplace, kSecond));
  tar.finish();
  EXPECT_THAT(refusal({folder()}), HasSubstr("several formats"));
  const std::string urls[] = {folder()};
  EXPECT_EQ(Dataset::open(urls, {.format = "packed"})->samples(), 1);
}

TEST(ObjectTableTest, RowsComeBackAndAreFound) {
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back(fmt::format("ünï/{:04}", i));
  std::vector<ObjectRow> rows;
  for (const auto& name : names) rows.push_back({name, 1, std::ssize(rows), name});
  const ObjectTable table(ObjectTable::write("MAGICMAG", "text", rows), "MAGICMAG");
  EXPECT_EQ(table.rows(), 1000);
  EXPECT_EQ(table.text(), "text");
  EXPECT_EQ(table.find(names[500])->number, 500);
  EXPECT_EQ(table.find(names[500])->version, names[500]);
  EXPECT_EQ(table.find("nothing"), std::nullopt);
  EXPECT_EQ(ObjectTable(ObjectTable::write("MAGICMAG", "", {}), "MAGICMAG").rows(), 0);
  EXPECT_THROW(ObjectTable(ObjectTable::write("MAGICMAG", "", {}), "OTHERMAG"), Error);
}

TEST(ObjectTableTest, NamesThatLeaveTheFolderOrRepeatAreRefused) {
  const auto refused = [](std::vector<ObjectRow> rows) {
    EXPECT_THROW(ObjectTable::write("MAGICMAG", "", rows), Error);
  };
  refused({{"../a"}});
  refused({{""}});
  refused({{"/a"}});
  refused({{"a"}, {"a"}});
  refused({{"b"}, {"a"}});
}

}  // namespace
}  // namespace bedplate::data
