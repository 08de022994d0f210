// What is peculiar to MDS, Megatron, TFRecord and loose files: types, names, huge and odd numbers.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "data/dataset.h"
#include "data/listing.h"
#include "data/manifest.h"
#include "data/object_table.h"
#include "data/scanned_index.h"
#include "data/test_bytes.h"
#include "data/test_shards.h"
#include "os/test_folder.h"
#include "store/driver.h"

namespace bedplate::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class InMemory : public ::testing::Test {
 protected:
  void put(std::string_view key, std::string_view bytes) { store::put(*store_, key, bytes); }
  std::shared_ptr<const Dataset> open(std::string_view key, std::string_view format = "") {
    const std::string urls[] = {fmt::format("memory://formats/{}", key)};
    return Dataset::open(urls, {.format = std::string(format)});
  }
  std::shared_ptr<const Dataset> recovered(std::string_view key) {
    const std::string urls[] = {fmt::format("memory://formats/{}", key)};
    return Dataset::open(urls, {.shard = {.cut_off = CutOff::kRecover}});
  }
  // "code: message" of opening and reading all of it.
  std::string refusal(std::string_view key) {
    try {
      const auto dataset = open(key);
      for (std::int64_t i = 0; i < dataset->samples(); ++i) dataset->get(i);
    } catch (const Error& error) {
      return fmt::format("{}: {}", name(error.code()), error.what());
    }
    return "taken";
  }
  // "name dtype [shape] text".
  static std::vector<std::string> fields(const Sample& sample) {
    std::vector<std::string> out;
    for (const Field& field : sample.fields) {
      out.push_back(fmt::format("{} {} [{}] {}", field.name, name(field.dtype),
                                fmt::join(field.shape, ","), text_of(field.bytes)));
    }
    return out;
  }

  const std::shared_ptr<store::Store> store_ = store::locate("memory://formats").store;
};

template <typename T>
std::string raw_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// --- MDS ------------------------------------------------------------------------------------

class Mds : public InMemory {
 protected:
  void write(std::span<const MdsTestColumn> columns, std::span<const std::string> samples) {
    const std::string shard = mds_shard(samples);
    put("mds/shard.00000.mds", shard);
    put("mds/index.json",
        mds_index(columns, "shard.00000.mds", std::ssize(shard), std::ssize(samples)));
  }
  // One column, one value, which has a length of its own.
  Sample value(const std::string& encoding, const std::string& bytes) {
    const MdsTestColumn columns[] = {{"x", encoding}};
    const std::string samples[] = {raw_of(static_cast<std::uint32_t>(bytes.size())) + bytes};
    write(columns, samples);
    return open("mds/index.json")->get(0);
  }
};

TEST_F(Mds, EncodingsHaveTypes) {
  const MdsTestColumn columns[] = {
      {"a", "int", 8}, {"b", "uint16", 2}, {"c", "ndarray:int8:2,2", 4}, {"d", "bytes"},
      {"e", "jpeg"},   {"f", "str_int"},   {"g", "float16", 2}};
  const std::string samples[] = {raw_of(1U) + raw_of(2U) + raw_of(3U) + "aaaaaaaa" + "bb" + "cccc" +
                                 "d" + "ee" + "123" + "gg"};
  write(columns, samples);
  const auto dataset = open("mds/index.json");
  const Sample sample = dataset->get(0);
  EXPECT_THAT(fields(sample),
              ElementsAre("a i64 [] aaaaaaaa", "b u16 [] bb", "c i8 [2,2] cccc", "d bytes [1] d",
                          "e bytes [2] ee", "f utf8 [3] 123", "g f16 [] gg"));
  EXPECT_EQ(sample.fields[4].encoding, "jpeg");
  EXPECT_EQ(sample.fields[5].encoding, "str_int");
  EXPECT_EQ(dataset->shards()[0].index().fixed_place("c")->offset, 22);
  EXPECT_EQ(dataset->shards()[0].index().fixed_place("g"), std::nullopt);
}

TEST_F(Mds, ArraysTellTheirTypeAndShape) {
  EXPECT_THAT(fields(value("ndarray", std::string("\x11\x08\x02\x03", 4) + "abcdefghijkl")),
              ElementsAre("x i16 [2,3] abcdefghijkl"));
  EXPECT_THAT(fields(value("ndarray:uint8", std::string("\x05\x03\x00", 3) + "abc")),
              ElementsAre("x u8 [3] abc"));
  const auto refused = [&](const std::string& bytes) {
    value("ndarray", "\x08\x04\x01y");
    EXPECT_THROW(value("ndarray", bytes), Error) << bytes;
  };
  refused("");
  refused("\x08");
  refused(std::string("\x08\x04\x02y", 4));  // one byte for two
  refused(std::string("\x07\x04\x01y", 4));  // no such dtype
  refused("\x08\x0f\xff\xff\xff\xff\xff\xff\xff\xff" + std::string(16, '\xff'));  // 2^64 cubed
  refused(std::string("\x08\xfc", 2));  // 63 sizes, none there
}

