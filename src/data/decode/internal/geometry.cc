// Compiled without contraction of multiplications and additions, and without anything of libm but
// what IEEE 754 defines to the last bit: what is random here must be the same on every machine.
#include "data/decode/internal/geometry.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "data/permutation.h"

namespace bedplate::data {
namespace {

constexpr int kMaxSide = 65'536;  // of an output

// Numbers drawn one after another from a seed.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : seed_(seed) {}

  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // in [0, 1)
  int below(int n) {
    return static_cast<int>((next() >> 32) * static_cast<std::uint64_t>(n) >> 32);
  }
  std::uint64_t bits32() { return next() >> 32; }

 private:
  std::uint64_t next() { return key_of({seed_, drawn_++}); }

  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
};

// base to the power of bits / 2^32, by square roots: IEEE 754 rounds them correctly, whereas exp()
// and pow() differ from library to library.
double fractional_power(double base, std::uint64_t bits) {
  double power = 1.0;
  double root = base;
  for (int i = 31; i >= 0; --i) {
    root = std::sqrt(root);
    if (bits >> i & 1) power *= root;
  }
  return power;
}

int rounded(double x) { return static_cast<int>(std::nearbyint(x)); }  // halves to even, as Python

// torchvision.transforms.RandomResizedCrop.get_params: ten attempts, then the middle in a
// permitted ratio.
Region random_part(int width, int height, const ImageSpec& spec, Draws& draws) {
  const double area = static_cast<double>(width) * height;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double part = area * (spec.scale[0] + draws.unit() * (spec.scale[1] - spec.scale[0]));
    const double ratio =
        spec.ratio[0] * fractional_power(spec.ratio[1] / spec.ratio[0], draws.bits32());
    const double w = std::sqrt(part * ratio);
    const double h = std::sqrt(part / ratio);
    if (w > width + 1.0 || h > height + 1.0) continue;
    const Region region{.width = rounded(w), .height = rounded(h)};
    if (region.width < 1 || region.height < 1 || region.width > width || region.height > height)
      continue;
    const int top = draws.below(height - region.height + 1);
    return {draws.below(width - region.width + 1), top, region.width, region.height};
  }
  Region region{.width = width, .height = height};
  const double ratio = static_cast<double>(width) / height;
  if (ratio < spec.ratio[0])
    region.height = std::clamp(rounded(width / spec.ratio[0]), 1, height);
  else if (ratio > spec.ratio[1])
    region.width = std::clamp(rounded(height * spec.ratio[1]), 1, width);
  region.left = (width - region.width) / 2;
  region.top = (height - region.height) / 2;
  return region;
}

Box box_of(const Region& region) {
  return {static_cast<double>(region.left), static_cast<double>(region.top),
          static_cast<double>(region.width), static_cast<double>(region.height)};
}

// torchvision: the short side becomes `resize`, the long one is rounded down; then the middle.
Box middle_of_resized(int width, int height, const ImageSpec& spec) {
  double resized_width = 0;
  double resized_height = 0;
  if (spec.resize > 0) {
    const auto longer = [&](int side, int shorter) {
      return static_cast<double>(std::int64_t{spec.resize} * side / shorter);
    };
    resized_width = width <= height ? spec.resize : longer(width, height);
    resized_height = width <= height ? longer(height, width) : spec.resize;
  } else {
    const double factor = std::max(static_cast<double>(spec.width) / width,
                                   static_cast<double>(spec.height) / height);
    resized_width = std::max(width * factor, static_cast<double>(spec.width));
    resized_height = std::max(height * factor, static_cast<double>(spec.height));
  }
  const double left = std::nearbyint((resized_width - spec.width) / 2);
  const double top = std::nearbyint((resized_height - spec.height) / 2);
  const double across = width / resized_width;
  const double down = height / resized_height;
  return {left * across, top * down, spec.width * across, spec.height * down};
}

