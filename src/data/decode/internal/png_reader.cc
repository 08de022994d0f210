#include <png.h>
#include <setjmp.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/decode/internal/jump_reader.h"
#include "data/decode/internal/pixels.h"

namespace bedplate::data {
namespace {

constexpr std::size_t kSignatureBytes = 8;
constexpr std::size_t kChunkBytes = 12;  // of an empty one: length, type, checksum
constexpr int kMaxSide = 1'000'000;      // libpng's own

// Of an interlaced picture: a larger one is not worth holding on to until the next.
constexpr std::size_t kKeptBytes = 32 << 20;

class PngReader : public JumpReader {
 public:
  ~PngReader() override { PngReader::close(); }

  bool can_shrink() const override { return false; }

  Region start(int, const Region& wanted) override {
    if (interlaced_) {
      read_whole();
    } else {
      for (int y = 0; y < wanted.top; ++y) read_stored(row_.data());
    }
    next_ = wanted.top;
    return {0, wanted.top, size_.width, wanted.height};
  }

  void read_row(std::uint8_t* row) override {
    const auto pixels = static_cast<std::size_t>(size_.width);
    std::uint8_t* rgbx = wishes_.channels == 1 ? row_.data() : row;
    if (interlaced_) {
      std::memcpy(rgbx, &whole_[static_cast<std::size_t>(next_) * pixels * 4], pixels * 4);
    } else {
      read_stored(rgbx);
    }
    ++next_;
    if (wishes_.alpha == Alpha::kCompose && transparent_) compose(rgbx, pixels, wishes_.background);
    if (rgbx != row) to_grey(rgbx, pixels, row);
  }

  void close() override {
    if (png_ != nullptr) png_destroy_read_struct(&png_, &info_, nullptr);
    png_ = nullptr;
    info_ = nullptr;
    if (whole_.capacity() > kKeptBytes) whole_ = {};
  }

 private:
  [[noreturn]] void fail() override {
    broken_ = true;
    if (ended_ && !in_picture_)
      throw Error(Code::kCorrupt, "a PNG of {} bytes is cut off: its head does not end",
                  file_.size());
    if (ended_ && interlaced_)
      throw Error(Code::kCorrupt, "a PNG of {} bytes is cut off: in pass {} of 7", file_.size(),
                  pass_ + 1);
    if (ended_)
      throw Error(Code::kCorrupt, "a PNG of {} bytes is cut off: {} of {} rows are missing",
                  file_.size(), size_.height - rows_, size_.height);
    if (!in_picture_) throw Error(Code::kCorrupt, "a damaged PNG (in its head): {}", message_);
    throw Error(Code::kCorrupt, "a damaged PNG (at row {} of {}): {}", rows_, size_.height,
                message_);
  }

