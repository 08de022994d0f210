#include "data/decode/image.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "data/decode/internal/geometry.h"
#include "data/decode/internal/resampler.h"
#include "data/decode/internal/row_reader.h"

namespace bedplate::data {
namespace {

// The largest of 8, 4, 2 that leaves the crop no smaller than what it becomes; 1 if none does.
int shrink_of(const Plan& plan) {
  for (const int shrink : {8, 4, 2})
    if (plan.box.width >= static_cast<double>(plan.width) * shrink &&
        plan.box.height >= static_cast<double>(plan.height) * shrink)
      return shrink;
  return 1;
}

void make_axes(const Plan& plan, int shrink, Axis& x, Axis& y) {
  const auto last = [&](int end) { return (end + shrink - 1) / shrink; };
  const double by = shrink;
  const Region& within = plan.within;
  x.make(plan.box.left / by, plan.box.width / by, plan.width, within.left / shrink,
         last(within.left + within.width),
         plan.flip_x ? Axis::Order::kMirrored : Axis::Order::kForward);
  // Rows come from above: the canvas puts them from below.
  y.make(plan.box.top / by, plan.box.height / by, plan.height, within.top / shrink,
         last(within.top + within.height), Axis::Order::kForward);
}

}  // namespace

std::size_t output_bytes(const ImageSpec& spec) {
  check(spec);
  return static_cast<std::size_t>(spec.height) * static_cast<std::size_t>(spec.width) *
         static_cast<std::size_t>(spec.channels);
}

class ImageDecoder::Impl {
 public:
  explicit Impl(const ImageDecoderOptions& options)
      : options_(options), readers_{make_jpeg_reader(), make_png_reader()} {}

  ImageSize size_of(std::span<const std::byte> file) const {
    ImageSize size = image_size(file);
    if (std::int64_t{size.width} * size.height > options_.max_pixels)
      throw Error(Code::kUnsupported,
                  "a picture of {} x {} pixels is larger than allowed: raise max_pixels, which is "
                  "{}, if it is meant",
                  size.width, size.height, options_.max_pixels);
    if (options_.exif == Exif::kIgnore) size.orientation = 1;
    return size;
  }

  // `output_of` is asked when the head is known to be that of a whole file: memory for a bomb is
  // not taken before.
  template <typename Output>
  void decode(std::span<const std::byte> file, const ImageSize& size, const Plan& plan,
              const ImageSpec& output, const Output& output_of) {
    RowReader& reader = *readers_[static_cast<std::size_t>(size.kind)];
    const Closing closing{reader};
    reader.open(file, size,
                {.channels = output.channels,
                 .damage = options_.damage,
                 .alpha = options_.alpha,
                 .background = output.background});
    const bool may_shrink = options_.shrink == Shrink::kInTransform && reader.can_shrink();
    const int shrink = may_shrink ? shrink_of(plan) : 1;
    make_axes(plan, shrink, x_, y_);
    const Region wanted{x_.begin(), y_.begin(), x_.end() - x_.begin(), y_.end() - y_.begin()};
    const Region region = reader.start(shrink, wanted);
    x_.move_origin(region.left);
    y_.move_origin(region.top);
    canvas_.begin(plan, output.height, output.width, output.channels, output.layout, output_of());
    if (output.fit == Fit::kPad) canvas_.fill(output.background);
    resampler_.begin(x_, y_, region.width, output.channels, canvas_);
    for (int row = 0; row < region.height; ++row) {
      reader.read_row(resampler_.row());
      resampler_.feed();
    }
  }

 private:
  struct Closing {
    RowReader& reader;
    ~Closing() { reader.close(); }
  };

  const ImageDecoderOptions options_;
  const std::unique_ptr<RowReader> readers_[2];  // by ImageKind
  Axis x_;
  Axis y_;
  Canvas canvas_;
  Resampler resampler_;
};

ImageDecoder::ImageDecoder(const ImageDecoderOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
ImageDecoder::~ImageDecoder() = default;
ImageDecoder::ImageDecoder(ImageDecoder&&) noexcept = default;
ImageDecoder& ImageDecoder::operator=(ImageDecoder&&) noexcept = default;

void ImageDecoder::decode(std::span<const std::byte> file, const ImageSpec& spec,
                          std::uint64_t seed, std::span<std::byte> out) {
  if (const std::size_t bytes = output_bytes(spec); out.size() != bytes)
    throw Error(Code::kInvalid, "a picture of {} x {} x {} takes {} bytes, not {}", spec.height,
                spec.width, spec.channels, bytes, out.size());
  const ImageSize size = impl_->size_of(file);
  impl_->decode(file, size, plan_of(size, spec, seed), spec, [&] { return out; });
}

void ImageDecoder::decode_whole(std::span<const std::byte> file, int channels, Pixels& pixels) {
  check({.channels = channels});
  const ImageSize size = impl_->size_of(file);
  const ImageSpec output{
      .height = size.shown_height(), .width = size.shown_width(), .channels = channels};
  impl_->decode(file, size, whole_plan(size), output, [&] {
    pixels.height = output.height;
    pixels.width = output.width;
    pixels.channels = channels;
    pixels.bytes.resize(static_cast<std::size_t>(output.height) *
                        static_cast<std::size_t>(output.width) *
                        static_cast<std::size_t>(channels));
    return std::span(pixels.bytes);
  });
}

}  // namespace bedplate::data
