// Importing rows: what comes in lies in shards once and in order, however often it was broken off.
#include "data/import_rows.h"

#include "data/pack_fixture.h"
#include "data/packed_writer.h"
#include "store/fault_store.h"

namespace bedplate::data {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Schema kSchema({{.name = "number", .dtype = Dtype::kI64},
                      {.name = "text", .dtype = Dtype::kUtf8}});

class ImportRows : public PackTest {
 protected:
  ImportRows() { write("in/a.parquet", "only its name and size are looked at"); }

  std::unique_ptr<RowImport> start(RowImportOptions options = {.shard_samples = 10}) {
    const std::string urls[] = {path("in")};
    return std::make_unique<RowImport>(urls, path("out"), std::move(options), watch_);
  }

  // Rows [first, last): {i, "i" i % 7 times}.
  static void add(RowImport& import, std::int64_t first, std::int64_t last) {
    std::vector<std::int64_t> numbers;
    std::string text;
    std::vector<std::int64_t> offsets = {0};
    for (std::int64_t i = first; i < last; ++i) {
      numbers.push_back(i);
      for (int n = 0; n < i % 7; ++n) text += fmt::format("{}", i);
      offsets.push_back(std::ssize(text));
    }
    const RowColumn columns[] = {{std::as_bytes(std::span(numbers))},
                                 {std::as_bytes(std::span(text)), offsets}};
    import.add(last - first, columns);
  }

  PackReport import_all(std::int64_t rows, RowImportOptions options = {.shard_samples = 10}) {
    const auto import = start(std::move(options));
    import->begin(kSchema);
    for (std::int64_t at = 0; at < rows; at += 7) add(*import, at, std::min(rows, at + 7));
    return import->finish();
  }

  void expect_rows(std::int64_t rows) {
    const auto dataset = open("out");
    ASSERT_EQ(dataset->samples(), rows);
    for (std::int64_t i = 0; i < rows; ++i) {
      const Sample sample = dataset->get(i);
      std::int64_t number = 0;
      std::memcpy(&number, sample.fields[0].bytes.data(), sizeof number);
      EXPECT_EQ(number, i);
      EXPECT_EQ(std::ssize(sample.fields[1].bytes), i % 7 * std::ssize(fmt::format("{}", i)));
    }
  }

  std::string error_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      code_ = error.code();
      return error.what();
    }
    return "";
  }
};

TEST_F(ImportRows, RowsLieInShardsInTheirOrder) {
  const PackReport report = import_all(95);
  EXPECT_EQ(report.end, PackReport::End::kDone);
  EXPECT_EQ(report.samples, 95);
  EXPECT_EQ(report.shards, 10);
  EXPECT_EQ(report.shards_made, 10);
  EXPECT_THAT(shards("out"), SizeIs(10));
  expect_rows(95);
}