  void begin() override {
    check_plausible();
    at_ = 0;
    rows_ = 0;
    pass_ = 0;
    ended_ = broken_ = in_picture_ = false;
    guarded([this] {
      png_ = png_create_read_struct(
          PNG_LIBPNG_VER_STRING, this,
          [](png_structp png, png_const_charp message) {
            auto* const reader = static_cast<PngReader*>(png_get_error_ptr(png));
            const std::size_t bytes = std::min(std::strlen(message), sizeof reader->message_ - 1);
            std::memcpy(reader->message_, message, bytes);
            reader->message_[bytes] = '\0';
            longjmp(reader->jump_, 1);
          },
          [](png_structp, png_const_charp) {});
    });
    if (png_ == nullptr) throw Error(Code::kNoSpace, "no memory to decode a PNG");
    guarded([this] {
      info_ = png_create_info_struct(png_);
      if (info_ == nullptr) png_error(png_, "no memory");
      png_set_read_fn(png_, this, [](png_structp png, png_bytep into, std::size_t bytes) {
        static_cast<PngReader*>(png_get_io_ptr(png))->feed(into, bytes);
      });
      // Profiles, texts and the like are of no use here, and can be bombs.
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      if (wishes_.damage == Damage::kAccept)
        png_set_crc_action(png_, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
      png_read_info(png_, info_);
      transparent_ = (png_get_color_type(png_, info_) & PNG_COLOR_MASK_ALPHA) != 0 ||
                     png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
      interlaced_ = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
      png_set_expand(png_);
      png_set_scale_16(png_);
      png_set_gray_to_rgb(png_);
      png_set_add_alpha(png_, 0xff, PNG_FILLER_AFTER);
      passes_ = png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
      row_bytes_ = png_get_rowbytes(png_, info_);
    });
    BEDPLATE_CHECK(row_bytes_ == static_cast<std::size_t>(size_.width) * 4);
    in_picture_ = true;
    row_.resize(row_bytes_);
  }

  void feed(png_bytep into, std::size_t bytes) {
    if (file_.size() - at_ < bytes) {
      ended_ = true;
      png_error(png_, "its data end");
    }
    std::memcpy(into, file_.data() + at_, bytes);
    at_ += bytes;
  }

  // Accepted damage leaves the rest black.
  void read_stored(std::uint8_t* row) {
    if (broken_) {
      std::memset(row, 0, row_bytes_);
      return;
    }
    try {
      guarded([&] { png_read_row(png_, row, nullptr); });
      ++rows_;
    } catch (const Error&) {
      if (wishes_.damage == Damage::kRefuse) throw;
      std::memset(row, 0, row_bytes_);
    }
  }

  void read_whole() {
    const auto height = static_cast<std::size_t>(size_.height);
    whole_.assign(row_bytes_ * height, 0);
    try {
      guarded([&] {
        for (pass_ = 0; pass_ < passes_; ++pass_)
          for (std::size_t y = 0; y < height; ++y)
            png_read_row(png_, &whole_[y * row_bytes_], nullptr);
      });
    } catch (const Error&) {
      if (wishes_.damage == Damage::kRefuse) throw;
    }
  }

  // Deflate makes at most 1,032 bytes of one (zlib's technical details): what cannot be there is
  // told before memory is taken for it.
  void check_plausible() const {
    if (size_.width > kMaxSide || size_.height > kMaxSide)
      throw Error(Code::kUnsupported, "a PNG of {} x {} pixels is not read: {} are the most a side",
                  size_.width, size_.height, kMaxSide);
    const double least = static_cast<double>(size_.width) / 8 * size_.height / 1032;
    if (wishes_.damage == Damage::kRefuse && static_cast<double>(file_.size()) < least)
      throw Error(Code::kCorrupt, "a PNG of {} bytes is cut off: {} x {} pixels take more",
                  file_.size(), size_.width, size_.height);
  }

  // Whether an IEND chunk follows the others.
  bool has_end() const override {
    std::size_t at = kSignatureBytes;
    while (file_.size() - at >= kChunkBytes) {
      const std::size_t length = png_get_uint_32(reinterpret_cast<png_const_bytep>(&file_[at]));
      if (std::memcmp(&file_[at + 4], "IEND", 4) == 0) return true;
      if (length > file_.size() - at - kChunkBytes) return false;
      at += length + kChunkBytes;
    }
    return false;
  }

  void find_what_is_missing() override {
    if (interlaced_) {
      read_whole();
    } else {
      for (int y = 0; y < size_.height; ++y) read_stored(row_.data());
    }
    close();
    begin();
  }

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char message_[128] = {};
  std::vector<std::uint8_t> row_;
  std::vector<std::uint8_t> whole_;  // of interlaced ones
  std::size_t row_bytes_ = 0;
  std::size_t at_ = 0;  // in the file
  int rows_ = 0;        // read
  int next_ = 0;        // row to be handed out
  int passes_ = 1;
  int pass_ = 0;
  bool interlaced_ = false;
  bool transparent_ = false;
  bool in_picture_ = false;
  bool ended_ = false;
  bool broken_ = false;
};

}  // namespace

std::unique_ptr<RowReader> make_png_reader() { return std::make_unique<PngReader>(); }

}  // namespace bedplate::data
