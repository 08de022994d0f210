// Packing: what comes out is what went in, whatever it lay in; what is refused, and how.
#include "data/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <numeric>

#include "data/pack_fixture.h"
#include "data/pack_record.h"
#include "data/permutation.h"
#include "data/tar_index.h"
#include "store/fault_store.h"

namespace bedplate::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using Unit = PackSourceOptions::Unit;
namespace fs = std::filesystem;

std::string field(const Sample& sample, std::string_view name) {
  const auto found = std::ranges::find(sample.fields, name, &Field::name);
  return found == sample.fields.end() ? "(none)" : text_of(found->bytes);
}

TEST_F(PackTest, FilesThatShareANameAreASample) {
  write_pictures("in", 30);
  const PackReport report = pack_all({"in"}, "out", {.shard_samples = 8});
  EXPECT_EQ(report.samples, 30);
  EXPECT_EQ(report.shards, 4);
  EXPECT_EQ(report.kind, "files");
  EXPECT_THAT(files("out"),
              ElementsAre(Key("000000.shard"), Key("000001.shard"), Key("000002.shard"),
                          Key("000003.shard"), Key("pack.json")));
  const auto dataset = open("out");
  ASSERT_EQ(dataset->samples(), 30);
  for (int i = 0; i < 30; ++i) {
    const Sample sample = dataset->get(i);
    EXPECT_EQ(field(sample, "__key__"), fmt::format("{:03}", i));
    EXPECT_EQ(field(sample, "cls"), fmt::format("{}", i % 10));
    EXPECT_EQ(field(sample, "jpg").size(), static_cast<std::size_t>(i * 37 % 5000));
  }
}

TEST_F(PackTest, TarsAreReadByTar) {
  write("in/a/x.jpg", "picture");
  write("in/a/x.seg.png", "mask");
  write("in/b/noending", "any");
  write("in/b/empty.txt", "");
  pack_all({"in/"}, "out", {.target = Target::kWebDataset});
  EXPECT_EQ(output_of(fmt::format("tar -tf {}/000000.tar", path("out"))),
            "a/x.jpg\na/x.seg.png\nb/empty.txt\nb/noending.bin\n");
  const auto dataset = open("out");
  ASSERT_EQ(dataset->samples(), 3);
  EXPECT_EQ(field(dataset->get(0), "seg.png"), "mask");
  EXPECT_EQ(field(dataset->get(1), "txt"), "");
}

TEST_F(PackTest, ThreadsDoNotChangeAByte) {
  write_pictures("in", 100);
  for (const Target target : {Target::kPacked, Target::kWebDataset}) {
    const std::string one = target == Target::kPacked ? "one" : "one-tar";
    const std::string eight = target == Target::kPacked ? "eight" : "eight-tar";
    PackOptions options{.target = target, .shard_bytes = 64 * kKiB, .shuffle = 7};
    options.source.threads = 8;
    pack_all({"in"}, eight, options);
    const std::string urls[] = {path("in")};
    options.source.threads = 1;
    pack(urls, path(one), options, watch_);
    EXPECT_GT(files(one).size(), 3u);
    EXPECT_EQ(files(one), files(eight));
  }
}

TEST_F(PackTest, ShardsBySizeAreAboutThatSize) {
  std::string tokens(1 << 20, '\0');
  write("tokens.bin", tokens);
  PackOptions options{.shard_bytes = 128 * kKiB};
  options.source.tokens = Dtype::kU16;
  options.source.length = 512;
  const PackReport report = pack_all({"tokens.bin"}, "out", options);
  EXPECT_EQ(report.samples, 1024);
  for (const auto& [name, bytes] : shards("out"))
    EXPECT_LE(bytes.size(), 128u * 1024 + 3 * 4096) << name;
  EXPECT_EQ(report.shards, 9);  // 126 samples of 1024 + 24 bytes go into 128 KiB
}

TEST_F(PackTest, ShuffleIsThePermutationOfTheSeed) {
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += fmt::format("line {}\n", i);
  write("in.txt", lines);
  pack_all({"in.txt"}, "out", {.shard_samples = 30, .shuffle = 42});
  const Permutation permutation(100, key_of({42}));
  const auto dataset = open("out");
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(field(dataset->get(i), "text"), fmt::format("line {}", permutation.at(i)));
}