TEST_F(ImportRows, AShardIsNotLargerThanItMayBeUnlessARowIs) {
  const RowImportOptions options{.shard_bytes = 64 * kKiB};
  const auto import = start(options);
  import->begin(Schema({{.name = "bytes" }}));
  const std::string large(200'000, 'x');
  for (int i = 0; i < 50; ++i) {
    const std::string_view value = std::string_view(large).substr(0, i == 20 ? 200'000 : 9000);
    const RowColumn columns[] = {{std::as_bytes(std::span(value))}};
    import->add(1, columns);
  }
  import->finish();
  int larger = 0;
  for (const auto& [name, bytes] : shards("out")) larger += std::ssize(bytes) > 64 * kKiB ? 1 : 0;
  EXPECT_EQ(larger, 1);
  EXPECT_EQ(open("out")->samples(), 50);
}

TEST_F(ImportRows, BrokenOffAnywhereItGoesOnToTheSameBytes) {
  import_all(95);
  const auto whole = files("out");
  for (const std::int64_t rows : {0, 5, 10, 37, 94, 95}) {
    std::filesystem::remove_all(path("out"));
    {
      const auto import = start();
      import->begin(kSchema);
      add(*import, 0, rows);
    }
    EXPECT_THAT(shards("out"), SizeIs(std::max<std::int64_t>(0, rows - 1) / 10)) << rows;
    const PackReport report = import_all(95);
    EXPECT_EQ(report.samples, 95);
    EXPECT_EQ(files("out"), whole) << rows;
  }
}

TEST_F(ImportRows, ShardsInTheMiddleThatAreMissingAreMadeAgain) {
  import_all(95);
  const auto whole = files("out");
  for (const std::vector<int>& gone : {std::vector{0}, {3}, {3, 4, 8}, {9}}) {
    for (const int one : gone) std::filesystem::remove(path(fmt::format("out/{:06}.shard", one)));
    const PackReport report = import_all(95);
    EXPECT_EQ(report.shards_made, std::ssize(gone));
    EXPECT_EQ(files("out"), whole);
  }
}

TEST_F(ImportRows, WhatIsThereCanBeLeftOutWithoutReadingIt) {
  {
    const auto import = start();
    import->begin(kSchema);
    add(*import, 0, 45);
  }
  const auto import = start();
  import->begin(kSchema);
  ASSERT_EQ(import->rows_to_skip(), 40);
  EXPECT_THROW(import->skip(41), Error);
  import->skip(33);
  add(*import, 33, 60);
  import->finish();
  expect_rows(60);
}

TEST_F(ImportRows, DoneItIsDone) {
  import_all(25);
  const auto before = files("out");
  const auto again = start();
  EXPECT_TRUE(again->nothing_to_do());
  EXPECT_EQ(again->report().samples, 25);
  EXPECT_EQ(files("out"), before);
}

TEST_F(ImportRows, AFullDiskLeavesNoHalfShardAndItGoesOnLater) {
  RowImportOptions options{.shard_samples = 10};
  options.wrap_destination = [](std::shared_ptr<store::Store> inner) {
    return std::make_shared<store::FaultStore>(
        inner, store::Faults{.before_write = store::no_space_after(6000)});
  };
  EXPECT_THAT(error_of([&] { import_all(95, options); }), HasSubstr("space"));
  EXPECT_EQ(code_, Code::kNoSpace);
  EXPECT_THAT(files("out"), IsEmpty());  // not even what was begun: it had no shard
  import_all(95);
  expect_rows(95);
}

TEST_F(ImportRows, WhatWouldLoseSomethingIsRefused) {
  import_all(25);
  const auto before = files("out");
  EXPECT_THAT(error_of([&] { import_all(25, {.shard_samples = 11}); }),
              HasSubstr("--shard-samples was 10, now it is 11"));
  EXPECT_THAT(error_of([&] {
                import_all(25, {.how = {{"--columns", "a"}}, .shard_samples = 10});
              }),
              HasSubstr("--columns was not given, now it is a"));
  EXPECT_EQ(code_, Code::kExists);
  write("in/b.parquet", "another");
  EXPECT_THAT(error_of([&] { import_all(25); }), HasSubstr("the source has changed"));
  EXPECT_EQ(files("out"), before);
  import_all(5, {.shard_samples = 10, .existing = ExistingPack::kOverwrite});
  EXPECT_THAT(shards("out"), SizeIs(1));
  expect_rows(5);
}

TEST_F(ImportRows, OtherColumnsOrFewerRowsAreNotGoneOnWith) {
  {
    const auto import = start();
    import->begin(kSchema);
    add(*import, 0, 35);
  }
  EXPECT_THAT(error_of([&] { start()->begin(Schema({{.name = "other"}})); }),
              HasSubstr("other columns"));
  EXPECT_THAT(error_of([&] { import_all(25); }),
              HasSubstr("samples more than the source has rows"));
  EXPECT_EQ(code_, Code::kCorrupt);
}

TEST_F(ImportRows, APackIsNoImportAndAnImportNoPack) {
  import_all(25);
  write("lines.jsonl", "{\"a\": 1}\n");
  EXPECT_THAT(refusal({"lines.jsonl"}, "out"), HasSubstr("--from was parquet, now it is jsonl"));
  pack_all({"lines.jsonl"}, "lines");
  const std::string urls[] = {path("in")};
  EXPECT_THAT(error_of([&] { RowImport(urls, path("lines"), {}, watch_); }),
              HasSubstr("--from was jsonl, now it is parquet"));
  EXPECT_THAT(error_of([&] { RowImport(urls, path("in/out"), {}, watch_); }),
              HasSubstr("lies in the source"));
}

TEST_F(ImportRows, ColumnsThatAreNotAsTheySayAreRefused) {
  auto import = start();
  const std::int64_t number = 3;
  const auto number_bytes = std::as_bytes(std::span(&number, 1));
  const std::string text = "abc";
  const auto text_bytes = std::as_bytes(std::span(text));
  const auto refused = [&](std::int64_t rows, std::vector<RowColumn> columns) {
    return error_of([&] { import->add(rows, columns); });
  };
  EXPECT_THAT(refused(1, {{number_bytes}, {text_bytes}}), HasSubstr("not begun"));
  import->begin(kSchema);
  EXPECT_THAT(refused(1, {{number_bytes}}), HasSubstr("columns"));
  EXPECT_THAT(refused(3, {{number_bytes}, {text_bytes}}), HasSubstr("are not 3 rows"));
  const std::vector<std::int64_t> backwards = {0, 3, 2};
  const std::vector<std::int64_t> beyond = {0, 4};
  const std::vector<std::int64_t> few = {0};
  for (const auto& offsets : {backwards, beyond, few})
    EXPECT_THAT(refused(1, {{number_bytes}, {text_bytes, offsets}}), HasSubstr("column text"));
  EXPECT_THAT(refused(1, {{text_bytes}, {text_bytes}}), HasSubstr("row 0"));
  import.reset();
  EXPECT_THAT(files("out"), IsEmpty());
}

TEST_F(ImportRows, NoRowsAreNoDataSet) {
  const auto import = start();
  import->begin(kSchema);
  EXPECT_THAT(error_of([&] { import->finish(); }), HasSubstr("no rows"));
  EXPECT_EQ(code_, Code::kNotFound);
}

TEST_F(ImportRows, ParquetIsToldByItsNameAndLeftToPython) {
  EXPECT_EQ(pack_all({"in"}, "packed").end, PackReport::End::kForPython);
  EXPECT_FALSE(std::filesystem::exists(path("packed")));
  write("in/_SUCCESS", "");
  write("in/_delta_log/0.checkpoint.parquet", "no data");
  EXPECT_EQ(pack_all({"in"}, "packed").end, PackReport::End::kForPython);
  EXPECT_THAT(start()->source().objects, SizeIs(1));
  write("in/README.md", "hello");
  EXPECT_THAT(refusal({"in"}, "packed"), HasSubstr("Parquet beside other files"));
  EXPECT_EQ(pack_all({"in"}, "packed", {.source = {.kind = "parquet"}}).end,
            PackReport::End::kForPython);
}

}  // namespace
}  // namespace bedplate::data
