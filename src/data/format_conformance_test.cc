// Every registered format: what was written is read, from one thread and many; damage is found or
// harmless; what is cut off is refused or recovered; empty shards, shards of one sample.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <thread>

#include "base/error.h"
#include "data/dataset.h"
#include "data/format.h"
#include "data/test_bytes.h"
#include "data/test_shards.h"
#include "store/driver.h"

namespace bedplate::data {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> names_of_formats() {
  std::vector<std::string> names;
  for (const Format* format : all_formats()) names.emplace_back(format->name);
  return names;
}

TEST(FormatTable, EveryFormatIsTestedHere) {
  std::vector<std::string> tested;
  for (const TestFormat& one : test_formats()) tested.emplace_back(one.name);
  EXPECT_THAT(tested, ::testing::UnorderedElementsAreArray(names_of_formats()));
}

class FormatConformance : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<std::string> write(std::span<const std::string> texts) {
    return test_.write(*store_, "set/", texts);
  }
  std::shared_ptr<const ShardIndex> open(const std::string& key, CutOff cut_off = CutOff::kRefuse) {
    return format_.open(store_, store::info(*store_, key), {.cut_off = cut_off});
  }
  std::string text_in(const Sample& sample) const {
    const auto field = std::ranges::find(sample.fields, test_.field, &Field::name);
    return field == sample.fields.end() ? "no field" : text_of(field->bytes);
  }
  // nullopt when something of the shard is refused.
  std::optional<std::vector<std::string>> texts(const std::string& key,
                                                CutOff cut_off = CutOff::kRefuse) {
    std::vector<std::string> out;
    try {
      const auto index = open(key, cut_off);
      std::string raw;
      Sample sample;
      for (std::int64_t i = 0; i < index->samples(); ++i) {
        if (!read_sample(*store_, *index, i, kMiB, raw, sample)) return std::nullopt;
        out.push_back(text_in(sample));
      }
      return out;
    } catch (const Error& error) {
      // Invalid: a place beyond the object's end; not found: the name of another object is damaged.
      EXPECT_THAT(error.code(), ::testing::AnyOf(Code::kCorrupt, Code::kUnsupported, Code::kInvalid,
                                                 Code::kNotFound))
          << error.what();
      return std::nullopt;
    }
  }

  const Format& format_ = format_of_name(GetParam());
  const TestFormat& test_ = *std::ranges::find(test_formats(), GetParam(), &TestFormat::name);
  const std::shared_ptr<store::Store> store_ = store::locate("memory://conformance").store;
};

TEST_P(FormatConformance, WhatWasWrittenIsRead) {
  for (const std::size_t count : {0UL, 1UL, 2UL, 300UL}) {
    const auto written = some_texts(count);
    const std::string key = write(written).front();
    EXPECT_EQ(format_of_shard(key), &format_);
    EXPECT_EQ(texts(key), written);
    const std::string urls[] = {"memory://conformance/" + key};
    const auto dataset = Dataset::open(urls);
    ASSERT_EQ(dataset->samples(), static_cast<std::int64_t>(count));
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(text_in(dataset->get(static_cast<std::int64_t>(i))), written[i]) << i;
  }
}

TEST_P(FormatConformance, ASampleCostsAtMost24Bytes) {
  const auto index = open(write(some_texts(3000)).front());
  // A loose file is known by its name, its size and its version.
  EXPECT_LE(index->memory_bytes(), (GetParam() == "files" ? 96 : 24) * index->samples());
}

TEST_P(FormatConformance, ManyThreadsReadOneIndex) {
  const auto written = some_texts(100);
  const auto index = open(write(written).front());
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::string raw;
      Sample sample;
      for (std::size_t i = 0; i < written.size(); ++i) {
        ASSERT_TRUE(read_sample(*store_, *index, static_cast<std::int64_t>(i), kMiB, raw, sample));
        ASSERT_EQ(text_in(sample), written[i]);
      }
    });
  }
}