TEST_F(PackTest, EachLineOfATextIsASample) {
  write("in.txt", "one\r\n\nthree\nünd vier");
  const PackReport report = pack_all({"in.txt"}, "out");
  EXPECT_EQ(report.kind, "text");
  const auto dataset = open("out");
  ASSERT_EQ(dataset->samples(), 4);
  std::vector<std::string> texts;
  for (int i = 0; i < 4; ++i) texts.push_back(field(dataset->get(i), "text"));
  EXPECT_THAT(texts, ElementsAre("one", "", "three", "ünd vier"));
}

TEST_F(PackTest, LongLinesReachAcrossTheWindowsOfReading) {
  std::string text;
  std::vector<std::size_t> lengths{5'000'000, 3, 9'000'000, 8'388'607, 0, 12};
  for (const std::size_t length : lengths) text += std::string(length, 'x') + "\n";
  write("in.txt", text);
  pack_all({"in.txt"}, "out");
  const auto dataset = open("out");
  ASSERT_EQ(dataset->samples(), 6);
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(field(dataset->get(i), "text").size(), lengths[static_cast<std::size_t>(i)]);
}

TEST_F(PackTest, JsonLinesHaveTheTypesOfTheirValues) {
  write("in/a.jsonl", R"({"text": "ä", "label": 3, "weights": [1, 2.5], "tags": ["x"], "ok": true}

{"ok": false, "text": "b", "label": -1, "weights": [3, 4], "tags": [], "extra": 1}
)");
  EXPECT_THAT(refusal({"in"}, "out"), HasSubstr("line 1 of a.jsonl"));
  write("in/a.jsonl", R"({"text": "ä", "label": 3, "weights": [1, 2.5], "tags": ["x"], "ok": true}

{"ok": false, "text": "b", "label": -1, "weights": [3, 4], "tags": []}
)");
  write("in/b.jsonl", "");
  const PackReport report = pack_all({"in"}, "out");
  EXPECT_EQ(Schema::from_json(report.schema),
            Schema({{.name = "text", .dtype = Dtype::kUtf8},
                    {.name = "label", .dtype = Dtype::kI64},
                    {.name = "weights", .dtype = Dtype::kF64, .shape = {2}},
                    {.name = "tags", .dtype = Dtype::kUtf8},
                    {.name = "ok", .dtype = Dtype::kBool}}));
  const Sample second = open("out")->get(1);
  EXPECT_EQ(field(second, "tags"), "[]");
  EXPECT_EQ(field(second, "text"), "b");
}

TEST_F(PackTest, ASchemaDecidesAndIsHeld) {
  write("in.jsonl", "{\"n\": 200, \"v\": [1, 2, 3]}\n{\"n\": 7, \"v\": []}\n");
  PackOptions options;
  options.source.schema = parse_schema("n:u8,v:f16[-1]");
  pack_all({"in.jsonl"}, "out", options);
  EXPECT_EQ(field(open("out")->get(0), "n"), "\xC8");
  options.source.schema = parse_schema("n:i8, v:f32[-1]");
  EXPECT_THAT(
      refusal({"in.jsonl"}, "other", options),
      ::testing::AllOf(HasSubstr("line 1 of in.jsonl"), HasSubstr("n of i8 cannot hold 200")));
  EXPECT_THAT(shards("other"), IsEmpty());
}

TEST_F(PackTest, ALineThatIsNoJsonIsNamed) {
  write("in.jsonl", "{\"a\": 1}\n\n{\"a\": 2}\nnonsense\n");
  for (const Target target : {Target::kPacked, Target::kWebDataset}) {
    EXPECT_THAT(refusal({"in.jsonl"}, "out", {.target = target}), HasSubstr("line 4 of in.jsonl"));
    EXPECT_EQ(code_, Code::kInvalid);
    EXPECT_THAT(shards("out"), IsEmpty());
  }
  const PackReport report = pack_all({"in.jsonl"}, "skipped", {.most_bad = 1});
  EXPECT_EQ(report.samples, 2);
  EXPECT_EQ(report.skipped, 1);
  EXPECT_THAT(report.bad, ElementsAre(HasSubstr("line 4 of in.jsonl")));
}

