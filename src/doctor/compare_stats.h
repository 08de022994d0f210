// Telling a change from noise in series whose values hang together: steps of one training run are
// autocorrelated, so a test over single steps would call any slow drift a change.
//
//   const auto a = block_values(steps_of_a, Statistic::kMedian);
//   const auto b = block_values(steps_of_b, Statistic::kMedian);
//   const Shift shift = shift_between(a.values, b.values);        // p, and how far b lies above a,
//   with an interval
//
// A series is cut into blocks longer than its correlation reaches; each block gives one value; the
// values of two runs are compared by the Wilcoxon–Mann–Whitney test and the Hodges–Lehmann shift
// with its distribution-free interval (Hollander, Wolfe & Chicken, Nonparametric Statistical
// Methods, 3rd ed., §4.1–4.3). Deterministic; pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace bedplate::doctor {

double median_of(std::vector<double> values);  // 0 for none

// How many neighbouring values count as one independent value: 1 + 2 Σ ρ(k) over the initial
// positive pairs of autocorrelations (Geyer, Statistical Science 7, 1992), of the values' ranks, so
// that a spike cannot hide a drift. At least 1.
double correlation_length(std::span<const double> series);

enum class Statistic { kMedian, kMean };

struct Blocks {
  std::vector<double> values;  // one a block; empty when the series is too short for kFewestBlocks
                               // independent blocks
  std::size_t length = 0;      // of a block
};
constexpr std::size_t kFewestBlocks = 6;
constexpr std::size_t kMostBlocks = 64;
Blocks block_values(std::span<const double> series, Statistic statistic);

// Two-sided probability of a difference in rank sums at least this large if nothing changed. Exact
// without ties and with up to 30 values a side, else by the normal distribution with corrections
// for ties and continuity. 1 for an empty side.
double rank_sum_p(std::span<const double> a, std::span<const double> b);

struct Shift {
  double p = 1;
  double estimate = 0;  // median of all differences b - a
  double low = 0;       // 99 % interval of the shift
  double high = 0;
};
Shift shift_between(std::span<const double> a, std::span<const double> b);

}  // namespace bedplate::doctor
