// Shards as one row: names, places, fingerprints, errors that name what they are about.
#include "data/dataset.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "data/packed_writer.h"
#include "data/tar_writer.h"
#include "data/test_bytes.h"
#include "os/test_folder.h"

namespace bedplate::data {
namespace {

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
  bytes[static_cast<std::size_t>(dataset->shards()[0].index->extent(1).offset) + 5] ^= 1;
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

}  // namespace
}  // namespace bedplate::data