TEST_F(PackTest, EmptyLinesOfWindowsAreEmptyLines) {
  const std::string odd = "\r\n{\"a\": 1}\r\n\r\n\n{\"a\": 2}\n\r\n\r\n{\"a\": 3}\r\n\r\n\r";
  write("in/a.jsonl", odd);
  write("in/b.jsonl", "\r");
  write("in/c.jsonl", "\n{\"a\": 4}");
  for (const Target target : {Target::kPacked, Target::kWebDataset}) {
    const std::string out = target == Target::kPacked ? "out" : "tars";
    EXPECT_EQ(pack_all({"in"}, out, {.target = target}).samples, 4);
    const auto dataset = open(out);
    for (int i = 0; i < 4 && target == Target::kWebDataset; ++i)
      EXPECT_EQ(field(dataset->get(i), "json"), fmt::format("{{\"a\": {}}}", i + 1));
  }
  // Lines keep their numbers.
  write("bad.jsonl", odd + "\n\r\n{\r\n");
  EXPECT_THAT(refusal({"bad.jsonl"}, "bad"), HasSubstr("line 12 of bad.jsonl"));
  write("lone.jsonl", "\r\n\r\n\r");
  EXPECT_THAT(refusal({"lone.jsonl"}, "lone"), HasSubstr("no lines"));
}

// A part of what is read at once ends before, between and behind \r and \n.
TEST_F(PackTest, EmptyLinesOfWindowsMayLieWhereAPartEnds) {
  constexpr std::size_t kPart = 8 << 20;
  for (const int shift : {-2, -1, 0, 1, 2}) {
    std::string text = "{\"a\": \"";
    const std::string end = "\"}\r\n";
    text += std::string(
        static_cast<std::size_t>(static_cast<int>(kPart) + shift) - text.size() - end.size(), 'x');
    text += end + "\r\n{\"a\": \"y\"}\r\n";
    write("in.jsonl", text);
    EXPECT_EQ(
        pack_all({"in.jsonl"}, "out", {.existing = PackOptions::Existing::kOverwrite}).samples, 2)
        << shift;
    EXPECT_EQ(field(open("out")->get(1), "a"), "y") << shift;
  }
}

TEST_F(PackTest, JsonThatCannotBeKeptIsRefusedByItsLine) {
  const auto nested = [](std::string_view begin, std::string_view end) {
    std::string out;
    for (int i = 0; i < 100'000; ++i) out += begin;
    out += "1";
    for (int i = 0; i < 100'000; ++i) out += end;
    return out;
  };
  const std::string good = "{\"a\": [[1]]}\n";
  for (const std::string& deep : {nested("[", "]"), nested("{\"a\":", "}")}) {
    fs::remove_all(path("out"));
    fs::remove_all(path("typed"));
    write("in.jsonl", good + "{\"a\": " + deep + "}\n" + good);
    for (const Target target : {Target::kPacked, Target::kWebDataset}) {
      PackOptions options{.target = target};
      options.existing = PackOptions::Existing::kOverwrite;
      EXPECT_THAT(refusal({"in.jsonl"}, "out", options),
                  ::testing::AllOf(HasSubstr("line 2 of in.jsonl"), HasSubstr("more than 200")));
      options.most_bad = 1;
      EXPECT_EQ(pack_all({"in.jsonl"}, "skipped", options).samples, 2);
    }
    PackOptions options;
    options.source.schema = parse_schema("a:utf8");
    EXPECT_THAT(refusal({"in.jsonl"}, "typed", options), HasSubstr("more than 200"));
  }
  write("in.jsonl", good + "{\"a\": [[18446744073709551616]]}\n");
  EXPECT_THAT(refusal({"in.jsonl"}, "large"),
              ::testing::AllOf(HasSubstr("line 2"), HasSubstr("18446744073709551616")));
  write("in.jsonl", "{\"a\": 1, \"a\": 2}\n");
  EXPECT_THAT(refusal({"in.jsonl"}, "twice"), HasSubstr("has a twice"));
  pack_all({"in.jsonl"}, "kept", {.target = Target::kWebDataset});
  EXPECT_EQ(field(open("kept")->get(0), "json"), "{\"a\": 1, \"a\": 2}");
}

TEST_F(PackTest, AFileOfTheKernelIsNotEmpty) {
  const std::string urls[] = {"/proc/self/status"};
  PackOptions options;
  options.source.kind = "text";
  try {
    pack(urls, path("out"), options, watch_);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/proc/self/status is made by the kernel"));
  }
}

TEST_F(PackTest, ALinkThatLeadsNowhereIsNotPassedOver) {
  write_pictures("in", 3);
  fs::create_symlink("gone.jpg", path("in/001.png"));
  EXPECT_THAT(refusal({"in"}, "out"), HasSubstr("001.png, a link to gone.jpg"));
}

TEST_F(PackTest, JsonLinesInATarStayWhatTheyAre) {
  write("in.jsonl", "{\"b\": 1, \"a\":  null}\n[1]\n");
  pack_all({"in.jsonl"}, "out", {.target = Target::kWebDataset});
  EXPECT_EQ(field(open("out")->get(0), "json"), "{\"b\": 1, \"a\":  null}");
  EXPECT_EQ(open("out")->get(1).key, "000000001");
}

TEST_F(PackTest, TokensAreCutIntoSamples) {
  std::vector<std::uint16_t> tokens(1000);
  std::iota(tokens.begin(), tokens.end(), std::uint16_t{0});
  write("in/a.bin", text_of(std::as_bytes(std::span(tokens))));
  write("in/b.bin", text_of(std::as_bytes(std::span(tokens).first(99))));
  PackOptions options;
  options.source.tokens = Dtype::kU16;
  options.source.length = 100;
  const PackReport report = pack_all({"in"}, "out", options);
  EXPECT_EQ(report.samples, 10);
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("99 tokens")));
  EXPECT_EQ(field(open("out")->get(3), "tokens"),
            text_of(std::as_bytes(std::span(tokens).subspan(300, 100))));
  options.source.length = 0;
  EXPECT_THAT(refusal({"in"}, "other", options), HasSubstr("--length"));
  write("in/c.bin", "odd");
  options.source.length = 100;
  EXPECT_THAT(refusal({"in"}, "other", options), HasSubstr("c.bin"));
}

