// jpeglib.h needs what stands before it.
// clang-format off
#include <setjmp.h>
#include <stdio.h>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "data/decode/internal/jump_reader.h"
#include "data/decode/internal/pixels.h"

namespace bedplate::data {
namespace {

// A progressive file of a few kilobytes may have thousands of scans, each a pass over the whole
// picture. Encoders write about ten.
constexpr int kMaxScans = 500;

// Upsampling of colours looks one stored pixel sideways, and less carefully in very narrow strips.
// So much wider, and so wide at the least, a crop has the same pixels as the whole picture.
constexpr int kMarginPixels = 4;
constexpr int kLeastPixels = 64;

// Where the data of the first scan begin, at the least: behind SOI and a marker.
constexpr std::size_t kLeastHead = 4;

Code code_of(int message) {
  switch (message) {
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_NOTIMPL:
    case JERR_SOF_UNSUPPORTED:
      return Code::kUnsupported;
    case JERR_OUT_OF_MEMORY:
      return Code::kNoSpace;
    default:
      return Code::kCorrupt;
  }
}

// Warnings that say nothing of the pixels: odd versions and parameters, and bytes between segments,
// which every decoder skips.
bool is_harmless(int message) {
  return message == JWRN_EXTRANEOUS_DATA || message == JWRN_ADOBE_XFORM ||
         message == JWRN_JFIF_MAJOR || message == JWRN_NOT_SEQUENTIAL;
}

class JpegReader : public JumpReader {
 public:
  ~JpegReader() override { JpegReader::close(); }

  bool can_shrink() const override { return true; }

  Region start(int shrink, const Region& wanted) override {
    choose_colours();
    guarded([&] {
      info_.scale_num = 1;
      info_.scale_denom = static_cast<unsigned>(shrink);
      info_.dct_method = JDCT_ISLOW;
      info_.do_fancy_upsampling = TRUE;
      info_.do_block_smoothing = FALSE;  // guesses what missing scans would have brought
      jpeg_start_decompress(&info_);
    });
    check_whole();
    const auto width = static_cast<int>(info_.output_width);
    const int margin = std::max(kMarginPixels, (kLeastPixels - wanted.width) / 2);
    const int left = std::max(0, wanted.left - margin);
    const int right = std::min(width, wanted.left + wanted.width + margin);
    auto first = static_cast<JDIMENSION>(left);
    auto columns = static_cast<JDIMENSION>(right - left);
    guarded([&] {
      if (right - left < width) jpeg_crop_scanline(&info_, &first, &columns);
      if (wanted.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(wanted.top));
    });
    columns_ = columns;
    if (four_ && wishes_.channels == 1) row_.resize(std::size_t{columns_} * 4);
    return {static_cast<int>(first), wanted.top, static_cast<int>(columns_), wanted.height};
  }

  void read_row(std::uint8_t* row) override {
    std::uint8_t* into = four_ && wishes_.channels == 1 ? row_.data() : row;
    guarded([&] { jpeg_read_scanlines(&info_, &into, 1); });
    if (!four_) return;
    if (!info_.saw_Adobe_marker)
      for (std::size_t i = 0; i < std::size_t{columns_} * 4; ++i)
        into[i] = static_cast<std::uint8_t>(255 - into[i]);
    inverted_cmyk_to_rgbx(into, columns_);
    if (into != row) to_grey(into, columns_, row);
  }

  void close() override {
    if (created_) jpeg_destroy_decompress(&info_);
    created_ = false;
  }

 private:
  [[noreturn]] void fail() override {
    const Code code = code_of(errors_.msg_code);
    if (ended_ && code == Code::kCorrupt) throw cut_off();
    if (code == Code::kCorrupt) throw Error(code, "a damaged JPEG{}: {}", where(), message_);
    throw Error(code, "a JPEG that cannot be decoded: {}", message_);
  }

  // Rows that all data were there for, in the scan that is being read.
  int whole_rows() const {
    const auto rows =
        info_.input_iMCU_row * static_cast<unsigned>(info_.max_v_samp_factor) * DCTSIZE;
    return std::min(static_cast<int>(rows), size_.height);
  }
  std::string where() const {
    if (info_.global_state <= kInHead) return " (in its head)";
    return fmt::format(" (at row {} of {})", whole_rows(), size_.height);
  }
  Error cut_off() const {
    if (info_.global_state <= kInHead)
      return {Code::kCorrupt, "a JPEG of {} bytes is cut off: its head does not end", file_.size()};
    const int rows = whole_rows();
    if (several_scans_)
      return {
          Code::kCorrupt,
          "a JPEG of {} bytes is cut off: in scan {}, from row {} of {} on, and all later scans",
          file_.size(),
          info_.input_scan_number,
          rows,
          size_.height};
    return {Code::kCorrupt, "a JPEG of {} bytes is cut off: {} of {} rows are missing",
            file_.size(), size_.height - rows, size_.height};
  }

  // A new object a picture: one that is used again would decode a file without tables by those of
  // the file before.
  void begin() override {
    ended_ = false;
    several_scans_ = false;
    set_up();
    guarded([this] {
      jpeg_create_decompress(&info_);
      created_ = true;
      info_.src = &source_;
      info_.progress = &progress_;
      jpeg_read_header(&info_, TRUE);
      several_scans_ = jpeg_has_multiple_scans(&info_) != FALSE;
    });
    // What is planned stands on size_: a head that is not read alike must not be decoded.
    if (static_cast<int>(info_.image_width) != size_.width ||
        static_cast<int>(info_.image_height) != size_.height)
      throw Error(Code::kCorrupt, "a damaged JPEG (in its head): {} x {} pixels or {} x {}",
                  size_.width, size_.height, info_.image_width, info_.image_height);
    check_plausible();
  }