// From how it is shown to how it is stored. EXIF's orientations (CIPA DC-008, 4.6.4, tag 0x0112):
// 2 mirrored, 3 upside down, 4 mirrored and upside down; 5 to 8 the same of a transposed picture.
// `plan` is in the shown axes, with flip_x the mirror that the spec asks for.
void turn(Plan& plan, const ImageSize& size) {
  // Stored → shown is: flip the stored columns, the stored rows, then transpose.
  static constexpr struct {
    bool columns;
    bool rows;
  } kFlips[] = {{false, false}, {true, false}, {true, true}, {false, true},
                {false, false}, {false, true}, {true, true}, {true, false}};
  const auto [columns, rows] = kFlips[size.orientation - 1];
  if (size.transposed()) {
    std::swap(plan.box.left, plan.box.top);
    std::swap(plan.box.width, plan.box.height);
    std::swap(plan.width, plan.height);
    std::swap(plan.within.left, plan.within.top);
    std::swap(plan.within.width, plan.within.height);
    std::swap(plan.flip_x, plan.flip_y);
    plan.transpose = true;
  }
  if (columns) {
    plan.box.left = size.width - plan.box.left - plan.box.width;
    plan.within.left = size.width - plan.within.left - plan.within.width;
    plan.flip_x = !plan.flip_x;
  }
  if (rows) {
    plan.box.top = size.height - plan.box.top - plan.box.height;
    plan.within.top = size.height - plan.within.top - plan.within.height;
    plan.flip_y = !plan.flip_y;
  }
}

bool is_range(const std::array<double, 2>& range, double most) {
  return range[0] > 0 && range[0] <= range[1] && range[1] <= most;  // false for NaN
}

}  // namespace

void check(const ImageSpec& spec) {
  if (spec.height < 1 || spec.width < 1 || spec.height > kMaxSide || spec.width > kMaxSide)
    throw Error(Code::kInvalid, "pictures of {} x {} pixels cannot be made: 1 to {} a side",
                spec.width, spec.height, kMaxSide);
  if (spec.channels != 1 && spec.channels != 3)
    throw Error(Code::kInvalid, "pictures of {} channels cannot be made: 3 is RGB, 1 is grey",
                spec.channels);
  if (!(spec.flip >= 0 && spec.flip <= 1))
    throw Error(Code::kInvalid, "flip is {}: a probability is between 0 and 1", spec.flip);
  if (spec.fit == Fit::kCenterCrop && spec.resize != 0 &&
      (spec.resize < std::max(spec.height, spec.width) || spec.resize > kMaxSide))
    throw Error(Code::kInvalid,
                "resize is {}: a crop of {} x {} needs at least {} pixels of the short side, and "
                "{} are the most",
                spec.resize, spec.width, spec.height, std::max(spec.height, spec.width), kMaxSide);
  if (spec.fit == Fit::kRandomResizedCrop && !is_range(spec.scale, 1.0))
    throw Error(Code::kInvalid, "scale is {} to {}: shares of the area rise from above 0 to 1",
                spec.scale[0], spec.scale[1]);
  if (spec.fit == Fit::kRandomResizedCrop && (!is_range(spec.ratio, 1e6) || spec.ratio[0] < 1e-6))
    throw Error(Code::kInvalid, "ratio is {} to {}: widths by heights rise from 1e-6 to 1e6",
                spec.ratio[0], spec.ratio[1]);
}

Plan plan_of(const ImageSize& size, const ImageSpec& spec, std::uint64_t seed) {
  const int width = size.shown_width();
  const int height = size.shown_height();
  Draws draws(seed);
  Plan plan{.box = {0, 0, static_cast<double>(width), static_cast<double>(height)},
            .width = spec.width,
            .height = spec.height,
            .within = {0, 0, width, height},
            .flip_x = draws.unit() < spec.flip};
  switch (spec.fit) {
    case Fit::kStretch:
      break;
    case Fit::kCenterCrop:
      plan.box = middle_of_resized(width, height, spec);
      break;
    case Fit::kRandomResizedCrop:
      plan.within = random_part(width, height, spec, draws);
      plan.box = box_of(plan.within);
      break;
    case Fit::kPad: {
      const double factor = std::min(static_cast<double>(spec.width) / width,
                                     static_cast<double>(spec.height) / height);
      plan.width = std::clamp(rounded(width * factor), 1, spec.width);
      plan.height = std::clamp(rounded(height * factor), 1, spec.height);
      plan.left = (spec.width - plan.width) / 2;
      plan.top = (spec.height - plan.height) / 2;
      break;
    }
  }
  turn(plan, size);
  return plan;
}

Plan whole_plan(const ImageSize& size) {
  Plan plan{.box = {0, 0, static_cast<double>(size.shown_width()),
                    static_cast<double>(size.shown_height())},
            .width = size.shown_width(),
            .height = size.shown_height(),
            .within = {0, 0, size.shown_width(), size.shown_height()}};
  turn(plan, size);
  return plan;
}

}  // namespace bedplate::data