TEST_F(Mds, WhatIsNotReadIsNamed) {
  const std::string samples[] = {""};
  for (const char* encoding : {"pkl", "list[jpeg]", "jpeg_array", "unheard-of"}) {
    const MdsTestColumn columns[] = {{"x", encoding}};
    write(columns, samples);
    EXPECT_THAT(refusal("mds/index.json"),
                AllOf(HasSubstr("not supported"), HasSubstr(encoding), HasSubstr("column x")));
  }
  for (const char* encoding : {"ndarray:float128", "ndarray:int8:0", "ndarray:int8:-1",
                               "ndarray:int8:4294967296,4294967296", "ndarray:int8:2,"}) {
    const MdsTestColumn columns[] = {{"x", encoding}};
    write(columns, samples);
    EXPECT_THAT(refusal("mds/index.json"), HasSubstr("corrupt")) << encoding;
  }
}

TEST_F(Mds, CompressedShardsSayHowToUnpackThem) {
  const MdsTestColumn columns[] = {{"x", "str"}};
  std::string index = mds_index(columns, "shard.00000.mds", 10, 1);
  index.replace(index.find("\"zip_data\": null"), 16,
                R"("zip_data": {"basename": "shard.00000.mds.zstd", "bytes": 9})");
  index.replace(index.find("\"compression\": null"), 19, R"("compression": "zstd:3")");
  store_->remove("mds/shard.00000.mds", Deadline::after(kSecond));
  put("mds/shard.00000.mds.zstd", "something");
  put("mds/index.json", index);
  EXPECT_THAT(refusal("mds/index.json"),
              AllOf(HasSubstr("not supported"), HasSubstr("zstd:3"), HasSubstr("zstd -d")));
}