// The other way of reading: NumPy's own files, and back by a tar's .npy members.
TEST_F(PackTest, RowsOfNumpyArraysAreSamples) {
  const std::string head = "\x93NUMPY\x01" + std::string(1, '\0') + std::string("\x76\0", 2) +
                           "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2), }";
  std::string file = head + std::string(127 - head.size(), ' ') + "\n";
  const std::int32_t rows[3][2] = {{1, 2}, {3, 4}, {5, 6}};
  file += text_of(std::as_bytes(std::span(rows)));
  write("in.npy", file);
  pack_all({"in.npy"}, "out");
  const Sample second = open("out")->get(1);
  EXPECT_EQ(second.fields[0].dtype, Dtype::kI32);
  EXPECT_THAT(second.fields[0].shape, ElementsAre(2));
  EXPECT_EQ(field(second, "array"), text_of(std::as_bytes(std::span(rows[1]))));
  write("short.npy", file.substr(0, file.size() - 1));
  EXPECT_THAT(refusal({"short.npy"}, "other"), HasSubstr("promises 3 rows"));
  write("no.npy", "no array");
  EXPECT_THAT(refusal({"no.npy"}, "other"), HasSubstr("no.npy"));

  pack_all({"out"}, "tar", {.target = Target::kWebDataset});
  const std::string array = field(open("tar")->get(1), "array.npy");
  EXPECT_THAT(array, HasSubstr("'shape': (2,)"));
  EXPECT_TRUE(array.ends_with(text_of(std::as_bytes(std::span(rows[1])))));
}

TEST_F(PackTest, ShardsGoFromFormatToFormatAndBack) {
  write_pictures("in", 25);
  pack_all({"in"}, "tar", {.target = Target::kWebDataset, .shard_samples = 10});
  pack_all({"tar"}, "packed", {.shard_samples = 7});
  pack_all({"packed"}, "again", {.target = Target::kWebDataset, .shard_samples = 10});
  const auto tar = open("tar");
  const auto packed = open("packed");
  const auto again = open("again");
  for (int i = 0; i < 25; ++i) {
    EXPECT_EQ(field(packed->get(i), "__key__"), tar->get(i).key);
    EXPECT_EQ(again->get(i).key, tar->get(i).key);
    for (const char* name : {"jpg", "cls"}) {
      EXPECT_EQ(field(packed->get(i), name), field(tar->get(i), name));
      EXPECT_EQ(field(again->get(i), name), field(tar->get(i), name));
    }
  }
  EXPECT_EQ(shards("tar").size(), shards("again").size());
}

