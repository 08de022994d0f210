// Pictures decoded: every kind of file, and where they lie in the output.
#include "data/decode/image.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "data/decode/test_decode.h"

namespace bedplate::data {
namespace {

using ::testing::HasSubstr;

Picture grey_of(const Picture& rgb) {
  Picture grey{rgb.width, rgb.height, 1, {}};
  for (std::size_t i = 0; i < rgb.bytes.size(); i += 3)
    grey.bytes.push_back(static_cast<std::uint8_t>(
        std::lround(rgb.bytes[i] * 0.299 + rgb.bytes[i + 1] * 0.587 + rgb.bytes[i + 2] * 0.114)));
  return grey;
}

// ---- kinds of JPEG

TEST(Jpeg, AllKindsComeOutAsTheyWentIn) {
  const Picture picture = picture_of(101, 67);
  const struct {
    const char* name;
    JpegForm form;
  } kForms[] = {
      {"4:4:4", {.quality = 98, .horizontal = 1, .vertical = 1}},
      {"RGB", {.quality = 98, .rgb = true}},
      {"progressive", {.quality = 98, .horizontal = 1, .vertical = 1, .progressive = true}},
      {"arithmetic", {.quality = 98, .horizontal = 1, .vertical = 1, .arithmetic = true}},
      {"a scan each", {.quality = 98, .horizontal = 1, .vertical = 1, .scans = true}},
      {"restarts", {.quality = 98, .horizontal = 1, .vertical = 1, .restart_rows = 1}}};
  for (const auto& [name, form] : kForms) {
    SCOPED_TRACE(name);
    const std::string file = jpeg_of(picture, form);
    EXPECT_LE(apart(decoded_whole(file), picture), 12);
    EXPECT_LT(mean_apart(decoded_whole(file), picture), 1.5);
    EXPECT_LT(mean_apart(decoded_whole(file, 1), grey_of(picture)), 1.5);
  }
}

TEST(Jpeg, GreyIsRepeatedInAllChannels) {
  const Picture grey = picture_of(50, 40, 1);
  const std::string file = jpeg_of(grey, {.quality = 98});
  const Picture rgb = decoded_whole(file);
  EXPECT_LT(mean_apart(decoded_whole(file, 1), grey), 1.5);
  for (std::size_t i = 0; i < rgb.bytes.size(); i += 3) {
    ASSERT_EQ(rgb.bytes[i], rgb.bytes[i + 1]);
    ASSERT_EQ(rgb.bytes[i], rgb.bytes[i + 2]);
  }
}

TEST(Jpeg, CmykAndYcckBecomeRgbWhetherInvertedOrNot) {
  Picture cmyk = picture_of(48, 48, 4);
  Picture rgb{48, 48, 3, {}};
  for (std::size_t i = 0; i < cmyk.bytes.size(); i += 4)
    for (std::size_t c = 0; c < 3; ++c)
      rgb.bytes.push_back(static_cast<std::uint8_t>(
          std::lround((255 - cmyk.bytes[i + c]) * (255 - cmyk.bytes[i + 3]) / 255.0)));
  Picture inverted = cmyk;
  for (std::uint8_t& byte : inverted.bytes) byte = static_cast<std::uint8_t>(255 - byte);
  const std::string plain = jpeg_of(cmyk, {.quality = 98});
  EXPECT_LT(mean_apart(decoded_whole(plain), rgb), 1.5);
  EXPECT_LT(mean_apart(decoded_whole(jpeg_of(inverted, {.quality = 98, .adobe = true})), rgb), 1.5);
  EXPECT_LT(mean_apart(decoded_whole(jpeg_of(inverted, {.quality = 98, .ycck = true})), rgb), 2);
  EXPECT_LT(mean_apart(decoded_whole(plain, 1), grey_of(rgb)), 1.5);
  EXPECT_EQ(image_size(bytes_of(plain)).channels, 4);
}

TEST(Jpeg, ThatCannotBeDecodedIsUnsupportedNotCorrupt) {
  std::string file = jpeg_of(picture_of(16, 16), {.horizontal = 1, .vertical = 1});
  const std::size_t frame = file.find("\xff\xc0");
  std::string differential = file;
  differential[frame + 1] = '\xc5';
  EXPECT_THAT(refusal_of_file(Code::kUnsupported, differential), HasSubstr("cannot be decoded"));
  std::string deep = file;
  deep[frame + 4] = 12;
  EXPECT_THAT(refusal_of_file(Code::kUnsupported, deep), HasSubstr("cannot be decoded"));
  std::string later = file;
  later[frame + 5] = later[frame + 6] = 0;
  EXPECT_THAT(refusal_of_file(Code::kUnsupported, later), HasSubstr("DNL"));
}

// ---- kinds of PNG

TEST(Png, AllKindsComeOutExactly) {
  for (const bool interlaced : {false, true}) {
    SCOPED_TRACE(interlaced);
    const Picture rgb = picture_of(61, 43);
    EXPECT_EQ(apart(decoded_whole(png_of(rgb, {.interlaced = interlaced})), rgb), 0);
    EXPECT_LE(apart(decoded_whole(png_of(rgb, {.interlaced = interlaced}), 1), grey_of(rgb)), 1);
    const Picture grey = picture_of(61, 43, 1);
    EXPECT_EQ(apart(decoded_whole(png_of(grey, {.interlaced = interlaced}), 1), grey), 0);
    for (const int bits : {1, 2, 4, 8}) {
      SCOPED_TRACE(bits);
      const int levels = (1 << bits) - 1;
      Picture expected = grey;
      for (std::uint8_t& byte : expected.bytes)
        byte = static_cast<std::uint8_t>((byte >> (8 - bits)) * 255 / levels);
      const std::string file = png_of(grey, {.bits = bits, .interlaced = interlaced});
      EXPECT_EQ(apart(decoded_whole(file, 1), expected), 0);
      EXPECT_EQ(image_size(bytes_of(file)).bits, bits);
      const Picture palette =
          decoded_whole(png_of(grey, {.bits = bits, .interlaced = interlaced, .palette = true}));
      for (std::size_t i = 0; i < grey.bytes.size(); ++i) {
        const int level = 255 - (grey.bytes[i] >> (8 - bits)) * 255 / levels;
        ASSERT_EQ(palette.bytes[i * 3], level);
        ASSERT_EQ(palette.bytes[i * 3 + 1], level / 2);
        ASSERT_EQ(palette.bytes[i * 3 + 2], 7);
      }
    }
  }
}

TEST(Png, SixteenBitsAreRoundedToTheNearestOfEight) {
  const Picture picture = picture_of(200, 50, 1);
  const Picture got = decoded_whole(png_of(picture, {.bits = 16}), 1);
  for (int y = 0; y < 50; ++y)
    for (int x = 0; x < 200; ++x) {
      const int value = picture.at(x, y, 0) * 256 + static_cast<std::uint8_t>(x * 37);
      ASSERT_EQ(got.at(x, y, 0), std::lround(value / 257.0)) << value;
    }
}

TEST(Png, AlphaIsDroppedOrComposedOverTheBackground) {
  for (const int channels : {2, 4}) {
    const Picture picture = picture_of(40, 30, channels);
    const std::string file = png_of(picture);
    EXPECT_EQ(image_size(bytes_of(file)).channels, channels);
    const Picture dropped = decoded_whole(file);
    const ImageSpec spec{.height = 30, .width = 40, .background = {10, 250, 100}};
    const Picture over = decoded(file, spec, 0, {.alpha = Alpha::kCompose});
    for (int y = 0; y < 30; ++y)
      for (int x = 0; x < 40; ++x)
        for (int c = 0; c < 3; ++c) {
          const int colour = picture.at(x, y, channels == 2 ? 0 : c);
          const double alpha = picture.at(x, y, channels - 1) / 255.0;
          const int behind = spec.background[static_cast<std::size_t>(c)];
          ASSERT_EQ(dropped.at(x, y, c), colour);
          ASSERT_EQ(over.at(x, y, c), std::lround(colour * alpha + behind * (1 - alpha)));
        }
  }
}

TEST(Png, ATransparentColourIsAlpha) {
  Picture picture{2, 1, 3, {10, 20, 30, 10, 20, 31}};
  const std::string trns("\0\x0a\0\x14\0\x1e", 6);
  const std::string file = png_of(picture, {.trns = trns});
  EXPECT_EQ(image_size(bytes_of(file)).channels, 4);
  const ImageSpec spec{.height = 1, .width = 2, .background = {255, 255, 255}};
  EXPECT_EQ(decoded(file, spec, 0, {.alpha = Alpha::kCompose}).bytes,
            (std::vector<std::uint8_t>{255, 255, 255, 10, 20, 31}));
  EXPECT_EQ(decoded_whole(file).bytes, picture.bytes);
}

// ---- orientation

// How EXIF's table describes it: which edge of the shown picture row 0 and column 0 are.
Picture shown(const Picture& stored, int orientation) {
  const bool swap = orientation >= 5;
  Picture out{swap ? stored.height : stored.width, swap ? stored.width : stored.height, 3, {}};
  out.bytes.resize(stored.bytes.size());
  const bool right = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool bottom = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  for (int y = 0; y < stored.height; ++y)
    for (int x = 0; x < stored.width; ++x) {
      const int across = swap ? y : x;
      const int down = swap ? x : y;
      for (int c = 0; c < 3; ++c)
        out.at(right ? out.width - 1 - across : across, bottom ? out.height - 1 - down : down, c) =
            stored.at(x, y, c);
    }
  return out;
}

TEST(Orientation, EveryOneIsShownUpright) {
  const Picture picture = picture_of(37, 22);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    SCOPED_TRACE(orientation);
    for (const std::string_view order : {"II", "MM"}) {
      const std::string file = png_of(picture, {.exif = tiff_of(orientation, order)});
      EXPECT_EQ(image_size(bytes_of(file)).orientation, orientation);
      EXPECT_EQ(apart(decoded_whole(file), shown(picture, orientation)), 0);
      EXPECT_EQ(apart(decoded_whole(file, 3, {.exif = Exif::kIgnore}), picture), 0);
    }
    JpegForm form{.app1 = exif_app1(orientation)};
    const Picture upright = decoded_whole(jpeg_of(picture));
    EXPECT_EQ(apart(decoded_whole(jpeg_of(picture, form)), shown(upright, orientation)), 0);
  }
}

TEST(Orientation, CropsAreTakenFromWhatIsShown) {
  const Picture picture = picture_of(90, 64);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    SCOPED_TRACE(orientation);
    const std::string turned = png_of(picture, {.exif = tiff_of(orientation)});
    const std::string upright = png_of(shown(picture, orientation));
    for (const Fit fit : {Fit::kStretch, Fit::kCenterCrop, Fit::kRandomResizedCrop, Fit::kPad}) {
      for (const ImageLayout layout : {ImageLayout::kHwc, ImageLayout::kChw}) {
        const ImageSpec spec{.height = 31,
                             .width = 40,
                             .layout = layout,
                             .fit = fit,
                             .flip = 0.5,
                             .background = {9, 8, 7}};
        for (std::uint64_t seed = 0; seed < 6; ++seed)
          // Rows before columns, or columns before rows: roundings differ.
          ASSERT_LE(apart(decoded(turned, spec, seed), decoded(upright, spec, seed)), 1);
      }
    }
  }
}

