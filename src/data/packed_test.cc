// Packed shards: written, read, cut off, damaged.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "base/crc32c.h"
#include "base/error.h"
#include "data/packed_index.h"
#include "data/packed_layout.h"
#include "data/packed_writer.h"
#include "data/test_bytes.h"
#include "os/test_folder.h"
#include "store/driver.h"
#include "store/fault_store.h"

namespace bedplate::data {
namespace {

using store::ObjectInfo;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Packed : public ::testing::Test {
 protected:
  ObjectInfo write(const std::vector<std::string>& texts, std::int64_t block_bytes = 4096) {
    PackedWriter writer(place_.store->create(place_.key, store::IfExists::kReplace, kSecond),
                        schema_, {.block_bytes = block_bytes});
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto number = static_cast<std::int32_t>(i);
      const std::span<const std::byte> values[] = {bytes_of(texts[i]),
                                                   std::as_bytes(std::span(&number, 1))};
      writer.add(values);
    }
    const std::int64_t expected = writer.bytes();
    const ObjectInfo info = writer.finish();
    EXPECT_EQ(info.size, expected);
    return info;
  }
  ObjectInfo put(std::string_view bytes) { return store::put(*place_.store, place_.key, bytes); }
  std::string whole() { return store::get(*place_.store, place_.key); }

