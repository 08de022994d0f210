#include "data/decode/test_pictures.h"

// jpeglib.h needs what stands before it.
// clang-format off
#include <stdio.h>
#include <jpeglib.h>
// clang-format on
#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

namespace bedplate::data {

Picture picture_of(int width, int height, int channels) {
  Picture picture{width, height, channels, {}};
  picture.bytes.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) *
                       static_cast<std::size_t>(channels));
  std::minstd_rand noise(7);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double wave = 60 * std::sin(x * 0.11 + c) + 50 * std::cos(y * 0.07 + 2 * c);
        const int edge = (x / 23 + y / 17 + c) % 3 == 0 ? 40 : 0;
        const int value = static_cast<int>(128 + wave) - edge + static_cast<int>(noise() % 9);
        picture.at(x, y, c) = static_cast<std::uint8_t>(std::clamp(value, 0, 255));
      }
    }
  }
  return picture;
}

Picture quarters(int width, int height) {
  static constexpr std::uint8_t kColours[4][3] = {
      {200, 40, 40}, {40, 200, 40}, {40, 40, 200}, {200, 200, 40}};
  Picture picture{width, height, 3, {}};
  picture.bytes.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < 3; ++c)
        picture.at(x, y, c) = kColours[(y >= height / 2) * 2 + (x >= width / 2)][c];
  return picture;
}

std::string jpeg_of(const Picture& picture, const JpegForm& form) {
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(picture.width);
  info.image_height = static_cast<JDIMENSION>(picture.height);
  info.input_components = picture.channels;
  info.in_color_space = picture.channels == 1   ? JCS_GRAYSCALE
                        : picture.channels == 3 ? JCS_RGB
                                                : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (form.rgb) jpeg_set_colorspace(&info, JCS_RGB);
  if (form.ycck) jpeg_set_colorspace(&info, JCS_YCCK);
  info.write_Adobe_marker = form.adobe || form.rgb || form.ycck ? TRUE : FALSE;
  jpeg_set_quality(&info, form.quality, TRUE);
  if (picture.channels == 3 && !form.rgb) {
    info.comp_info[0].h_samp_factor = form.horizontal;
    info.comp_info[0].v_samp_factor = form.vertical;
  }
  info.arith_code = form.arithmetic ? TRUE : FALSE;
  info.restart_in_rows = form.restart_rows;
  if (form.progressive) jpeg_simple_progression(&info);
  static constexpr jpeg_scan_info kScans[] = {{1, {0, 0, 0, 0}, 0, 63, 0, 0},
                                              {1, {1, 0, 0, 0}, 0, 63, 0, 0},
                                              {1, {2, 0, 0, 0}, 0, 63, 0, 0}};
  if (form.scans) {
    info.scan_info = kScans;
    info.num_scans = picture.channels;
  }
  jpeg_start_compress(&info, TRUE);
  if (!form.app1.empty())
    jpeg_write_marker(&info, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(form.app1.data()),
                      static_cast<unsigned>(form.app1.size()));
  const auto stride = static_cast<std::size_t>(picture.width * picture.channels);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPLE*>(&picture.bytes[info.next_scanline * stride]);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  std::free(bytes);
  return file;
}

std::string png_of(const Picture& picture, const PngForm& form) {
  std::string file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp writer, png_bytep bytes, std::size_t count) {
        static_cast<std::string*>(png_get_io_ptr(writer))
            ->append(reinterpret_cast<const char*>(bytes), count);
      },
      [](png_structp) {});
  static constexpr int kColours[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                     PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
  png_set_IHDR(png, info, static_cast<png_uint_32>(picture.width),
               static_cast<png_uint_32>(picture.height), form.bits,
               form.palette ? PNG_COLOR_TYPE_PALETTE : kColours[picture.channels],
               form.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette(std::size_t{1} << std::min(form.bits, 8));
  for (std::size_t i = 0; i < palette.size(); ++i) {
    const auto level = static_cast<png_byte>(255 - i * 255 / (palette.size() - 1));
    palette[i] = {level, static_cast<png_byte>(level / 2), 7};
  }
  if (form.palette) png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  png_set_compression_buffer_size(png, 256);  // many IDAT chunks
  png_write_info(png, info);
  // Written behind the header and the palette, before the picture.
  const auto chunk = [&](const char* type, const std::string& content) {
    if (content.empty()) return;
    png_write_chunk(png, reinterpret_cast<png_const_bytep>(type),
                    reinterpret_cast<png_const_bytep>(content.data()), content.size());
  };
  chunk("tRNS", form.trns);
  chunk("eXIf", form.exif);
  const std::size_t samples = static_cast<std::size_t>(picture.width * picture.channels);
  std::vector<std::vector<std::uint8_t>> rows;
  for (int y = 0; y < picture.height; ++y) {
    rows.emplace_back();
    const std::uint8_t* const from = &picture.bytes[static_cast<std::size_t>(y) * samples];
    if (form.bits == 16) {
      for (std::size_t i = 0; i < samples; ++i) {
        rows.back().push_back(from[i]);
        rows.back().push_back(static_cast<std::uint8_t>(i * 37));
      }
    } else if (form.bits == 8) {
      rows.back().assign(from, from + samples);
    } else {
      // The highest bits of each byte, packed.
      const std::size_t each = 8 / static_cast<std::size_t>(form.bits);
      rows.back().resize((samples + each - 1) / each);
      for (std::size_t i = 0; i < samples; ++i)
        rows.back()[i / each] = static_cast<std::uint8_t>(
            rows.back()[i / each] | (from[i] >> (8 - form.bits))
                                        << (8 - form.bits * static_cast<int>(i % each + 1)));
    }
  }
  std::vector<png_bytep> pointers;
  for (auto& row : rows) pointers.push_back(row.data());
  png_write_image(png, pointers.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return file;
}

std::string tiff_of(int orientation, std::string_view order) {
  std::string tiff(order);
  const auto number = [&](std::uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i)
      tiff.push_back(static_cast<char>(value >> 8 * (order == "MM" ? bytes - 1 - i : i)));
  };
  number(42, 2);
  number(8, 4);                                                 // the directory
  number(2, 2);                                                 // entries
  number(0x010f, 2), number(2, 2), number(4, 4), number(0, 4);  // a maker
  number(0x0112, 2), number(3, 2), number(1, 4);
  number(static_cast<std::uint32_t>(orientation), 2), number(0, 2);
  number(0, 4);
  return tiff;
}

}  // namespace bedplate::data