TEST(Orientation, ADamagedExifIsNone) {
  const Picture picture = picture_of(20, 10);
  const std::string whole = tiff_of(6);
  for (std::size_t bytes = 0; bytes < whole.size() - 6; ++bytes)
    ASSERT_EQ(
        image_size(bytes_of(png_of(picture, {.exif = whole.substr(0, bytes) + "x"}))).orientation,
        1)
        << bytes;
  for (const int orientation : {0, 9, 65535})
    ASSERT_EQ(image_size(bytes_of(png_of(picture, {.exif = tiff_of(orientation)}))).orientation, 1);
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const int value : {0, 1, 127, 255}) {
      std::string bent = whole;
      bent[at] = static_cast<char>(value);
      const int orientation = image_size(bytes_of(png_of(picture, {.exif = bent}))).orientation;
      ASSERT_TRUE(orientation >= 1 && orientation <= 8);
    }
}

// ---- crops and resizing

TEST(Decode, ARegionHasThePixelsOfTheWholePicture) {
  const Picture picture = picture_of(333, 251);
  const JpegForm forms[] = {{.horizontal = 1, .vertical = 1},
                            {.horizontal = 2, .vertical = 1},
                            {.horizontal = 2, .vertical = 2},
                            {.horizontal = 1, .vertical = 2},
                            {.progressive = true},
                            {.restart_rows = 2}};
  for (const JpegForm& form : forms) {
    const std::string file = jpeg_of(picture, form);
    const std::string lossless = png_of(decoded_whole(file));
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      const ImageSpec spec{.height = 40,
                           .width = 40,
                           .fit = Fit::kRandomResizedCrop,
                           .scale = {0.002, 0.6},
                           .flip = 0.5};
      ASSERT_EQ(apart(decoded(file, spec, seed, {.shrink = Shrink::kNever}),
                      decoded(lossless, spec, seed)),
                0)
          << "sampling " << form.horizontal << " x " << form.vertical << ", seed " << seed;
    }
  }
}