  void set_up() {
    info_ = {};
    errors_ = {};
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = [](j_common_ptr info) {
      auto* const reader = static_cast<JpegReader*>(info->client_data);
      info->err->format_message(info, reader->message_);
      longjmp(reader->jump_, 1);
    };
    errors_.emit_message = [](j_common_ptr info, int level) {
      auto* const reader = static_cast<JpegReader*>(info->client_data);
      if (level >= 0 || reader->wishes_.damage == Damage::kAccept ||
          is_harmless(info->err->msg_code))
        return;
      info->err->error_exit(info);
    };
    errors_.output_message = [](j_common_ptr) {};
    source_ = {};
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(file_.data());
    source_.bytes_in_buffer = file_.size();
    source_.init_source = [](j_decompress_ptr) {};
    source_.term_source = [](j_decompress_ptr) {};
    source_.resync_to_restart = jpeg_resync_to_restart;
    // Huffman decoding looks ahead: an end that is not the picture's is not yet an error. Whether
    // data were missing is told by a warning, and by check_whole().
    source_.fill_input_buffer = [](j_decompress_ptr info) -> boolean {
      static constexpr JOCTET kEnd[] = {0xff, JPEG_EOI};
      static_cast<JpegReader*>(info->client_data)->ended_ = true;
      info->src->next_input_byte = kEnd;
      info->src->bytes_in_buffer = sizeof kEnd;
      return TRUE;
    };
    source_.skip_input_data = [](j_decompress_ptr info, long bytes) {
      if (bytes <= 0) return;
      const std::size_t skipped =
          std::min(static_cast<std::size_t>(bytes), info->src->bytes_in_buffer);
      info->src->next_input_byte += skipped;
      info->src->bytes_in_buffer -= skipped;
    };
    progress_ = {};
    progress_.progress_monitor = [](j_common_ptr info) {
      auto* const reader = static_cast<JpegReader*>(info->client_data);
      if (reader->info_.input_scan_number <= kMaxScans) return;
      info->err->msg_code = JERR_NOTIMPL;
      fmt::format_to_n(reader->message_, JMSG_LENGTH_MAX - 1, "it has more than {} scans{}",
                       kMaxScans, '\0');
      longjmp(reader->jump_, 1);
    };
  }

  // Each block of 8 x 8 pixels takes a bit at the least (not so in arithmetic coding), and the
  // oddest sampling has more than one block in the space of four: what cannot be there is told
  // before memory is taken for it.
  void check_plausible() const {
    const std::int64_t pixels = std::int64_t{size_.width} * size_.height;
    const auto bits = static_cast<std::int64_t>(file_.size()) * 8;
    if (wishes_.damage == Damage::kRefuse && !info_.arith_code && pixels / (4 * DCTSIZE2) > bits)
      throw Error(Code::kCorrupt, "a JPEG of {} bytes is cut off: {} x {} pixels take more",
                  file_.size(), size_.width, size_.height);
  }

  // Whether an end-of-image marker lies behind the head. Entropy-coded data cannot contain one, and
  // it is at the very end of most files.
  bool has_end() const override {
    const auto head = std::max(kLeastHead, file_.size() - source_.bytes_in_buffer);
    for (std::size_t at = file_.size(); at >= head + 2; --at)
      if (file_[at - 2] == std::byte{0xff} && file_[at - 1] == std::byte{JPEG_EOI}) return true;
    return false;
  }

  void find_what_is_missing() override {
    // Its coder takes zeros for data that are not there, as the standard has it.
    if (info_.arith_code)
      throw Error(Code::kCorrupt, "a JPEG of {} bytes is cut off: its end is missing",
                  file_.size());
    choose_colours();
    guarded([this] {
      info_.scale_num = 1;
      info_.scale_denom = 8;
      jpeg_start_decompress(&info_);
    });
    check_whole();
    row_.resize(std::size_t{info_.output_width} * 4);
    JSAMPROW into = row_.data();
    guarded([&] {
      while (info_.output_scanline < info_.output_height) jpeg_read_scanlines(&info_, &into, 1);
    });
    close();
    begin();
  }

  // A file of several scans that ends between two of them looks like one that has fewer.
  void check_whole() const {
    if (wishes_.damage == Damage::kAccept || !ended_ || !several_scans_) return;
    if (info_.coef_bits == nullptr) throw cut_off();
    for (int c = 0; c < info_.num_components; ++c)
      for (const int missing_bits : info_.coef_bits[c])
        if (missing_bits != 0) throw cut_off();
  }

  void choose_colours() {
    four_ = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    if (info_.jpeg_color_space == JCS_UNKNOWN)
      throw Error(Code::kUnsupported, "a JPEG of {} channels without known colours is not read",
                  info_.num_components);
    info_.out_color_space = four_ ? JCS_CMYK : wishes_.channels == 1 ? JCS_GRAYSCALE : JCS_EXT_RGBX;
  }

  // Of jpeg_decompress_struct::global_state: DSTATE_READY, the last one before decoding begins.
  static constexpr int kInHead = 202;

  jpeg_decompress_struct info_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_source_mgr source_ = {};
  jpeg_progress_mgr progress_ = {};
  char message_[JMSG_LENGTH_MAX] = {};
  std::vector<std::uint8_t> row_;
  JDIMENSION columns_ = 0;
  bool created_ = false;
  bool four_ = false;  // CMYK or YCCK
  bool several_scans_ = false;
  bool ended_ = false;  // the data, before the picture asked for no more
};

}  // namespace

std::unique_ptr<RowReader> make_jpeg_reader() { return std::make_unique<JpegReader>(); }

}  // namespace bedplate::data