TEST_F(PackTest, SamplesOfOtherColumnsAreRefused) {
  write("a/1.jpg", "x");
  write("a/2.txt", "y");
  EXPECT_THAT(refusal({"a"}, "out"),
              ::testing::AllOf(HasSubstr("1.jpg"), HasSubstr("2.txt"), HasSubstr("--sample file")));
  PackOptions options;
  options.source.unit = Unit::kFile;
  pack_all({"a"}, "out", options);
  EXPECT_EQ(field(open("out")->get(1), "__key__"), "2.txt");
  EXPECT_EQ(field(open("out")->get(1), "bytes"), "y");

  write("t1.jsonl", "{\"a\": 1}\n");
  write("t2.jsonl", "{\"a\": \"x\"}\n");
  EXPECT_THAT(refusal({"t1.jsonl", "t2.jsonl"}, "other"),
              ::testing::AllOf(HasSubstr("line 1 of t2.jsonl"), HasSubstr("a is text")));
  pack_all({"t1.jsonl"}, "p1");
  pack_all({"t2.jsonl"}, "p2");
  EXPECT_THAT(refusal({"p1", "p2"}, "other"), HasSubstr("its a is utf8"));
}

TEST_F(PackTest, NamesMayBeAnyBytes) {
  write("in/new\nline.bin", "1");
  write("in/über/日本.bin", "2");
  pack_all({"in"}, "out", {.target = Target::kWebDataset});
  EXPECT_EQ(open("out")->get(0).key, "new\nline");
  EXPECT_EQ(open("out")->get(1).key, "über/日本");
  write("in/\xFF.bin", "3");
  pack_all({"in"}, "out-bytes", {.target = Target::kWebDataset});
  EXPECT_EQ(open("out-bytes")->get(2).key, "\xFF");
  EXPECT_THAT(refusal({"in"}, "packed"), HasSubstr("--keys bytes"));
  PackOptions options;
  options.source.keys = PackSourceOptions::Keys::kBytes;
  pack_all({"in"}, "packed", options);
  EXPECT_EQ(field(open("packed")->get(2), "__key__"), "\xFF");
}

TEST_F(PackTest, WhatIsNotThereOrEmptyIsSaid) {
  EXPECT_THAT(refusal({"nowhere"}, "out"), HasSubstr("nowhere is not there"));
  EXPECT_EQ(code_, Code::kNotFound);
  fs::create_directories(path("empty"));
  EXPECT_THAT(refusal({"empty"}, "out"), HasSubstr("empty"));
  write("hidden/.DS_Store", "x");
  EXPECT_THAT(refusal({"hidden"}, "out"), HasSubstr("1 hidden"));
  write("lines.jsonl", "\n\n");
  EXPECT_THAT(refusal({"lines.jsonl"}, "out"), HasSubstr("no lines"));
  EXPECT_FALSE(fs::exists(path("out")));
  write("mixed/a.tar", "x");
  write("mixed/b.jpg", "x");
  EXPECT_THAT(refusal({"mixed"}, "out"), HasSubstr("--from"));
}

TEST_F(PackTest, TheDestinationIsNotInTheSource) {
  write_pictures("in", 3);
  EXPECT_THAT(refusal({"in"}, "in/out"), HasSubstr("lies in the source"));
  EXPECT_THAT(refusal({"in"}, "in"), HasSubstr("lies in the source"));
  fs::create_directory_symlink(path("in"), path("link"));
  EXPECT_THAT(refusal({"link"}, "in/out"), HasSubstr("lies in the source"));
  EXPECT_EQ(files("in").size(), 6u);
}

TEST_F(PackTest, WhatItDidNotMakeIsNotTouched) {
  write_pictures("in", 3);
  write("out/000000.shard", "somebody's");
  EXPECT_THAT(refusal({"in"}, "out"), HasSubstr("--overwrite"));
  EXPECT_EQ(code_, Code::kExists);
  EXPECT_THAT(files("out"), ElementsAre(std::pair{"000000.shard", "somebody's"}));
  write("out2/train.tar", "somebody's");
  PackOptions overwrite{.existing = PackOptions::Existing::kOverwrite};
  EXPECT_THAT(refusal({"in"}, "out2", overwrite), HasSubstr("train.tar"));
  EXPECT_EQ(files("out2").size(), 1u);
  pack_all({"in"}, "out", overwrite);
  EXPECT_EQ(open("out")->samples(), 3);
}