TEST(Decode, AShrunkRegionHasThePixelsOfTheShrunkPicture) {
  const Picture picture = picture_of(640, 480);
  for (const JpegForm& form :
       {JpegForm{.horizontal = 1, .vertical = 1}, JpegForm{}, JpegForm{.progressive = true}}) {
    const std::string file = jpeg_of(picture, form);
    // A centre crop of the shrunk picture at its own size is a part of the stretched whole.
    for (const int shrink : {2, 4, 8}) {
      const int width = 640 / shrink;
      const int height = 480 / shrink;
      const Picture whole = decoded(file, {.height = height, .width = width});
      const Picture part =
          decoded(file, {.height = 24, .width = 32, .fit = Fit::kCenterCrop, .resize = height});
      for (int y = 0; y < 24; ++y)
        for (int x = 0; x < 32; ++x)
          for (int c = 0; c < 3; ++c)
            ASSERT_EQ(part.at(x, y, c), whole.at(x + (width - 32) / 2, y + (height - 24) / 2, c));
    }
  }
}

TEST(Decode, ShrinkingInTheTransformIsCloseToResizing) {
  const Picture picture = picture_of(1000, 800);
  const std::string file = jpeg_of(picture);
  for (const int side : {60, 99, 224, 390}) {
    const ImageSpec spec{.height = side, .width = side};
    EXPECT_LT(mean_apart(decoded(file, spec), decoded(file, spec, 0, {.shrink = Shrink::kNever})),
              4.0)
        << side;
  }
}

