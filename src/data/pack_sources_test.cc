// What people have: folders of pictures, arrays, lines with holes, things that systems leave
// behind. What becomes of each, and what is said of that which is not packed.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/braces.h"
#include "data/decode/npy.h"
#include "data/pack_fixture.h"
#include "data/pack_record.h"

namespace bedplate::data {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Labels = PackSourceOptions::Labels;
using Unit = PackSourceOptions::Unit;

class PackSources : public PackTest {
 protected:
  static std::string field(const Sample& sample, std::string_view name) {
    const auto found = std::ranges::find(sample.fields, name, &Field::name);
    return found == sample.fields.end() ? "(none)" : text_of(found->bytes);
  }
  static std::int64_t label(const Sample& sample) {
    const std::string bytes = field(sample, kLabelColumn);
    std::int64_t number = -1;
    if (bytes.size() == sizeof number) std::memcpy(&number, bytes.data(), sizeof number);
    return number;
  }
  std::vector<std::string> columns(const std::string& folder) {
    std::vector<std::string> names;
    const auto dataset = open(folder);
    for (const Column& column : dataset->shards().front().index().schema()->columns())
      names.push_back(column.name);
    return names;
  }
  std::vector<std::string> keys(const std::string& folder) {
    const auto dataset = open(folder);
    std::vector<std::string> out;
    for (std::int64_t i = 0; i < dataset->samples(); ++i)
      out.push_back(field(dataset->get(i), kKeyColumn));
    return out;
  }
  void write_npy(const std::string& name, Dtype dtype, std::vector<std::int64_t> shape,
                 std::string_view bytes) {
    write(name, *make_npy_head(dtype, shape) + std::string(bytes));
  }
};

// --- labels ---------------------------------------------------------------------------------

TEST_F(PackSources, PicturesInFoldersSideBySideAreLabelledAsImageFolderDoes) {
  write("in/zebra/1.jpg", "z");
  write("in/ant/2.JPEG", "a");
  write("in/ant/3.png", "b");
  write("in/Zoo/4.jpg", "Z");  // capitals come first, as in Python's sorted()
  const PackReport report = pack_all({"in"}, "out");
  EXPECT_THAT(report.classes, ElementsAre("Zoo", "ant", "zebra"));
  EXPECT_THAT(report.notes, Contains(HasSubstr("Zoo = 0, ant = 1, zebra = 2, in the column cls")));
  EXPECT_THAT(columns("out"), ElementsAre("__key__", "jpg", "cls"));
  const auto dataset = open("out");
  ASSERT_EQ(dataset->samples(), 4);
  for (std::int64_t i = 0; i < 4; ++i) {
    const Sample sample = dataset->get(i);
    const std::string key = field(sample, kKeyColumn);
    const std::int64_t expected = key.starts_with("Zoo/") ? 0 : key.starts_with("ant/") ? 1 : 2;
    EXPECT_EQ(label(sample), expected) << key;
  }
  EXPECT_EQ(parse_pack_record(files("out")["pack.json"]).classes, report.classes);
  EXPECT_EQ(pack_all({"in"}, "out").classes, report.classes) << "when there is nothing to do";
}

TEST_F(PackSources, ATarHasTheLabelAsText) {
  write("in/a/1.jpg", "x");
  write("in/b/2.png", "y");
  pack_all({"in"}, "out", {.target = Target::kWebDataset});
  EXPECT_EQ(output_of(fmt::format("tar -tf {}/000000.tar", path("out"))),
            "a/1.jpg\na/1.cls\nb/2.png\nb/2.cls\n");
  EXPECT_EQ(field(open("out")->get(1), "cls"), "1");
}

TEST_F(PackSources, PicturesOfAClassAreNoPartsOfOneSample) {
  for (const char* name : {"a/p.0.jpg", "a/p.1.jpg", "a/p.2.png", "b/q.jpg"})
    write(std::string("in/") + name, name);
  const PackReport report = pack_all({"in"}, "out");
  EXPECT_EQ(report.samples, 4);
  EXPECT_THAT(report.notes, Contains(HasSubstr("each picture is a sample")));
  EXPECT_THAT(columns("out"), ElementsAre("__key__", "jpg", "cls"));
  EXPECT_THAT(keys("out"), ElementsAre("a/p.0", "a/p.1", "a/p.2", "b/q"));
  EXPECT_EQ(field(open("out")->get(2), "jpg"), "a/p.2.png");
  // In a tar a key ends at the first dot.
  pack_all({"in"}, "tar", {.target = Target::kWebDataset});
  EXPECT_EQ(open("tar")->samples(), 4);
  EXPECT_EQ(open("tar")->get(2).key, "a/p_2");
  EXPECT_EQ(field(open("tar")->get(2), "png"), "a/p.2.png");
  // A picture and its mask are.
  for (const char* name : {"a/p.jpg", "a/p.seg.png", "b/q.jpg", "b/q.seg.png"})
    write(std::string("masks-of/") + name, name);
  EXPECT_EQ(pack_all({"masks-of"}, "masks-out").samples, 2);
}

TEST_F(PackSources, OtherFoldersAreLabelledOnlyWhenAsked) {
  write("parts/train/1.jpg", "x");
  write("parts/val/2.jpg", "y");
  write("deep/a/x/1.jpg", "x");
  write("deep/b/x/2.jpg", "y");
  write("texts/neg/1.txt", "x");
  write("texts/pos/2.txt", "y");
  for (const std::string& in : {std::string("parts"), std::string("deep"), std::string("texts")}) {
    const PackReport usual = pack_all({in}, in + "-usual");
    EXPECT_THAT(usual.classes, IsEmpty()) << in;
    if (in != "texts") {
      EXPECT_THAT(usual.notes, Contains(HasSubstr("--labels folder"))) << in;
    }
    PackOptions asked;
    asked.source.labels = Labels::kFolder;
    EXPECT_EQ(pack_all({in}, in + "-asked", asked).classes.size(), 2U) << in;
    EXPECT_EQ(label(open(in + "-asked")->get(1)), 1) << in;
  }
  PackOptions none;
  none.source.labels = Labels::kNone;
  write("classes/a/1.jpg", "x");
  write("classes/b/2.jpg", "y");
  EXPECT_THAT(pack_all({"classes"}, "none", none).classes, IsEmpty());
}

TEST_F(PackSources, LabelsThatCannotBeAreRefused) {
  PackOptions folder;
  folder.source.labels = Labels::kFolder;
  write("in/a/1.jpg", "x");
  write("in/stray.jpg", "y");
  EXPECT_THAT(
      refusal({"in"}, "out", folder),
      AllOf(HasSubstr("stray.jpg"), HasSubstr("lies in no folder"), HasSubstr("--exclude")));
  write("own/a/1.jpg", "x");
  write("own/a/1.cls", "7");
  EXPECT_THAT(refusal({"own"}, "out", folder), HasSubstr("cls"));
  write("lines.jsonl", "{\"a\": 1}\n");
  EXPECT_THAT(refusal({"lines.jsonl"}, "out", folder), HasSubstr("not for jsonl"));
}

// --- ordinary folders -----------------------------------------------------------------------

TEST_F(PackSources, WhatSystemsLeaveBehindIsPassedOverAndCounted) {
  write("in/1.jpg", "x");
  write("in/Thumbs.db", "t");
  write("in/.DS_Store", "d");
  write("in/sub/desktop.ini", "i");
  write("in/__MACOSX/1.jpg", "m");
  const PackReport report = pack_all({"in"}, "out");
  EXPECT_EQ(report.samples, 1);
  EXPECT_THAT(report.notes, Contains(HasSubstr("1 hidden files")));
  EXPECT_THAT(report.notes, Contains(HasSubstr("3 files are passed over (Thumbs.db")));
}

TEST_F(PackSources, ExcludedIsWhatAnyPatternMatches) {
  for (const char* name : {"1.jpg", "1.xmp", "a/2.jpg", "a/notes.txt", "old/3.jpg", "a/old/4.jpg"})
    write(std::string("in/") + name, "x");
  PackOptions options;
  options.source.exclude = {"*.xmp", "a/notes.*", "old/", "*.none"};
  const PackReport report = pack_all({"in"}, "out", options);
  EXPECT_THAT(keys("out"), ElementsAre("1", "a/2"));
  EXPECT_THAT(report.notes, Contains(HasSubstr("--exclude old/ leaves out 2 files")));
  EXPECT_THAT(report.notes, Contains(HasSubstr("--exclude *.none leaves out 0 files")));
  options.source.exclude = {"*"};
  EXPECT_THAT(refusal({"in"}, "none", options), HasSubstr("6 files are excluded"));
  options.source.exclude = {"*.xmp"};
  EXPECT_THAT(refusal({"in"}, "out", options), HasSubstr("--exclude was"));
}

TEST_F(PackSources, PicturesOfSeveralKindsAreOneColumn) {
  for (const char* name : {"1.jpg", "2.jpeg", "3.PNG", "4.JPG", "5.png"})
    write(std::string("in/") + name, "x");
  const PackReport report = pack_all({"in"}, "out");
  EXPECT_THAT(columns("out"), ElementsAre("__key__", "jpg"));
  EXPECT_THAT(report.notes, Contains(HasSubstr("one column, jpg")));
  for (const char* name : {"1.JPEG", "2.jpeg"}) write(std::string("jpegs/") + name, "x");
  pack_all({"jpegs"}, "jpegs-out");
  EXPECT_THAT(columns("jpegs-out"), ElementsAre("__key__", "jpg"));
  // A picture and its mask are two, whatever they are.
  for (const char* name : {"1.jpg", "1.png", "2.jpg", "2.png"})
    write(std::string("pairs/") + name, "x");
  pack_all({"pairs"}, "pairs-out");
  EXPECT_THAT(columns("pairs-out"), ElementsAre("__key__", "jpg", "png"));
}

TEST_F(PackSources, TwoSpellingsInOneSampleAreRefusedNotLost) {
  write("in/1.jpg", "x");
  write("in/1.jpeg", "y");
  EXPECT_THAT(refusal({"in"}, "out"), HasSubstr("two columns are named jpg"));
}

TEST_F(PackSources, SeveralDotsAreNoObstacleWhereNoFileSharesTheStem) {
  write("in/img.v1.0.jpg", "x");
  write("in/other.jpg", "y");
  pack_all({"in"}, "out");
  EXPECT_THAT(keys("out"), ElementsAre("img.v1.0", "other"));
  EXPECT_THAT(columns("out"), ElementsAre("__key__", "jpg"));
  // Where all samples have them they are parts of a sample, as ever.
  for (const char* name : {"1.seg.png", "1.jpg", "2.seg.png", "2.jpg"})
    write(std::string("seg/") + name, "x");
  pack_all({"seg"}, "seg-out");
  EXPECT_THAT(columns("seg-out"), ElementsAre("__key__", "jpg", "seg.png"));
  // A picture whose mask is missing is no reason to take masks for pictures.
  write("hole/1.jpg", "x");
  write("hole/1.seg.png", "x");
  write("hole/2.jpg", "x");
  EXPECT_THAT(
      refusal({"hole"}, "hole-out"),
      AllOf(HasSubstr("the same ones"), HasSubstr("--exclude"), HasSubstr("--sample file")));
}

// --- compressed, undecided ------------------------------------------------------------------

TEST_F(PackSources, WhatIsCompressedIsRefusedByName) {
  for (const char* name : {"c.jsonl.gz", "c.txt.zst", "c.tar.gz", "c.tgz", "c.zip", "c.npy.xz"}) {
    write(name, "packed");
    EXPECT_THAT(refusal({name}, "out"),
                AllOf(HasSubstr(name), HasSubstr("is compressed"), HasSubstr("unpack it first")));
    EXPECT_EQ(code_, Code::kInvalid);
  }
  write("folder/a.jsonl", "{\"a\": 1}\n");
  write("folder/b.jsonl.gz", "packed");
  EXPECT_THAT(refusal({"folder"}, "out"), HasSubstr("b.jsonl.gz is compressed"));
  PackOptions lines;
  lines.source.kind = "jsonl";
  EXPECT_THAT(refusal({"c.jsonl.gz"}, "out", lines), HasSubstr("is compressed"));
  EXPECT_THAT(refusal({"folder"}, "out", lines), HasSubstr("b.jsonl.gz is compressed"))
      << "not passed over";
  // As they are, if that is what is wanted; and samples whose format is compressed.
  PackOptions as_they_are;
  as_they_are.source.kind = "files";
  EXPECT_EQ(pack_all({"c.jsonl.gz"}, "as-it-is", as_they_are).samples, 1);
  write("scans/1.nii.gz", "x");
  write("scans/2.nii.gz", "x");
  EXPECT_EQ(pack_all({"scans"}, "scans-out").samples, 2);
}

TEST_F(PackSources, ALoneJsonIsAsked) {
  write("in.json", "{\"a\": 1}\n{\"a\": 2}\n");
  EXPECT_THAT(refusal({"in.json"}, "out"),
              AllOf(HasSubstr("--from jsonl"), HasSubstr("--from files")));
  PackOptions lines;
  lines.source.kind = "jsonl";
  EXPECT_EQ(pack_all({"in.json"}, "out", lines).samples, 2);
}

// --- arrays ---------------------------------------------------------------------------------

TEST_F(PackSources, TokensOfAnArrayAreItsNumbers) {
  std::string bytes;
  for (std::uint16_t i = 0; i < 10; ++i) bytes.append(reinterpret_cast<const char*>(&i), sizeof i);
  write_npy("t.npy", Dtype::kU16, {10}, bytes);
  PackOptions options;
  options.source.length = 4;
  for (const bool named : {true, false}) {
    options.source.tokens = named ? std::optional(Dtype::kU16) : std::nullopt;
    const std::string out = named ? "named" : "told";
    const PackReport report = pack_all({"t.npy"}, out, options);
    EXPECT_EQ(report.samples, 2);
    EXPECT_THAT(report.notes, Contains(HasSubstr("2 tokens")));
    EXPECT_EQ(field(open(out)->get(0), "tokens"), bytes.substr(0, 8));
    EXPECT_EQ(field(open(out)->get(1), "tokens"), bytes.substr(8, 8));
  }
  options.source.tokens = Dtype::kU32;
  EXPECT_THAT(refusal({"t.npy"}, "no", options), HasSubstr("holds u16, not u32"));
  options.source.tokens.reset();
  write_npy("table.npy", Dtype::kU16, {5, 2}, bytes);
  EXPECT_THAT(refusal({"table.npy"}, "no", options), HasSubstr("has the shape [5, 2]"));
  write_npy("cut.npy", Dtype::kU16, {11}, bytes);
  EXPECT_THAT(refusal({"cut.npy"}, "no", options), HasSubstr("where its head promises 22"));
  write("t.bin", bytes);
  EXPECT_THAT(refusal({"t.bin"}, "no", options), HasSubstr("give --tokens DTYPE"));
}

TEST_F(PackSources, ARowOfNumbersIsNotASampleANumber) {
  write_npy("t.npy", Dtype::kI8, {4}, "abcd");
  EXPECT_THAT(refusal({"t.npy"}, "out"), AllOf(HasSubstr("t.npy"), HasSubstr("--length N")));
  PackOptions one;
  one.source.length = 1;
  EXPECT_EQ(pack_all({"t.npy"}, "out", one).samples, 4);
}

// --- lines with holes -----------------------------------------------------------------------

TEST_F(PackSources, WhatALineLacksIsFilled) {
  write("in.jsonl",
        "{\"text\": \"a\", \"label\": 3}\n{\"text\": \"b\", \"label\": null}\n{\"text\": \"c\"}\n");
  EXPECT_THAT(refusal({"in.jsonl"}, "out"),
              AllOf(HasSubstr("line 2 of in.jsonl"), HasSubstr("label is null"),
                    HasSubstr("--fill 'label=VALUE'")));
  write("short.jsonl", "{\"text\": \"a\", \"label\": 3}\n{\"text\": \"c\"}\n");
  EXPECT_THAT(refusal({"short.jsonl"}, "out"),
              AllOf(HasSubstr("line 2 of short.jsonl"), HasSubstr("has no label"),
                    HasSubstr("--fill 'label=VALUE'")));
  PackOptions options;
  options.source.fill = {parse_fill("label=-1")};
  pack_all({"in.jsonl"}, "out", options);
  std::vector<std::int64_t> labels;
  const auto dataset = open("out");
  for (std::int64_t i = 0; i < dataset->samples(); ++i) {
    std::int64_t number = 0;
    const std::string bytes = field(dataset->get(i), "label");
    ASSERT_EQ(bytes.size(), sizeof number);
    std::memcpy(&number, bytes.data(), sizeof number);
    labels.push_back(number);
  }
  EXPECT_THAT(labels, ElementsAre(3, -1, -1));
  options.target = Target::kWebDataset;
  EXPECT_THAT(refusal({"in.jsonl"}, "tar", options), HasSubstr("--fill is for"));
}

TEST_F(PackSources, FillIsJsonOrElseText) {
  EXPECT_EQ(parse_fill("a=3").value, "3");
  EXPECT_EQ(parse_fill("a=none").value, "\"none\"");
  EXPECT_EQ(parse_fill("a=").value, "\"\"");
  EXPECT_EQ(parse_fill("a=b=c").value, "\"b=c\"");
  EXPECT_EQ(parse_fill("a=[1,2]").value, "[1,2]");
  const std::string deep = "a=" + std::string(60'000, '[') + std::string(60'000, ']');
  for (const std::string& wrong : {std::string("a"), std::string("=3"), std::string("a=null"), deep,
                                   std::string("a=18446744073709551616")})
    EXPECT_THROW(parse_fill(wrong), Error) << wrong;
}

// --- names ----------------------------------------------------------------------------------

TEST(ParseDtype, TakesThePythonNamesToo) {
  const std::pair<const char*, Dtype> names[] = {
      {"u16", Dtype::kU16},     {"uint16", Dtype::kU16}, {"bfloat16", Dtype::kBf16},
      {"float32", Dtype::kF32}, {"str", Dtype::kUtf8},   {"bool", Dtype::kBool}};
  for (const auto& [text, dtype] : names) EXPECT_EQ(parse_dtype(text), dtype) << text;
  EXPECT_EQ(parse_schema("a:uint16[4],b:str"), parse_schema("a:u16[4],b:utf8"));
  EXPECT_EQ(dtype_of("uint16"), std::nullopt) << "shards have one name for each";
  try {
    parse_dtype("uint61");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean uint"));
  }
}

TEST_F(PackSources, PatternsOfPathsNameWhatIsThere) {
  for (const char* name : {"w/b.tar", "w/a.tar", "w/a.txt", "w/[x].tar", "sub/c/d"})
    write(name, "x");
  EXPECT_THAT(expand_names(path("w") + "/?.tar"), ElementsAre(path("w/a.tar"), path("w/b.tar")));
  EXPECT_THAT(expand_names(path("w") + "/[x].tar"), ElementsAre(path("w/[x].tar")))
      << "what is there as it stands";
  EXPECT_THAT(expand_names(path("sub") + "/*"), ElementsAre(path("sub/c/")));
  EXPECT_THAT(expand_names(path("w") + "/{a,b}.t*"),
              ElementsAre(path("w/a.tar"), path("w/a.txt"), path("w/b.tar")));
  EXPECT_THAT(expand_names("s3://bucket/*.tar"), ElementsAre("s3://bucket/*.tar"));
  EXPECT_THROW(expand_names(path("w") + "/*.none"), Error);
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  if (!home.empty()) {
    EXPECT_THAT(expand_names("~/a"), ElementsAre(home + "/a"));
  }
  EXPECT_THAT(expand_names("~other/a"), ElementsAre("~other/a"));
  EXPECT_THAT(expand_names(escape_braces("a{1,2}")), ElementsAre("a{1,2}"));
  EXPECT_THAT(refusal({"w/*.none"}, "out"), HasSubstr("nothing here matches"));
}

}  // namespace
}  // namespace bedplate::data