TEST_F(PackTest, AFinishedPackIsLeftAloneAndAMissingShardIsMadeAgain) {
  write_pictures("in", 20);
  pack_all({"in"}, "out", {.shard_samples = 5});
  const auto made = files("out");
  EXPECT_EQ(pack_all({"in"}, "out", {.shard_samples = 5}).end, PackReport::End::kNothingToDo);
  fs::remove(path("out/000002.shard"));
  const PackReport again = pack_all({"in"}, "out", {.shard_samples = 5});
  EXPECT_EQ(again.shards_made, 1);
  EXPECT_EQ(files("out"), made);
  write("out/000001.shard", "cut");
  EXPECT_THAT(refusal({"in"}, "out", {.shard_samples = 5}), HasSubstr("has 3 bytes"));
}

TEST_F(PackTest, AnotherSourceOrOtherOptionsAreRefusedWithTheReason) {
  write_pictures("in", 20);
  pack_all({"in"}, "out", {.shard_samples = 5});
  EXPECT_THAT(refusal({"in"}, "out", {.shard_samples = 6}),
              HasSubstr("--shard-samples was 5, now it is 6"));
  EXPECT_THAT(refusal({"in"}, "out", {.target = Target::kWebDataset, .shard_samples = 5}),
              HasSubstr("--format was packed, now it is webdataset"));
  write("in/999.jpg", "more");
  write("in/999.cls", "1");
  EXPECT_THAT(refusal({"in"}, "out", {.shard_samples = 5}), HasSubstr("it had 40 files"));
  const auto report =
      pack_all({"in"}, "out", {.shard_samples = 7, .existing = PackOptions::Existing::kOverwrite});
  EXPECT_EQ(report.samples, 21);
  EXPECT_EQ(shards("out").size(), 3u);  // the four of the first pack are gone
  write("out/pack.json", "{");
  EXPECT_THAT(refusal({"in"}, "out", {.shard_samples = 7}), HasSubstr("damaged"));
}

TEST_F(PackTest, ABadFileIsNamedOrSkipped) {
  write_pictures("in", 10);
  PackOptions options{.shard_samples = 4};
  options.source.wrap = [](std::shared_ptr<store::Store> inner) {
    return std::make_shared<store::FaultStore>(
        inner, store::Faults{.before_read = [](const store::Read& read) -> std::optional<Error> {
          if (read.key != "in/005.jpg" && read.key != "005.jpg") return std::nullopt;
          return Error(Code::kIo, "a bad sector");
        }});
  };
  EXPECT_THAT(refusal({"in"}, "out", options),
              ::testing::AllOf(HasSubstr("005."), HasSubstr("a bad sector")));
  options.most_bad = 1;
  const PackReport report = pack_all({"in"}, "out", options);
  EXPECT_EQ(report.samples, 9);
  EXPECT_EQ(report.skipped, 1);
  const auto dataset = open("out");
  EXPECT_EQ(dataset->samples(), 9);
  EXPECT_EQ(field(dataset->get(5), "__key__"), "006");
  // It is done; with what was skipped.
  const PackReport again = pack_all({"in"}, "out", options);
  EXPECT_EQ(again.end, PackReport::End::kNothingToDo);
  EXPECT_EQ(again.skipped, 1);
}

TEST_F(PackTest, AFileThatChangesOrVanishesMeanwhileIsNoticed) {
  for (const bool vanishes : {false, true}) {
    write_pictures("in", 10);
    PackOptions options;
    options.source.wrap = [&](std::shared_ptr<store::Store> inner) {
      return std::make_shared<store::FaultStore>(
          inner, store::Faults{.before_read = [&](const store::Read&) -> std::optional<Error> {
            if (vanishes) {
              fs::remove(path("in/007.jpg"));
            } else {
              std::ofstream(path("in/007.jpg"), std::ios::app) << "more";
            }
            return std::nullopt;
          }});
    };
    EXPECT_THAT(refusal({"in"}, "out", options), HasSubstr("007."));
    EXPECT_THAT(shards("out"), IsEmpty());
    fs::remove_all(path("out"));
  }
}