TEST(Decode, LayoutsHoldTheSamePixels) {
  const std::string file = png_of(picture_of(70, 50));
  for (const Fit fit : {Fit::kStretch, Fit::kPad}) {
    ImageSpec spec{.height = 45, .width = 37, .fit = fit, .background = {1, 2, 3}};
    const Picture rows = decoded(file, spec);
    spec.layout = ImageLayout::kChw;
    const Picture planes = decoded(file, spec);
    for (int y = 0; y < 45; ++y)
      for (int x = 0; x < 37; ++x)
        for (int c = 0; c < 3; ++c)
          ASSERT_EQ(rows.at(x, y, c),
                    planes.bytes[static_cast<std::size_t>((c * 45 + y) * 37 + x)]);
  }
}

TEST(Decode, PaddingKeepsProportions) {
  const Picture picture = quarters(200, 100);
  const Picture got = decoded(
      png_of(picture), {.height = 60, .width = 60, .fit = Fit::kPad, .background = {11, 22, 33}});
  for (int y = 0; y < 60; ++y) {
    const bool inside = y >= 15 && y < 45;
    const std::vector<int> pixel = {got.at(3, y, 0), got.at(3, y, 1), got.at(3, y, 2)};
    if (!inside) {
      ASSERT_EQ(pixel, (std::vector<int>{11, 22, 33})) << y;
    } else if (y != 29 && y != 30) {
      ASSERT_EQ(pixel, (y < 30 ? std::vector<int>{200, 40, 40} : std::vector<int>{40, 40, 200}))
          << y;
    }
  }
}

TEST(Decode, CentreCropsAreWhatTheyAreAfterResizing) {
  const std::string file = png_of(picture_of(150, 100));
  const Picture resized = decoded(file, {.height = 64, .width = 96});
  const Picture crop =
      decoded(file, {.height = 48, .width = 48, .fit = Fit::kCenterCrop, .resize = 64});
  for (int y = 0; y < 48; ++y)
    for (int x = 0; x < 48; ++x)
      for (int c = 0; c < 3; ++c) ASSERT_NEAR(crop.at(x, y, c), resized.at(x + 24, y + 8, c), 1);
}

