// In place of image_test.cc in a build without the libraries.
#include <gmock/gmock.h>

#include "base/error.h"
#include "data/decode/image.h"
#include "data/test_bytes.h"

namespace bedplate::data {
namespace {

using namespace std::string_view_literals;

TEST(ImageDecoder, NamesThePackagesThatAreMissing) {
  try {
    const ImageDecoder decoder;
    FAIL() << "made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("libjpeg-dev and libpng-dev"));
  }
}

TEST(ImageSize, NeedsNoLibrary) {
  const ImageSize size =
      image_size(bytes_of("\xff\xd8\xff\xc0\0\x11\x08\0\x10\0\x20\x03\1\x22\0\2\x11\1\3\x11\1"sv));
  EXPECT_EQ(size.width, 32);
  EXPECT_EQ(size.height, 16);
  EXPECT_EQ(size.channels, 3);
}

}  // namespace
}  // namespace bedplate::data
