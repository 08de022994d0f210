// Pictures that are cut off, damaged, bombs, or none.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "data/decode/image.h"
#include "data/decode/test_decode.h"
#include "data/permutation.h"

namespace bedplate::data {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string outcome(ImageDecoder& decoder, std::string_view file, Pixels& pixels) {
  try {
    decoder.decode_whole(bytes_of(file), 3, pixels);
  } catch (const Error& error) {
    EXPECT_THAT(error.code(), ::testing::AnyOf(Code::kCorrupt, Code::kUnsupported)) << error.what();
    return error.what();
  }
  return "whole";
}

TEST(Damage, ACutOffFileIsRefusedOrWhole) {
  const Picture picture = picture_of(48, 40);
  const std::string files[] = {jpeg_of(picture),
                               jpeg_of(picture, {.progressive = true}),
                               jpeg_of(picture, {.scans = true}),
                               jpeg_of(picture, {.arithmetic = true}),
                               jpeg_of(picture, {.restart_rows = 1}),
                               png_of(picture),
                               png_of(picture, {.interlaced = true})};
  ImageDecoder decoder;
  ImageDecoder lenient({.damage = Damage::kAccept});
  Pixels pixels;
  for (const std::string& file : files) {
    ASSERT_EQ(outcome(decoder, file, pixels), "whole");
    const std::vector<std::byte> whole = pixels.bytes;
    std::size_t taken = 0;
    for (std::size_t bytes = 0; bytes < file.size(); ++bytes) {
      const std::string part = file.substr(0, bytes);
      const std::string got = outcome(decoder, part, pixels);
      if (got == "whole") {
        ++taken;
        ASSERT_EQ(pixels.bytes, whole) << bytes << " of " << file.size();
      } else if (bytes > 0) {
        ASSERT_THAT(got, HasSubstr("cut off")) << bytes << " of " << file.size();
      }
      outcome(lenient, part, pixels);
      // A crop of the upper rows alone is refused as well.
      if (got != "whole" && bytes % 7 == 0) {
        std::vector<std::byte> out(8 * 8 * 3);
        EXPECT_THROW(decoder.decode(bytes_of(part), {.height = 8, .width = 8}, 0, out), Error);
      }
    }
    EXPECT_LT(taken, 40U);  // the end marker, a checksum, padding
  }
}

TEST(Damage, SaysHowMuchIsMissing) {
  const Picture picture = picture_of(160, 160);
  const std::string jpeg = jpeg_of(picture);
  EXPECT_THAT(refusal_of_file(Code::kCorrupt, jpeg.substr(0, jpeg.size() / 2)),
              ::testing::ContainsRegex("cut off: [0-9]+ of 160 rows are missing"));
  const std::string progressive = jpeg_of(picture, {.progressive = true});
  EXPECT_THAT(refusal_of_file(Code::kCorrupt, progressive.substr(0, progressive.size() / 2)),
              ::testing::ContainsRegex("cut off: in scan [0-9]+, from row [0-9]+ of 160"));
  const std::string png = png_of(picture);
  EXPECT_THAT(refusal_of_file(Code::kCorrupt, png.substr(0, png.size() / 2)),
              ::testing::ContainsRegex("cut off: [0-9]+ of 160 rows are missing"));
}

TEST(Damage, WhatIsAcceptedHasTheRowsThatAreThere) {
  const Picture picture = picture_of(160, 160);
  for (const std::string& file : {jpeg_of(picture), png_of(picture)}) {
    const Picture whole = decoded_whole(file);
    const Picture part =
        decoded_whole(file.substr(0, file.size() * 3 / 4), 3, {.damage = Damage::kAccept});
    const auto rows = static_cast<std::ptrdiff_t>(160 * 3 * 80);
    EXPECT_TRUE(std::equal(part.bytes.begin(), part.bytes.begin() + rows, whole.bytes.begin()));
    EXPECT_NE(part.bytes, whole.bytes);
  }
}

TEST(Damage, SuperfluousBytesDoNotMatter) {
  const Picture picture = picture_of(40, 40);
  for (const JpegForm& form : {JpegForm{}, JpegForm{.progressive = true}}) {
    const std::string file = jpeg_of(picture, form);
    const Picture whole = decoded_whole(file);
    std::string before_end = file;
    before_end.insert(file.size() - 2, "xyz");
    std::string in_head = file;
    in_head.insert(file.find("\xff\xdb"), "xyz");
    for (const std::string& longer : {file + "behind the end", before_end, in_head})
      EXPECT_EQ(apart(decoded_whole(longer), whole), 0);
  }
  EXPECT_EQ(apart(decoded_whole(png_of(picture) + "behind the end"), picture), 0);
}

TEST(Damage, NoMarkerBeforeTheHeadHidesAnotherHeadBehindThePicture) {
  // 0xFF 0x00 is no marker, though what follows could be the length of its segment: all of a
  // picture, behind which there is a frame header of another size.
  const Picture picture = picture_of(16, 16);
  std::string file = jpeg_of(picture);
  const Picture whole = decoded_whole(file);
  const std::size_t length = file.size();  // with the two bytes that tell it, but without SOI
  const char segment[] = {'\xff', '\0', static_cast<char>(length >> 8), static_cast<char>(length)};
  file.insert(2, segment, sizeof segment);
  const std::size_t frame = file.find("\xff\xc0");
  std::string larger = file.substr(frame, 19);
  larger.replace(5, 4, std::string("\0\x40\0\x40", 4));
  file += larger;
  EXPECT_EQ(image_size(bytes_of(file)).width, 16);
  EXPECT_EQ(apart(decoded_whole(file), whole), 0);
}

TEST(Damage, FlippedBytesNeverCrash) {
  const Picture picture = picture_of(40, 33);
  const std::string files[] = {
      jpeg_of(picture, {.app1 = exif_app1(6)}),
      jpeg_of(picture, {.progressive = true}),
      jpeg_of(picture, {.arithmetic = true}),
      jpeg_of(picture_of(40, 33, 4), {.ycck = true}),
      png_of(picture, {.exif = tiff_of(5)}),
      png_of(picture_of(40, 33, 1), {.bits = 4, .interlaced = true, .palette = true})};
  ImageDecoder decoder({.max_pixels = 1'000'000});
  ImageDecoder lenient({.damage = Damage::kAccept, .max_pixels = 1'000'000});
  const ImageSpec spec{.height = 16, .width = 16, .fit = Fit::kRandomResizedCrop};
  std::vector<std::byte> out(output_bytes(spec));
  Pixels pixels;
  for (const std::string& file : files) {
    int refused = 0;
    for (std::uint64_t i = 0; i < 1500; ++i) {
      std::string bent = file;
      const std::uint64_t draw = key_of({i});
      bent[draw % (i % 2 == 0 ? std::min<std::size_t>(700, bent.size()) : bent.size())] ^=
          static_cast<char>(draw >> 40 | 1);
      refused += outcome(decoder, bent, pixels) != "whole";
      outcome(lenient, bent, pixels);
      try {
        lenient.decode(bytes_of(bent), spec, i, out);
      } catch (const Error&) {
      }
    }
    EXPECT_GT(refused, 100);
    ASSERT_EQ(outcome(decoder, file, pixels), "whole");
  }
}

TEST(Damage, AFileWithoutItsTablesIsNotDecodedByThoseOfTheFileBefore) {
  const std::string file = jpeg_of(picture_of(32, 32));
  const std::size_t table = file.find("\xff\xdb");
  std::string without = file;
  while (without.find("\xff\xdb") < without.find("\xff\xc0")) {
    const std::size_t at = without.find("\xff\xdb");
    const auto length = static_cast<std::size_t>(static_cast<unsigned char>(without[at + 2]) * 256 +
                                                 static_cast<unsigned char>(without[at + 3]));
    without.erase(at, length + 2);
  }
  ASSERT_NE(table, std::string::npos);
  ImageDecoder decoder;
  Pixels pixels;
  decoder.decode_whole(bytes_of(file), 3, pixels);
  EXPECT_THAT(refusal(Code::kCorrupt, [&] { decoder.decode_whole(bytes_of(without), 3, pixels); }),
              StartsWith("a damaged JPEG"));
}

// ---- refusals

TEST(Refusals, WhatIsNoPictureIsNamed) {
  EXPECT_THAT(refusal_of_file(Code::kUnsupported, ""), HasSubstr("an empty file"));
  EXPECT_THAT(refusal_of_file(Code::kUnsupported, "GIF89a"), HasSubstr("a GIF"));
  EXPECT_THAT(refusal_of_file(Code::kUnsupported, "hello"), HasSubstr("neither JPEG nor PNG"));
  EXPECT_THAT(refusal_of_file(Code::kUnsupported, std::string_view("RIFF\1\1\1\1WEBPVP8 ")),
              HasSubstr("a WebP"));
}

TEST(Refusals, BombsAreRefusedBeforeMemoryIsTaken) {
  // 65,500 x 65,500 pixels in a few hundred bytes; the pixel limit first, then what cannot be.
  std::string jpeg = jpeg_of(picture_of(16, 16), {.progressive = true});
  const std::size_t frame = jpeg.find("\xff\xc2");
  for (const std::size_t at : {frame + 5, frame + 7}) jpeg.replace(at, 2, "\xff\xdc");
  EXPECT_THAT(refusal_of_file(Code::kUnsupported, jpeg), HasSubstr("raise max_pixels"));
  EXPECT_THAT(refusal_of_file(Code::kCorrupt, jpeg, {.max_pixels = std::int64_t{1} << 40}),
              HasSubstr("65500 x 65500 pixels take more"));
  std::string png = png_of(picture_of(16, 16));
  png.replace(16, 8, std::string("\0\x0f\0\0\0\x0f\0\0", 8));
  EXPECT_THAT(refusal_of_file(Code::kUnsupported, png), HasSubstr("raise max_pixels"));
  EXPECT_THAT(refusal_of_file(Code::kCorrupt, png, {.max_pixels = std::int64_t{1} << 62}),
              HasSubstr("pixels take more"));
  png.replace(16, 8, std::string("\0\x2f\0\0\0\0\0\1", 8));
  EXPECT_THAT(refusal_of_file(Code::kUnsupported, png), HasSubstr("a side"));
}

TEST(Refusals, AProgressiveFileOfThousandsOfScans) {
  std::string file = jpeg_of(picture_of(16, 16, 1), {.progressive = true});
  const std::size_t scan = file.find("\xff\xda");
  const std::size_t next = file.find("\xff\xc4", scan);
  const std::string first = file.substr(scan, next - scan);
  std::string many = file.substr(0, next);
  for (int i = 0; i < 2000; ++i) many += first;
  many += "\xff\xd9";
  EXPECT_THAT(refusal_of_file(Code::kUnsupported, many, {.damage = Damage::kAccept}),
              HasSubstr("500 scans"));
}

TEST(Refusals, SpecsAndSpansThatCannotBe) {
  const std::string file = png_of(picture_of(8, 8));
  ImageDecoder decoder;
  std::vector<std::byte> out(8 * 8 * 3 - 1);
  EXPECT_THAT(refusal(Code::kInvalid,
                      [&] { decoder.decode(bytes_of(file), {.height = 8, .width = 8}, 0, out); }),
              HasSubstr("takes 192 bytes, not 191"));
  const std::pair<ImageSpec, const char*> bad[] = {
      {{.height = 0}, "1 to 65536"},
      {{.width = -1}, "1 to 65536"},
      {{.width = 65'537}, "1 to 65536"},
      {{.channels = 2}, "3 is RGB"},
      {{.flip = 1.5}, "a probability"},
      {{.flip = std::nan("")}, "a probability"},
      {{.fit = Fit::kCenterCrop, .resize = 200}, "at least 224"},
      {{.fit = Fit::kRandomResizedCrop, .scale = {0.5, 0.4}}, "rise from above 0"},
      {{.fit = Fit::kRandomResizedCrop, .scale = {0, 1}}, "rise from above 0"},
      {{.fit = Fit::kRandomResizedCrop, .scale = {0.5, std::nan("")}}, "rise from above 0"},
      {{.fit = Fit::kRandomResizedCrop, .ratio = {2, 1}}, "1e-6 to 1e6"},
      {{.fit = Fit::kRandomResizedCrop, .ratio = {-1, 1}}, "1e-6 to 1e6"}};
  for (const auto& [spec, words] : bad)
    EXPECT_THAT(refusal(Code::kInvalid, [&, &s = spec] { output_bytes(s); }), HasSubstr(words));
}

}  // namespace
}  // namespace bedplate::data