TEST_P(FormatConformance, ASampleIsReadByItsFixedPlaceIfThereIsOne) {
  const auto index = open(write(some_texts(5)).front());
  std::string raw;
  Sample sample;
  for (std::int64_t i = 0; i < index->samples(); ++i) {
    ASSERT_TRUE(read_sample(*store_, *index, i, kMiB, raw, sample));
    for (const Field& field : sample.fields) {
      const auto place = index->fixed_place(field.name);
      if (!place) continue;
      EXPECT_EQ(raw.substr(static_cast<std::size_t>(place->offset),
                           static_cast<std::size_t>(place->bytes)),
                text_of(field.bytes));
      EXPECT_EQ(place->dtype, field.dtype);
      EXPECT_EQ(place->shape, field.shape);
    }
  }
}

TEST_P(FormatConformance, DamageIsFoundOrHarmless) {
  const auto keys = write(some_texts(12));
  std::mt19937 random(3);
  for (const std::string& key : keys) {
    const std::string whole = store::get(*store_, key);
    for (int round = 0; round < 400; ++round) {
      std::string damaged = whole;
      for (int flips = 1 + static_cast<int>(random() % 3); flips > 0 && !whole.empty(); --flips) {
        // A bit, or eight bytes that make a huge number.
        const std::size_t at = random() % whole.size();
        if (random() % 4 != 0) {
          damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
        } else {
          damaged.replace(at, 8, 8, random() % 2 == 0 ? '\xff' : '\x7f');
        }
      }
      store::put(*store_, key, damaged);
      texts(keys.front());
      texts(keys.front(), CutOff::kRecover);
    }
    store::put(*store_, key, whole);
  }
  if (keys.size() < 3) {  // loose files have new versions now
    EXPECT_EQ(texts(keys.front()), some_texts(12));
  }
}

// What is left of a shard that lost its end is refused, or, when that is asked for, some of its
// first samples. A TFRecord file may end behind any record: such a file is a whole one.
TEST_P(FormatConformance, ALostEndIsNoShorterEpoch) {
  const auto written = some_texts(12);
  const auto keys = write(written);
  for (std::size_t object = 0; object < std::min<std::size_t>(keys.size(), 2); ++object) {
    const std::string whole = store::get(*store_, keys[object]);
    const std::size_t step = std::max<std::size_t>(1, whole.size() / 300);
    for (std::size_t size = 0; size < whole.size(); size += step) {
      store::put(*store_, keys[object], whole.substr(0, size));
      const auto kept = texts(keys.front());
      const auto recovered = texts(keys.front(), CutOff::kRecover);
      // An archive's second block of zeros says nothing more.
      if (kept && GetParam() != "tfrecord") {
        ASSERT_TRUE(*kept == written) << keys[object] << " " << size;
      }
      for (const auto& some : {kept, recovered}) {
        if (!some) continue;
        ASSERT_LE(some->size(), written.size()) << keys[object] << " " << size;
        ASSERT_TRUE(std::equal(some->begin(), some->end(), written.begin()))
            << keys[object] << " " << size;
      }
    }
    store::put(*store_, keys[object], whole);
  }
}

TEST_P(FormatConformance, AnObjectThatIsReplacedMeanwhileIsNotRead) {
  const auto keys = write(some_texts(3));
  const std::string urls[] = {"memory://conformance/" + keys.front()};
  const auto dataset = Dataset::open(urls);
  store::put(*store_, keys.back(), store::get(*store_, keys.back()));
  try {
    dataset->get(2);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kCorrupt);
    EXPECT_THAT(error.what(), HasSubstr("changed"));
  }
}

TEST_P(FormatConformance, WhatIsNoneIsRefusedByName) {
  const std::string key = write(some_texts(1)).front();
  for (const std::string& wrong :
       {std::string(), std::string("x"), std::string(100'000, '\0'), std::string(100'000, '\xff'),
        std::string(100'000, '['), std::string("{}"), std::string("[]"), std::string("null")}) {
    store::put(*store_, key, wrong);
    try {
      const auto index = open(key);
      // No bytes are no records; zeros are the end of an archive.
      EXPECT_TRUE((wrong.empty() && GetParam() == "tfrecord") ||
                  (wrong[0] == '\0' && GetParam() == "webdataset"))
          << wrong.substr(0, 8);
      EXPECT_EQ(index->samples(), 0);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(key)) << wrong.substr(0, 8);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FormatConformance, ::testing::ValuesIn(names_of_formats()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace bedplate::data