TEST(Decode, FlipMirrorsThatShareOfPictures) {
  const std::string file = png_of(quarters(20, 20));
  int mirrored = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed)
    mirrored += decoded(file, {.height = 4, .width = 4, .flip = 0.3}, seed).at(0, 0, 1) == 200;
  EXPECT_NEAR(mirrored, 300, 60);
  EXPECT_EQ(decoded(file, {.height = 4, .width = 4, .flip = 1}).at(0, 0, 1), 200);
}

TEST(Decode, EqualSeedsGiveEqualBytesInAnyDecoder) {
  const std::string jpeg = jpeg_of(picture_of(300, 200));
  const std::string png = png_of(picture_of(100, 150));
  const ImageSpec spec{.height = 64, .width = 64, .fit = Fit::kRandomResizedCrop, .flip = 0.5};
  ImageDecoder used;
  std::vector<std::byte> out(output_bytes(spec));
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const std::string& file = seed % 3 == 0 ? png : jpeg;
    used.decode(bytes_of(file), spec, seed, out);
    const Picture fresh = decoded(file, spec, seed);
    ASSERT_EQ(std::memcmp(out.data(), fresh.bytes.data(), out.size()), 0);
  }
}

TEST(Decode, TinyAndLongPictures) {
  const Picture dot{1, 1, 3, {50, 100, 150}};
  for (const Fit fit : {Fit::kStretch, Fit::kCenterCrop, Fit::kRandomResizedCrop, Fit::kPad}) {
    const Picture big = decoded(png_of(dot), {.height = 33, .width = 33, .fit = fit});
    EXPECT_EQ(big.at(16, 16, 0), 50);
    EXPECT_EQ(big.at(16, 16, 2), 150);
    EXPECT_EQ(decoded(jpeg_of(picture_of(65500, 1, 1)), {.height = 8, .width = 8, .fit = fit})
                  .bytes.size(),
              192U);
    EXPECT_EQ(decoded(jpeg_of(picture_of(1, 65500, 1)), {.height = 8, .width = 8, .fit = fit})
                  .bytes.size(),
              192U);
    EXPECT_EQ(decoded(png_of(picture_of(100'000, 2, 1)), {.height = 3, .width = 5, .fit = fit})
                  .bytes.size(),
              45U);
  }
  EXPECT_EQ(decoded(png_of(picture_of(500, 400)), {.height = 1, .width = 1}).bytes.size(), 3U);
  for (int side = 1; side < 20; ++side) {
    const Picture picture = picture_of(side, 21 - side);
    EXPECT_EQ(apart(decoded_whole(png_of(picture)), picture), 0);
    EXPECT_LT(
        mean_apart(decoded_whole(jpeg_of(picture, {.quality = 99, .horizontal = 1, .vertical = 1})),
                   picture),
        2);
  }
}

TEST(Threads, EachWithItsOwnDecoder) {
  const std::string jpeg = jpeg_of(picture_of(200, 150));
  const std::string damaged = jpeg.substr(0, jpeg.size() / 2);
  const ImageSpec spec{.height = 32, .width = 32, .fit = Fit::kRandomResizedCrop};
  std::vector<std::byte> slab(2 * 100 * output_bytes(spec));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      ImageDecoder decoder;
      for (std::size_t i = 0; i < 100; ++i) {
        const auto place =
            std::span(slab).subspan((i * 2 + t) * output_bytes(spec), output_bytes(spec));
        EXPECT_THROW(decoder.decode(bytes_of(damaged), spec, i, place), Error);
        decoder.decode(bytes_of(jpeg), spec, i, place);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < 100; ++i) {
    const Picture expected = decoded(jpeg, spec, i);
    for (std::size_t t = 0; t < 2; ++t)
      ASSERT_EQ(std::memcmp(&slab[(i * 2 + t) * output_bytes(spec)], expected.bytes.data(),
                            expected.bytes.size()),
                0);
  }
}

}  // namespace
}  // namespace bedplate::data