TEST_F(Mds, NamesAndSizesThatCannotBeAreRefused) {
  const MdsTestColumn columns[] = {{"x", "str"}};
  const std::string shard = mds_shard(std::vector<std::string>{raw_of(1U) + "a"});
  put("mds/shard.00000.mds", shard);
  put("outside", shard);
  const auto with = [&](std::string_view basename, std::int64_t bytes, std::int64_t samples) {
    put("mds/index.json", mds_index(columns, basename, bytes, samples));
    return refusal("mds/index.json");
  };
  const std::int64_t size = std::ssize(shard);
  EXPECT_EQ(with("shard.00000.mds", size, 1), "taken");
  EXPECT_THAT(with("../outside", size, 1), HasSubstr("part . or .."));
  EXPECT_THAT(with("/outside", size, 1), HasSubstr("corrupt"));
  EXPECT_THAT(with("nothing.mds", size, 1), HasSubstr("nothing.mds"));
  EXPECT_THAT(with("shard.00000.mds", size + 1, 1), HasSubstr("broke off"));
  EXPECT_THAT(with("shard.00000.mds", size, -1), HasSubstr("corrupt"));
  EXPECT_THAT(with("shard.00000.mds", size, INT64_MAX), HasSubstr("corrupt"));
  EXPECT_THAT(with("shard.00000.mds", size, 4'000'000'000), HasSubstr("corrupt"));
  EXPECT_THAT(with("shard.00000.mds", size, 2), HasSubstr("corrupt"));
}

TEST_F(Mds, AnIndexThatIsHostileJsonIsCorrupt) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  for (const std::string& more :
       {deep, std::string("18446744073709551616"), std::string("1,\"x\":2")}) {
    put("mds/index.json", "{\"version\":2,\"x\":" + more + ",\"shards\":[]}");
    EXPECT_THAT(refusal("mds/index.json"),
                AllOf(HasSubstr("corrupt"), HasSubstr("mds/index.json"), HasSubstr("no index")));
  }
}

TEST_F(Mds, AnIndexStandsForThoseBelowIt) {
  const MdsTestColumn columns[] = {{"x", "str"}};
  const std::string shard = mds_shard(std::vector<std::string>{raw_of(1U) + "a"});
  put("tree/sub/shard.00000.mds", shard);
  put("tree/sub/index.json", mds_index(columns, "shard.00000.mds", std::ssize(shard), 1));
  EXPECT_EQ(open("tree/")->samples(), 1);
  put("tree/index.json", mds_index(columns, "sub/shard.00000.mds", std::ssize(shard), 1));
  EXPECT_EQ(open("tree/")->samples(), 1);
  EXPECT_EQ(open("tree/", "mds")->samples(), 1);
}

// --- Megatron -------------------------------------------------------------------------------

class Megatron : public InMemory {
 protected:
  std::string with(int code, std::vector<std::int32_t> lengths, std::vector<std::int64_t> places) {
    put("m/a.idx", megatron_index(code, lengths, places));
    return refusal("m/a.idx");
  }
};

TEST_F(Megatron, SequencesHaveTheSetsType) {
  put("m/a.bin", "abcdefgh");
  EXPECT_EQ(with(8, {1, 0, 3}, {0, 2, 2}), "taken");
  const auto dataset = open("m/a.idx");
  EXPECT_THAT(fields(dataset->get(0)), ElementsAre("tokens u16 [1] ab"));
  EXPECT_THAT(fields(dataset->get(1)), ElementsAre("tokens u16 [0] "));
  EXPECT_THAT(fields(dataset->get(2)), ElementsAre("tokens u16 [3] cdefgh"));
}

TEST_F(Megatron, AMultimodalSetHasModes) {
  put("m/a.bin", "abc");
  put("m/a.idx",
      megatron_index(1, std::vector<std::int32_t>{1, 2}, std::vector<std::int64_t>{0, 1}) +
          std::string("\x00\x07", 2));
  EXPECT_THAT(fields(open("m/a.idx")->get(1)), ElementsAre("tokens u8 [2] bc", "mode i8 [] \a"));
}

TEST_F(Megatron, PlacesThatCannotBeAreRefused) {
  put("m/a.bin", "abcdefgh");
  EXPECT_EQ(with(1, {8, 8, 8}, {0, 0, 0}), "taken");  // overlaps: the same tokens in each
  EXPECT_THAT(with(1, {-1}, {0}), HasSubstr("corrupt"));
  EXPECT_THAT(with(1, {1}, {-1}), HasSubstr("corrupt"));
  EXPECT_THAT(with(1, {1}, {INT64_MAX}), HasSubstr("0 sequences before it"));
  EXPECT_THAT(with(5, {INT32_MAX}, {0}), HasSubstr("lies outside"));
  EXPECT_THAT(with(1, {2, 9}, {0, 0}), HasSubstr("1 sequences before it"));
  EXPECT_EQ(recovered("m/a.idx")->samples(), 1);
  EXPECT_THAT(with(0, {1}, {0}), HasSubstr("code 0"));
  EXPECT_THAT(with(9, {1}, {0}), HasSubstr("code 9"));
  std::string huge = megatron_index(1, std::vector<std::int32_t>{1}, std::vector<std::int64_t>{0});
  for (const std::size_t at : {18, 26}) {
    for (const std::uint64_t count : {std::uint64_t{1} << 63, UINT64_MAX, UINT64_MAX / 12 + 1}) {
      std::string wrong = huge;
      std::memcpy(wrong.data() + at, &count, sizeof count);
      put("m/a.idx", wrong);
      EXPECT_THAT(refusal("m/a.idx"), HasSubstr("corrupt"));
    }
  }
  put("m/a.idx", std::string("TNTIDX\0\0", 8) + std::string(40, 'x'));
  EXPECT_THAT(refusal("m/a.idx"), HasSubstr("--dataset-impl mmap"));
  put("m/b.idx", huge);
  EXPECT_THAT(refusal("m/b.idx"), HasSubstr("m/b.bin"));
}

// --- TFRecord -------------------------------------------------------------------------------

class TfRecord : public InMemory {
 protected:
  Sample sample(std::string_view record) {
    put("a.tfrecord", tfrecord_of(record));
    return open("a.tfrecord")->get(0);
  }
};

TEST_F(TfRecord, FeaturesAreFields) {
  const Sample one = sample(example_of("ünï", -2, 1.5F));
  ASSERT_EQ(one.fields.size(), 3u);
  EXPECT_THAT(fields(one), ElementsAre("number i64 [1] " + raw_of(std::int64_t{-2}),
                                       "real f32 [1] " + raw_of(1.5F), "text bytes [5] ünï"));
}

std::string feature(std::string_view name, std::string_view value) {
  return protobuf_field(1, protobuf_field(1, name) + protobuf_field(2, value));
}

TEST_F(TfRecord, ListsComeInEachOfProtobufsWays) {
  const std::string packed_and_not =
      protobuf_field(3, protobuf_field(1, "\x01\x02") + "\x08\x03" + protobuf_field(1, "\x04"));
  const std::string single_floats = protobuf_field(2,
                                                   "\x0d"
                                                   "abcd"
                                                   "\x0d"
                                                   "efgh");
  const std::string two_strings = protobuf_field(1, protobuf_field(1, "a") + protobuf_field(1, ""));
  const std::string other_kind_first = protobuf_field(1, protobuf_field(1, "a")) + packed_and_not;
  std::string four;
  for (std::int64_t i = 1; i <= 4; ++i) four += raw_of(i);
  EXPECT_THAT(
      fields(sample(protobuf_field(1, feature("i", packed_and_not) + feature("f", single_floats) +
                                          feature("s", two_strings) + feature("e", "") +
                                          feature("o", other_kind_first)))),
      ElementsAre("e bytes [0] ", "f f32 [2] abcdefgh", "i i64 [4] " + four, "o i64 [4] " + four,
                  "s[0] bytes [1] a", "s[1] bytes [0] "));
}

TEST_F(TfRecord, OtherRecordsAreOneField) {
  for (const std::string& record :
       {std::string(), std::string("plain text"), protobuf_field(1, ""),
        protobuf_field(1, feature("a", "")) + protobuf_field(2, "a sequence example's"),
        protobuf_field(1, feature("", "")), std::string(20, '\xff'),
        protobuf_field(1, feature("f", protobuf_field(2, protobuf_field(1, "abc")))),
        protobuf_field(1, feature("i", protobuf_field(3, protobuf_field(1, "\xff"))))}) {
    EXPECT_THAT(fields(sample(record)),
                ElementsAre(fmt::format("record bytes [{}] {}", record.size(), record)));
  }
}

TEST_F(TfRecord, ADamagedRecordIsOneBadSample) {
  std::string file = tfrecord_of("first") + tfrecord_of("second") + tfrecord_of("third");
  file[12 + 5 + 4 + 12 + 2] ^= 1;
  put("a.tfrecord", file);
  const auto dataset = open("a.tfrecord");
  ASSERT_EQ(dataset->samples(), 3);
  EXPECT_THAT(fields(dataset->get(2)), ElementsAre("record bytes [5] third"));
  EXPECT_THROW(dataset->get(1), Error);
  EXPECT_THAT(refusal("a.tfrecord"), HasSubstr("sample 1 (1 of a.tfrecord"));
}

TEST_F(TfRecord, HeadsThatCannotBeAreRefused) {
  const auto with_length = [&](std::uint64_t length) {
    std::string file = tfrecord_of("first");
    const std::string bytes = raw_of(length);
    file += bytes + tfrecord_of(bytes).substr(12 + 8) + "rest";  // the right checksum of it
    put("a.tfrecord", file);
    return refusal("a.tfrecord");
  };
  for (const std::uint64_t length :
       {std::uint64_t{5}, std::uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 15})
    EXPECT_THAT(with_length(length), HasSubstr("cut off")) << length;
  EXPECT_EQ(recovered("a.tfrecord")->samples(), 1);
  put("a.tfrecord", "no records at all");
  EXPECT_THAT(refusal("a.tfrecord"), HasSubstr("no TFRecord file"));
  put("a.tfrecord.gz", "\x1f\x8b\x08 and so on");
  EXPECT_THAT(refusal("a.tfrecord.gz"), HasSubstr("gunzip"));
}

TEST_F(TfRecord, LargeRecordsAreNotReadToBeIndexed) {
  std::string file;
  for (int i = 0; i < 8; ++i)
    file += tfrecord_of(std::string(3 * kMiB, static_cast<char>('a' + i)));
  put("a.tfrecord", file);
  const auto dataset = open("a.tfrecord");
  ASSERT_EQ(dataset->samples(), 8);
  EXPECT_EQ(dataset->get(7).fields[0].bytes[5], std::byte{'h'});
}

TEST_F(TfRecord, ASidecarSparesTheScan) {
  put("a.tfrecord", tfrecord_of("first") + tfrecord_of("second"));
  const auto info = store::info(*store_, "a.tfrecord");
  const auto dataset = open("a.tfrecord");
  const auto& index = dynamic_cast<const ScannedIndex&>(dataset->shards()[0].index());
  put("a.tfrecord.bpidx", index.sidecar());
  EXPECT_EQ(read_sidecar(index.sidecar(), "BPTFRIX1", info)->size(), 2u);
  EXPECT_THROW(read_sidecar(index.sidecar(), "BPTARIX1", info), Error);
  EXPECT_THAT(fields(open("a.tfrecord")->get(1)), ElementsAre("record bytes [6] second"));
  put("a.tfrecord", tfrecord_of("another"));
  EXPECT_THAT(fields(open("a.tfrecord")->get(0)), ElementsAre("record bytes [7] another"));
  put("a.tfrecord.bpidx", "damaged");
  EXPECT_THAT(refusal("a.tfrecord"), HasSubstr("can be made again"));
  store_->remove("a.tfrecord.bpidx", Deadline::after(kSecond));
}

TEST_F(TfRecord, NamesOfShards) {
  for (const char* key :
       {"a.tfrecord", "a/b.tfrecords", "x.tfrecord-00001-of-00100", "a.tfrecord.gz"})
    EXPECT_EQ(format_of_shard(key), &format_of_name("tfrecord")) << key;
  for (const char* key :
       {"a.tfrecord.bpidx", "a.tfrecordx", "x.tfrecord-1-of", "tfrecord", "a.tfrecord-"})
    EXPECT_EQ(format_of_shard(key), nullptr) << key;
}

// --- loose files ----------------------------------------------------------------------------

class Files : public InMemory {};

TEST_F(Files, ASampleIsAFileItsClassIsItsFolder) {
  put("f/b/photo.one.JPG", "b");
  put("f/a", "a");
  put("f/c/ünï/text.txt", "");
  put("f/.hidden/x.txt", "x");
  put("f/b/.DS_Store", "x");
  put("f/class.class", "c");
  put("f/d/x.class", "d");
  put("f/bedplate.manifest", "x");
  for (int round = 0; round < 2; ++round) {
    const auto dataset = open("f/", "files");
    ASSERT_EQ(dataset->samples(), 5);
    EXPECT_EQ(dataset->get(1).key, "b/photo.one.JPG");
    EXPECT_THAT(fields(dataset->get(0)), ElementsAre("file bytes [1] a"));
    EXPECT_THAT(fields(dataset->get(1)), ElementsAre("jpg bytes [1] b", "class utf8 [1] b"));
    EXPECT_THAT(fields(dataset->get(2)), ElementsAre("txt bytes [0] ", "class utf8 [5] ünï"));
    EXPECT_THAT(fields(dataset->get(3)), ElementsAre("class bytes [1] c"));
    EXPECT_THAT(fields(dataset->get(4)), ElementsAre("class bytes [1] d"));
    const ListingMade made = write_listing(*store_, "f/");
    EXPECT_EQ(made.files, 5);
    EXPECT_EQ(made.bytes, 4);
  }
  EXPECT_EQ(open("f/bedplate.files")->samples(), 5);
}

TEST_F(Files, AListingIsFrozen) {
  put("g/a.txt", "a");
  put("g/b.txt", "b");
  write_listing(*store_, "g/");
  put("g/c.txt", "c");
  const auto dataset = open("g/bedplate.files");
  EXPECT_EQ(dataset->samples(), 2);
  put("g/b.txt", "B");
  EXPECT_THAT(refusal("g/bedplate.files"), AllOf(HasSubstr("sample 1"), HasSubstr("changed")));
  store_->remove("g/b.txt", Deadline::after(kSecond));
  EXPECT_THAT(refusal("g/bedplate.files"), HasSubstr("not found: sample 1"));
  EXPECT_THROW(open("nowhere/", "files"), Error);
}

TEST_F(Files, AListingThatLiesIsAnErrorAndNoMore) {
  put("l/a.txt", "a");
  const auto with = [&](std::int64_t size) {
    const std::string version = store::info(*store_, "l/a.txt").version;
    const ObjectRow row{"a.txt", size, 1, version};
    put("l/bedplate.files", ObjectTable::write(kListingMagic, "", {&row, 1}));
    return refusal("l/bedplate.files");
  };
  EXPECT_EQ(with(1), "taken");
  EXPECT_THAT(with(2), HasSubstr("sample 0 (0 of l/a.txt"));
  EXPECT_THAT(with(INT64_MAX), HasSubstr("smaller than 4 GiB"));
  EXPECT_THAT(with(std::int64_t{1} << 32), HasSubstr("smaller than 4 GiB"));
}

TEST_F(Files, AFolderWithoutAListingHasNoManifest) {
  put("h/a.txt", "a");
  try {
    write_manifest("memory://formats/h", {.format = "files"});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("have no listing yet"));
  }
}

}  // namespace
}  // namespace bedplate::data