TEST_F(PackTest, AFullDiskLeavesNoHalfShardAndThePackGoesOnLater) {
  write_pictures("in", 60);
  PackOptions options{.shard_samples = 10};
  pack_all({"in"}, "whole", options);
  std::atomic<int> writes = 0;
  options.wrap_destination = [&](std::shared_ptr<store::Store> inner) {
    return std::make_shared<store::FaultStore>(
        inner, store::Faults{.before_write = [&](std::int64_t, std::size_t) {
          if (++writes > 25) throw errno_error(ENOSPC, "cannot write, on purpose");
        }});
  };
  EXPECT_THAT(refusal({"in"}, "out", options), HasSubstr("on purpose"));
  EXPECT_EQ(code_, Code::kNoSpace);
  const auto whole = files("whole");
  for (const auto& [name, bytes] : shards("out")) EXPECT_EQ(bytes, whole.at(name)) << name;
  EXPECT_LT(shards("out").size(), 6u);
  options.wrap_destination = {};
  pack_all({"in"}, "out", options);
  EXPECT_EQ(files("out"), whole);
}

TEST_F(PackTest, ACommitThatFailsLeavesNothing) {
  write_pictures("in", 10);
  PackOptions options{.target = Target::kWebDataset};
  int commits = 0;
  options.wrap_destination = [&](std::shared_ptr<store::Store> inner) {
    return std::make_shared<store::FaultStore>(inner, store::Faults{.before_commit = [&] {
                                                 if (++commits == 2)
                                                   throw Error(Code::kIo, "a fault on purpose");
                                               }});
  };
  EXPECT_THAT(refusal({"in"}, "out", options), HasSubstr("on purpose"));
  EXPECT_THAT(files("out"), ElementsAre(Key("pack.json")));
}

TEST_F(PackTest, ToldToStopItStopsAndGoesOnLater) {
  write_pictures("in", 60);
  pack_all({"in"}, "whole", {.shard_samples = 5});
  std::atomic<bool> stop = false;
  std::atomic<int> commits = 0;
  watch_.stop = [&] { return stop.load(); };
  PackOptions options{.shard_samples = 5};
  options.wrap_destination = [&](std::shared_ptr<store::Store> inner) {
    return std::make_shared<store::FaultStore>(inner, store::Faults{.before_commit = [&] {
                                                 if (++commits == 4) stop = true;
                                               }});
  };
  const PackReport report = pack_all({"in"}, "out", options);
  EXPECT_EQ(report.end, PackReport::End::kStopped);
  EXPECT_GT(report.shards_made, 0);
  EXPECT_LT(report.shards_made, 12);
  EXPECT_EQ(static_cast<std::int64_t>(shards("out").size()), report.shards_made);
  stop = false;
  EXPECT_EQ(pack_all({"in"}, "out", {.shard_samples = 5}).end, PackReport::End::kDone);
  EXPECT_EQ(files("out"), files("whole"));
}

TEST_F(PackTest, ADryRunWritesNothingAndRefusesTheSame) {
  write_pictures("in", 20);
  const std::string urls[] = {path("in")};
  const PackReport planned = plan_pack(urls, path("out"), {.shard_samples = 6}, watch_);
  EXPECT_EQ(planned.end, PackReport::End::kPlanned);
  EXPECT_EQ(planned.shards, 4);
  EXPECT_EQ(planned.samples, 20);
  EXPECT_FALSE(fs::exists(path("out")));
  EXPECT_THROW(plan_pack(urls, path("in/out"), {}, watch_), Error);
}

TEST_F(PackTest, MemoryStoresAreDestinationsAndSources) {
  const auto place = store::locate("memory://packing/in/a.txt");
  store::put(*place.store, "in/a.txt", "x\ny\n");
  const std::string urls[] = {"memory://packing/in/a.txt"};
  pack(urls, "memory://packing/out", {.shard_samples = 1}, watch_);
  std::vector<std::string> keys;
  place.store->list(
      "out/", [&](const store::ObjectInfo& info) { keys.push_back(info.key); },
      Deadline::after(kSecond));
  EXPECT_THAT(keys, ElementsAre("out/000000.shard", "out/000001.shard", "out/pack.json"));
  const std::string again[] = {"memory://packing/out"};
  EXPECT_EQ(pack(again, "memory://packing/two", {}, watch_).samples, 2);
}

TEST_F(PackTest, ProgressReachesItsEnd) {
  write_pictures("in", 20);
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> last;
  watch_.show = [&](const ProgressView& view) {
    last[std::string(view.phase)] = {view.done, view.of};
  };
  pack_all({"in"}, "out", {.shard_samples = 3});
  EXPECT_EQ(last.at("packing"), std::pair(std::int64_t{20}, std::int64_t{20}));
  EXPECT_EQ(last.at("looking at the source").first, 40);
}

}  // namespace
}  // namespace bedplate::data
