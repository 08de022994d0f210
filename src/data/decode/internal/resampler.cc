// Compiled without contraction of multiplications and additions, so that weights are the same on
// every machine.
#include "data/decode/internal/resampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "data/decode/internal/pixels.h"

namespace bedplate::data {
namespace {

constexpr int kMostShift = 22;      // 255 x 2^22 and the half fit into 32 bits
constexpr std::size_t kSlack = 64;  // bytes that kernels may read or write behind a row

}  // namespace

void Axis::make(double start, double size, int outputs, int first, int end, Order order) {
  BEDPLATE_CHECK(outputs > 0 && first < end);
  const double scale = size / outputs;
  const double support = std::max(scale, 1.0);
  const auto stride = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
  firsts_.resize(static_cast<std::size_t>(outputs));
  ends_.resize(firsts_.size());
  exact_.assign(firsts_.size() * stride, 0.0);
  begin_ = end;
  end_ = first;
  int longest = 1;
  for (std::size_t i = 0; i < firsts_.size(); ++i) {
    const double centre = start + (static_cast<double>(i) + 0.5) * scale;
    int from = std::max(static_cast<int>(std::floor(centre - support + 0.5)), first);
    int to = std::min(static_cast<int>(std::floor(centre + support + 0.5)), end);
    // A box that rounding has pushed over an edge.
    from = std::clamp(from, first, end - 1);
    to = std::clamp(to, from + 1, end);
    const std::size_t place = order == Order::kForward ? i : firsts_.size() - 1 - i;
    double* const weights = &exact_[place * stride];
    const auto weight_of = [&](int input) {
      return std::max(0.0, 1.0 - std::abs(input - centre + 0.5) / support);
    };
    while (to - from > 1 && weight_of(from) <= 0.0) ++from;
    while (to - from > 1 && weight_of(to - 1) <= 0.0) --to;
    double sum = 0;
    for (int k = from; k < to; ++k) sum += weights[k - from] = weight_of(k);
    if (sum <= 0) sum = weights[0] = 1.0;
    for (int k = from; k < to; ++k) weights[k - from] /= sum;
    firsts_[place] = from;
    ends_[place] = to;
    begin_ = std::min(begin_, from);
    end_ = std::max(end_, to);
    longest = std::max(longest, to - from);
  }
  taps_ = (longest + 3) / 4 * 4;
  quantise(stride);
}

// As many bits as 16 hold; what rounding leaves over goes to the largest weight, so that a flat
// area keeps its value.
void Axis::quantise(std::size_t stride) {
  const double largest = *std::ranges::max_element(exact_);
  shift_ = kMostShift;
  while (shift_ > 1 && largest * (1 << shift_) + taps_ > 32'767) --shift_;
  const auto taps = static_cast<std::size_t>(taps_);
  weights_.assign(firsts_.size() * taps, 0);
  for (std::size_t i = 0; i < firsts_.size(); ++i) {
    const auto count = static_cast<std::size_t>(ends_[i] - firsts_[i]);
    const double* const exact = &exact_[i * stride];
    std::int16_t* const weights = &weights_[i * taps];
    int left = 1 << shift_;
    std::size_t peak = 0;
    for (std::size_t k = 0; k < count; ++k) {
      weights[k] = static_cast<std::int16_t>(exact[k] * (1 << shift_) + 0.5);
      left -= weights[k];
      if (weights[k] > weights[peak]) peak = k;
    }
    weights[peak] = static_cast<std::int16_t>(weights[peak] + left);
  }
}

void Axis::move_origin(int to) {
  for (std::int32_t& first : firsts_) first -= to;
  for (std::int32_t& end : ends_) end -= to;
  begin_ -= to;
  end_ -= to;
}

void Canvas::begin(const Plan& plan, int height, int width, int channels, ImageLayout layout,
                   std::span<std::byte> out) {
  plan_ = plan;
  height_ = height;
  width_ = width;
  channels_ = channels;
  layout_ = channels == 1 ? ImageLayout::kHwc : layout;
  out_ = reinterpret_cast<std::uint8_t*>(out.data());
  row_.resize(static_cast<std::size_t>(plan.width) * static_cast<std::size_t>(channels));
}

std::uint8_t* Canvas::at(int y, int x) const {
  const auto row = static_cast<std::size_t>(y) * static_cast<std::size_t>(width_);
  const std::size_t pixel = row + static_cast<std::size_t>(x);
  return out_ + pixel * static_cast<std::size_t>(layout_ == ImageLayout::kHwc ? channels_ : 1);
}

void Canvas::fill(const std::array<std::uint8_t, 3>& rgb) {
  const std::size_t pixels = static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_);
  std::array<std::uint8_t, 3> colour = rgb;
  if (channels_ == 1) {
    const std::uint8_t rgbx[4] = {rgb[0], rgb[1], rgb[2], 0};
    to_grey(rgbx, 1, colour.data());
  }
  const auto channels = static_cast<std::size_t>(channels_);
  for (std::size_t c = 0; c < channels; ++c) {
    if (layout_ == ImageLayout::kChw || channels == 1) {
      std::memset(out_ + c * pixels, colour[c], pixels);
    } else {
      for (std::size_t i = 0; i < pixels; ++i) out_[i * channels + c] = colour[c];
    }
  }
}

std::uint8_t* Canvas::row(int y) {
  if (plan_.transpose || layout_ == ImageLayout::kChw) return row_.data();
  return at(plan_.top + (plan_.flip_y ? plan_.height - 1 - y : y), plan_.left);
}

void Canvas::done(int y, const ResampleKernels& kernels) {
  const int place = plan_.flip_y ? plan_.height - 1 - y : y;
  const std::size_t plane = static_cast<std::size_t>(width_) * static_cast<std::size_t>(height_);
  if (plan_.transpose) {
    const auto channels = static_cast<std::size_t>(channels_);
    const std::size_t apart = layout_ == ImageLayout::kHwc ? 1 : plane;
    for (int x = 0; x < plan_.width; ++x) {
      std::uint8_t* const to = at(plan_.top + x, plan_.left + place);
      for (std::size_t c = 0; c < channels; ++c)
        to[c * apart] = row_[static_cast<std::size_t>(x) * channels + c];
    }
  } else if (layout_ == ImageLayout::kChw) {
    std::uint8_t* const first = at(plan_.top + place, plan_.left);
    std::uint8_t* const planes[3] = {first, first + plane, first + 2 * plane};
    kernels.planes(row_.data(), static_cast<std::size_t>(plan_.width), planes);
  }
}

void Resampler::begin(const Axis& x, const Axis& y, int width, int channels, Canvas& canvas) {
  BEDPLATE_CHECK(x.begin() >= 0 && x.end() <= width && y.begin() >= 0);
  x_ = &x;
  y_ = &y;
  canvas_ = &canvas;
  channels_ = channels;
  fed_ = 0;
  made_ = 0;
  const std::size_t pixel = channels == 1 ? 1 : 4;
  in_.resize((static_cast<std::size_t>(width) + static_cast<std::size_t>(x.taps())) * pixel +
             kSlack);
  kept_stride_ =
      static_cast<std::size_t>(x.outputs()) * static_cast<std::size_t>(channels) + kSlack;
  rows_kept_ = y.taps();
  kept_.resize(static_cast<std::size_t>(rows_kept_) * kept_stride_);
  column_.resize(static_cast<std::size_t>(y.taps()));
}

void Resampler::feed() {
  const RowAxis axis{.first = x_->firsts().data(),
                     .weights = x_->weights(0),
                     .taps = x_->taps(),
                     .outputs = x_->outputs(),
                     .shift = x_->shift()};
  (channels_ == 1 ? kernels_->row_of_1 : kernels_->row_of_4)(axis, in_.data(), kept(fed_));
  ++fed_;
  const std::size_t bytes =
      static_cast<std::size_t>(x_->outputs()) * static_cast<std::size_t>(channels_);
  for (; made_ < y_->outputs(); ++made_) {
    const auto output = static_cast<std::size_t>(made_);
    if (y_->ends()[output] > fed_) break;
    const int first = y_->firsts()[output];
    const int count = y_->ends()[output] - first;
    const int taps = (count + 1) / 2 * 2;
    // The odd one out has the weight 0.
    for (int k = 0; k < taps; ++k)
      column_[static_cast<std::size_t>(k)] = kept(first + std::min(k, count - 1));
    kernels_->column(column_.data(), y_->weights(made_), taps, y_->shift(), bytes,
                     canvas_->row(made_));
    canvas_->done(made_, *kernels_);
  }
}

}  // namespace bedplate::data
