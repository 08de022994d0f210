#include "doctor/lost_time.h"

#include <algorithm>

namespace bedplate::doctor {
namespace {

template <typename Combine>
LostTime combined(const LostTime& a, const LostTime& b, Combine combine) {
  LostTime out = a;
  for (std::size_t rank = 0; rank < out.ns.size(); ++rank) {
    for (std::size_t step = 0; step < out.ns[rank].size(); ++step) {
      const bool there = rank < b.ns.size() && step < b.ns[rank].size();
      out.ns[rank][step] = combine(out.ns[rank][step], there ? b.ns[rank][step] : 0.0);
    }
  }
  return out;
}

}  // namespace

TimelineIntegral::TimelineIntegral(const Timeline& timeline) : slices_(timeline) {
  before_.reserve(slices_.size() + 1);
  double sum = 0;
  for (const Slice& slice : slices_) {
    before_.push_back(sum);
    sum += static_cast<double>(slice.end - slice.begin) * slice.share;
  }
  before_.push_back(sum);
}

double TimelineIntegral::until(Nanos t) const {
  const auto after =
      std::upper_bound(slices_.begin(), slices_.end(), t,
                       [](Nanos at, const Slice& slice) { return at < slice.begin; });
  if (after == slices_.begin()) return 0;
  const auto n = static_cast<std::size_t>(after - slices_.begin()) - 1;
  const Slice& slice = slices_[n];
  return before_[n] + static_cast<double>(std::min(t, slice.end) - slice.begin) * slice.share;
}

double TimelineIntegral::over(Nanos begin, Nanos end) const {
  if (end <= begin) return 0;
  return std::max(0.0, until(end) - until(begin));
}

LostTime both(const LostTime& a, const LostTime& b) {
  return combined(a, b, [](double x, double y) { return std::min(x, y); });
}

LostTime larger(const LostTime& a, const LostTime& b) {
  return combined(a, b, [](double x, double y) { return std::max(x, y); });
}

LostTime less(const LostTime& a, const LostTime& b) {
  return combined(a, b, [](double x, double y) { return std::max(0.0, x - y); });
}

LostTime scaled(const LostTime& a, double factor) {
  const double held = std::clamp(factor, 0.0, 1.0);
  LostTime out = a;
  for (auto& rank : out.ns) {
    for (double& step : rank) step *= held;
  }
  return out;
}

}  // namespace bedplate::doctor