  std::shared_ptr<const ShardIndex> open(const ObjectInfo& info, CutOff cut_off = CutOff::kRefuse) {
    return open_packed(*place_.store, info, cut_off);
  }
  // The texts of all samples, each checked.
  std::vector<std::string> texts(const ObjectInfo& info, const ShardIndex& index) {
    std::vector<std::string> out;
    for (std::int64_t i = 0; i < index.samples(); ++i) {
      const Extent extent = index.extent(i);
      std::vector<std::byte> raw(static_cast<std::size_t>(extent.bytes));
      store::read_exactly(*place_.store, {.key = info.key, .offset = extent.offset, .into = raw});
      EXPECT_EQ(crc32c(raw), extent.crc);
      Sample sample;
      index.unpack(i, raw, sample);
      EXPECT_EQ(sample.fields.size(), 2u);
      EXPECT_EQ(sample.fields[0].name, "text");
      std::int32_t number = -1;
      std::memcpy(&number, sample.fields[1].bytes.data(), sizeof number);
      EXPECT_EQ(number, i);
      out.push_back(text_of(sample.fields[0].bytes));
    }
    return out;
  }
  std::string refusal(const ObjectInfo& info) {
    try {
      open(info);
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  }

  const Schema schema_{
      {{.name = "text", .dtype = Dtype::kUtf8}, {.name = "number", .dtype = Dtype::kI32}}};
  const store::Place place_ = store::locate("memory://packed/shard");
};

std::vector<std::string> some_texts(std::size_t count) {
  std::mt19937 random(5);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i)
    texts.emplace_back(random() % 700, static_cast<char>('a' + i % 26));
  return texts;
}

TEST_F(Packed, WhatWasWrittenIsRead) {
  for (const std::size_t count : {0UL, 1UL, 2UL, 1000UL}) {
    const auto written = some_texts(count);
    const ObjectInfo info = write(written);
    const auto index = open(info);
    EXPECT_EQ(index->samples(), static_cast<std::int64_t>(count));
    EXPECT_EQ(texts(info, *index), written);
    EXPECT_LE(index->memory_bytes(), 24 * static_cast<std::int64_t>(count));
  }
}

TEST_F(Packed, ASecondReaderFromTheSpecificationReadsTheSame) {
  const os::TestFolder folder;
  const auto path = (folder.path() / "shard").string();
  const store::Place file = store::locate(path);
  PackedWriter writer(file.store->create(file.key, store::IfExists::kReplace, kSecond),
                      Schema({{.name = "text", .dtype = Dtype::kUtf8},
                              {.name = "boxes", .dtype = Dtype::kI16, .shape = {kAny, 2}},
                              {.name = "id", .dtype = Dtype::kU64}}),
                      {.block_bytes = 4096});
  const std::int16_t boxes[] = {1, -2, 3, -4};
  for (std::uint64_t id = 0; id < 500; ++id) {
    const std::string text = fmt::format("sample {} é", id);
    const std::span<const std::byte> values[] = {bytes_of(text), std::as_bytes(std::span(boxes)),
                                                 std::as_bytes(std::span(&id, 1))};
    writer.add(values);
  }
  writer.finish();
  const std::string reader = "python3 " BEDPLATE_SOURCE_DIR "/tools/read_shard.py " + path;
  EXPECT_EQ(output_of(reader + " 499"),
            "text utf8 [13] sample 499 é\n"
            "boxes i16 [2, 2] [1, -2, 3, -4]\n"
            "id u64 [] [499]\n");
  const std::string all = output_of(reader);
  EXPECT_EQ(std::ranges::count(all, '\n'), 501);
  EXPECT_THAT(all, HasSubstr("{\"text\": 11, \"boxes\": 8, \"id\": 8}\n"));
}

TEST_F(Packed, ARecordLargerThanABlockHasOneOfItsOwn) {
  const std::vector<std::string> written = {"a", std::string(100'000, 'b'), "", "c"};
  const ObjectInfo info = write(written);
  EXPECT_EQ(texts(info, *open(info)), written);
}

TEST_F(Packed, CostsLessThanAHundredthAtFourKiB) {
  PackedWriter writer(place_.store->create(place_.key, store::IfExists::kReplace, kSecond),
                      Schema({{.name = "tokens", .dtype = Dtype::kU16, .shape = {2048}}}));
  const std::string tokens(4096, 't');
  const std::span<const std::byte> values[] = {bytes_of(tokens)};
  for (int i = 0; i < 20'000; ++i) writer.add(values);
  EXPECT_LT(static_cast<double>(writer.finish().size), 1.01 * 20'000 * 4096);
}

TEST_F(Packed, EachRecordOfFourKiBLiesOnAPage) {
  PackedWriter writer(place_.store->create(place_.key, store::IfExists::kReplace, kSecond),
                      Schema({{.name = "tokens", .dtype = Dtype::kU16, .shape = {2048}}}));
  const std::string tokens(4096, 't');
  const std::span<const std::byte> values[] = {bytes_of(tokens)};
  for (int i = 0; i < 3000; ++i) writer.add(values);
  const auto index = open(writer.finish());
  for (std::int64_t i = 0; i < 3000; ++i) ASSERT_EQ(index->extent(i).offset % packed::kPage, 0);
}

// Where a request takes 20 ms, it is their number that opening costs.
TEST_F(Packed, ItsTwoEndsAreAllThatIsReadToOpenIt) {
  int reads = 0;
  store::FaultStore counting(place_.store, {.before_read = [&](const store::Read&) {
                               ++reads;
                               return std::optional<Error>();
                             }});
  const auto opened_with = [&](int samples) {
    const ObjectInfo info =
        write(std::vector<std::string>(static_cast<std::size_t>(samples), "text"));
    reads = 0;
    EXPECT_EQ(open_packed(counting, info, CutOff::kRefuse)->samples(), samples);
    return reads;
  };
  EXPECT_EQ(opened_with(0), 2);
  EXPECT_EQ(opened_with(1), 2);
  EXPECT_EQ(opened_with(2000), 2);
  EXPECT_EQ(opened_with(5000), 4) << "an index longer than the end that was read";
}

TEST_F(Packed, ACutOffShardIsReadUpToItsLastWholeBlock) {
  const auto written = some_texts(200);
  write(written);
  const std::string bytes = whole();
  std::size_t most = 0;
  for (std::size_t size = 0; size < bytes.size(); size += 1501) {
    const ObjectInfo info = put(bytes.substr(0, size));
    if (size < 4096) {
      EXPECT_THROW(open(info, CutOff::kRecover), Error) << size;
      continue;
    }
    EXPECT_THAT(refusal(info), HasSubstr("its end is missing")) << size;
    const auto index = open(info, CutOff::kRecover);
    const auto recovered = texts(info, *index);
    ASSERT_TRUE(std::equal(recovered.begin(), recovered.end(), written.begin())) << size;
    ASSERT_GE(recovered.size(), most);
    most = recovered.size();
  }
  EXPECT_EQ(most, written.size());
}

TEST_F(Packed, NoFlippedBitIsReadAsIfItWereNot) {
  const auto written = some_texts(40);
  write(written);
  const std::string bytes = whole();
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = bytes;
    const std::size_t at = random() % bytes.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    const ObjectInfo info = put(damaged);
    try {
      const auto index = open(info);
      ASSERT_EQ(index->samples(), std::ssize(written)) << at;
      for (std::int64_t i = 0; i < index->samples(); ++i) {
        const Extent extent = index->extent(i);
        std::vector<std::byte> raw(static_cast<std::size_t>(extent.bytes));
        store::read_exactly(*place_.store, {.key = info.key, .offset = extent.offset, .into = raw});
        if (crc32c(raw) != *extent.crc) continue;  // found
        Sample sample;
        index->unpack(i, raw, sample);
        ASSERT_EQ(text_of(sample.fields[0].bytes), written[static_cast<std::size_t>(i)]) << at;
      }
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Code::kCorrupt || error.code() == Code::kUnsupported)
          << error.what();
    }
  }
}

TEST_F(Packed, WhatIsNoShardIsNamed) {
  EXPECT_THAT(refusal(put("")), HasSubstr("is no packed shard"));
  EXPECT_THAT(refusal(put(std::string(5000, 'x'))), HasSubstr("is no packed shard"));
}

TEST_F(Packed, ValuesThatDoNotFitAreRefusedAndNothingIsWritten) {
  PackedWriter writer(place_.store->create(place_.key, store::IfExists::kReplace, kSecond),
                      schema_);
  const std::span<const std::byte> few[] = {bytes_of("a")};
  const std::span<const std::byte> wrong[] = {bytes_of("a"), bytes_of("12345")};
  EXPECT_THROW(writer.add(few), Error);
  EXPECT_THROW(writer.add(wrong), Error);
  EXPECT_EQ(open(writer.finish())->samples(), 0);
}

TEST(SchemaTest, ColumnsOfEachKindComeBack) {
  const Schema schema({{.name = "image", .dtype = Dtype::kBytes},
                       {.name = "boxes", .dtype = Dtype::kF32, .shape = {kAny, 4}},
                       {.name = "flag", .dtype = Dtype::kBool},
                       {.name = "id", .dtype = Dtype::kI64},
                       {.name = "empty", .dtype = Dtype::kU16, .shape = {0}}});
  const std::string values[] = {"jpeg!", std::string(32, 'b'), "1", "12345678", ""};
  std::vector<std::span<const std::byte>> spans;
  for (const auto& one : values) spans.push_back(bytes_of(one));
  std::string record;
  schema.append(spans, record);
  Schema::Values parsed;
  schema.parse(bytes_of(record), parsed);
  for (std::size_t i = 0; i < std::size(values); ++i) EXPECT_EQ(text_of(parsed[i]), values[i]);
  EXPECT_THAT(Schema::shape_of(schema.columns()[1], 32), ElementsAre(2, 4));
  EXPECT_THAT(Schema::shape_of(schema.columns()[3], 8), ElementsAre());
  EXPECT_EQ(Schema::from_json(schema.to_json()), schema);
  for (std::size_t size = 0; size < record.size(); ++size)
    EXPECT_THROW(schema.parse(bytes_of(record.substr(0, size)), parsed), Error) << size;
  EXPECT_THROW(schema.parse(bytes_of(record + "x"), parsed), Error);
}

TEST(SchemaTest, WhatIsNoneIsRefused) {
  const auto refused = [](std::vector<Column> columns) {
    EXPECT_THROW(Schema(std::move(columns)), Error);
  };
  refused({});
  refused({{.name = ""}});
  refused({{.name = "a"}, {.name = "a"}});
  refused({{.name = "a", .dtype = Dtype::kI32, .shape = {-2}}});
  refused({{.name = "a", .dtype = Dtype::kI32, .shape = {2, kAny}}});
  refused({{.name = "a", .dtype = Dtype::kI32, .shape = {INT64_MAX, INT64_MAX}}});
  refused({{.name = "a", .dtype = Dtype::kUtf8, .shape = {3}}});
  refused({{.name = "a\nb"}});
  for (const char* json : {"", "{}", "[]", "{\"columns\": [{}]}", "{\"columns\": [{\"name\": 1}]}",
                           "{\"columns\": [{\"name\": \"a\", \"dtype\": \"i7\"}]}"}) {
    try {
      Schema::from_json(json);
      ADD_FAILURE() << json;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt) << json;
    }
  }
}

}  // namespace
}  // namespace bedplate::data
