// Resizing against the definition in double precision, and kernels against each other.
#include "data/decode/internal/resampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace bedplate::data {
namespace {

struct Plane {
  int width = 0;
  int height = 0;
  int channels = 1;
  std::vector<std::uint8_t> bytes;
};

Plane noise(int width, int height, int channels) {
  Plane plane{width, height, channels, {}};
  std::minstd_rand random(static_cast<unsigned>(width * 31 + height));
  for (int i = 0; i < width * height * channels; ++i)
    plane.bytes.push_back(
        static_cast<std::uint8_t>(random() % 4 == 0 ? 255 * (random() % 2) : random()));
  return plane;
}

// Σ triangle(…) · in / Σ triangle(…) over both axes at once, of the inputs inside `within`.
double exact(const Plane& in, const Box& box, const Region& within, int width, int height, int x,
             int y, int channel) {
  const double across = box.width / width;
  const double down = box.height / height;
  const auto triangle = [](double at, double half) {
    return std::max(0.0, 1 - std::abs(at) / half);
  };
  double sum = 0;
  double weights = 0;
  for (int v = within.top; v < within.top + within.height; ++v) {
    const double wv = triangle(v + 0.5 - (box.top + (y + 0.5) * down), std::max(down, 1.0));
    if (wv <= 0) continue;
    for (int u = within.left; u < within.left + within.width; ++u) {
      const double w =
          wv * triangle(u + 0.5 - (box.left + (x + 0.5) * across), std::max(across, 1.0));
      weights += w;
      sum += w * in.bytes[static_cast<std::size_t>((v * in.width + u) * in.channels + channel)];
    }
  }
  return sum / weights;
}

std::vector<std::uint8_t> resized(const Plane& in, const Plan& plan,
                                  const ResampleKernels& kernels) {
  Axis x;
  Axis y;
  x.make(plan.box.left, plan.box.width, plan.width, plan.within.left,
         plan.within.left + plan.within.width,
         plan.flip_x ? Axis::Order::kMirrored : Axis::Order::kForward);
  y.make(plan.box.top, plan.box.height, plan.height, plan.within.top,
         plan.within.top + plan.within.height, Axis::Order::kForward);
  std::vector<std::byte> out(static_cast<std::size_t>(plan.width * plan.height * in.channels));
  Canvas canvas;
  canvas.begin(plan, plan.height, plan.width, in.channels, ImageLayout::kHwc, out);
  const int top = y.begin();
  const int bottom = y.end();
  y.move_origin(top);
  Resampler resampler(kernels);
  resampler.begin(x, y, in.width, in.channels, canvas);
  for (int row = top; row < bottom; ++row) {
    const std::uint8_t* from = &in.bytes[static_cast<std::size_t>(row * in.width * in.channels)];
    std::uint8_t* to = resampler.row();
    for (int i = 0; i < in.width; ++i) {
      to = std::copy_n(from, in.channels, to);
      from += in.channels;
      if (in.channels == 3) *to++ = 77;
    }
    resampler.feed();
  }
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(out.data());
  return {bytes, bytes + out.size()};
}

std::vector<const ResampleKernels*> all_kernels() {
  std::vector<const ResampleKernels*> all = {&kPlainKernels};
  if (&resample_kernels() != &kPlainKernels) all.push_back(&resample_kernels());
  return all;
}

std::vector<Plan> plans(int width, int height) {
  std::vector<Plan> all;
  const Region whole{0, 0, width, height};
  const Region part{width / 5, height / 4, std::max(1, width / 2), std::max(1, height / 3)};
  for (const auto& [w, h] : {std::pair{1, 1}, {7, 5}, {33, 64}, {97, 20}, {101, 99}}) {
    all.push_back(
        {.box = {0, 0, double(width), double(height)}, .width = w, .height = h, .within = whole});
    all.push_back(
        {.box = {double(part.left), double(part.top), double(part.width), double(part.height)},
         .width = w,
         .height = h,
         .within = part});
    all.push_back({.box = {width * 0.13, height * 0.21, width * 0.61, height * 0.37},
                   .width = w,
                   .height = h,
                   .within = whole,
                   .flip_x = true});
  }
  return all;
}

TEST(Resampler, IsTheTriangleFilter) {
  for (const auto& [width, height] : {std::pair{1, 1}, {3, 2}, {90, 71}, {1, 300}, {301, 1}}) {
    for (const int channels : {1, 3}) {
      const Plane in = noise(width, height, channels);
      for (const Plan& plan : plans(width, height)) {
        const auto got = resized(in, plan, resample_kernels());
        double most = 0;
        for (int y = 0; y < plan.height; ++y)
          for (int x = 0; x < plan.width; ++x)
            for (int c = 0; c < channels; ++c) {
              const int place = plan.flip_x ? plan.width - 1 - x : x;
              const double wanted =
                  exact(in, plan.box, plan.within, plan.width, plan.height, x, y, c);
              most = std::max(
                  most,
                  std::abs(wanted -
                           got[static_cast<std::size_t>((y * plan.width + place) * channels + c)]));
            }
        // A half of each rounding: of the rows in between, and of the result.
        ASSERT_LE(most, 1.1) << width << " x " << height << " to " << plan.width << " x "
                             << plan.height;
      }
    }
  }
}

TEST(Resampler, AllKernelsGiveTheSameBits) {
  if (all_kernels().size() == 1) GTEST_SKIP() << "this machine has the plain kernels alone";
  for (const auto& [width, height] : {std::pair{1, 1}, {5, 9}, {130, 77}, {1000, 3}}) {
    for (const int channels : {1, 3}) {
      const Plane in = noise(width, height, channels);
      for (const Plan& plan : plans(width, height))
        ASSERT_EQ(resized(in, plan, *all_kernels()[1]), resized(in, plan, kPlainKernels));
    }
  }
  for (const std::size_t pixels : {1U, 15U, 16U, 17U, 224U}) {
    const Plane in = noise(static_cast<int>(pixels), 1, 3);
    std::vector<std::vector<std::uint8_t>> got;
    for (const ResampleKernels* kernels : all_kernels()) {
      std::vector<std::uint8_t> out(pixels * 3 + 1, 99);
      std::uint8_t* const planes[3] = {&out[0], &out[pixels], &out[pixels * 2]};
      kernels->planes(in.bytes.data(), pixels, planes);
      got.push_back(out);
    }
    ASSERT_EQ(got[0], got[1]);
    ASSERT_EQ(got[0].back(), 99);
  }
}

TEST(Resampler, AFlatAreaKeepsItsValue) {
  for (const int value : {0, 1, 127, 254, 255}) {
    Plane in{211, 97, 3, std::vector<std::uint8_t>(211 * 97 * 3, static_cast<std::uint8_t>(value))};
    for (const Plan& plan : plans(211, 97))
      for (const std::uint8_t byte : resized(in, plan, resample_kernels())) ASSERT_EQ(byte, value);
  }
}

TEST(Resampler, WritesNothingBehindItsBytes) {
  const Plane in = noise(90, 40, 3);
  for (int width = 1; width < 40; ++width) {
    Plan plan{.box = {0, 0, 90, 40}, .width = width, .height = 3, .within = {0, 0, 90, 40}};
    std::vector<std::byte> out(static_cast<std::size_t>(width * 9) + 64, std::byte{0xab});
    Axis x;
    Axis y;
    x.make(0, 90, width, 0, 90, Axis::Order::kForward);
    y.make(0, 40, 3, 0, 40, Axis::Order::kForward);
    Canvas canvas;
    canvas.begin(plan, 3, width, 3, ImageLayout::kHwc, out);
    Resampler resampler;
    resampler.begin(x, y, 90, 3, canvas);
    for (int row = 0; row < 40; ++row) resampler.feed();
    for (std::size_t i = static_cast<std::size_t>(width * 9); i < out.size(); ++i)
      ASSERT_EQ(out[i], std::byte{0xab});
  }
}

}  // namespace
}  // namespace bedplate::data
