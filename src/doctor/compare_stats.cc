#include "doctor/compare_stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace bedplate::doctor {
namespace {

constexpr std::size_t kShortestBlock = 4;
constexpr std::size_t kMostExact = 30;
constexpr double kNormal99 = 2.5758;  // two-sided 99 % of the normal distribution

// Ranks from 1, ties share their mean. `ties` receives Σ (t³ - t).
std::vector<double> ranks_of(std::span<const double> values, double* ties = nullptr) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    const auto tied = static_cast<double>(end - i);
    if (ties != nullptr) *ties += tied * tied * tied - tied;
    for (std::size_t k = i; k < end; ++k) ranks[order[k]] = static_cast<double>(i + end + 1) / 2;
    i = end;
  }
  return ranks;
}

// P(U <= u) of the Mann–Whitney statistic, by counting: ways[n][u] of choosing with sum u, one
// element of b at a time.
double exact_tail(std::size_t n, std::size_t m, std::size_t u) {
  std::vector<std::vector<double>> ways(n + 1, std::vector<double>(n * m + 1, 0.0));
  for (std::size_t i = 0; i <= n; ++i) ways[i][0] = 1;
  for (std::size_t j = 1; j <= m; ++j) {
    // f(i, j, u) = f(i-1, j, u-j) + f(i, j-1, u): for rising i the row below already holds f(i-1,
    // j, ·).
    for (std::size_t i = 1; i <= n; ++i) {
      for (std::size_t k = n * m + 1; k-- > j;) ways[i][k] += ways[i - 1][k - j];
    }
  }
  const double all = std::accumulate(ways[n].begin(), ways[n].end(), 0.0);
  return std::accumulate(ways[n].begin(), ways[n].begin() + static_cast<std::ptrdiff_t>(u) + 1,
                         0.0) /
         all;
}

double normal_two_sided(double z) { return std::erfc(std::fabs(z) / std::sqrt(2.0)); }

double statistic_of(std::span<const double> block, Statistic statistic) {
  if (statistic == Statistic::kMedian) return median_of({block.begin(), block.end()});
  return std::accumulate(block.begin(), block.end(), 0.0) / static_cast<double>(block.size());
}

}  // namespace

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double correlation_length(std::span<const double> series) {
  const std::size_t n = series.size();
  if (n < 8) return 1;
  std::vector<double> centred = ranks_of(series);
  const double mean = static_cast<double>(n + 1) / 2;
  double variance = 0;
  for (double& value : centred) {
    value -= mean;
    variance += value * value;
  }
  if (variance <= 0) return 1;
  const auto rho = [&](std::size_t lag) {
    double sum = 0;
    for (std::size_t i = lag; i < n; ++i) sum += centred[i] * centred[i - lag];
    return sum / variance;
  };
  double sum = 0;
  for (std::size_t lag = 1; lag + 1 <= n / 2; lag += 2) {
    const double pair = rho(lag) + rho(lag + 1);
    if (pair <= 0) break;
    sum += pair;
  }
  return 1 + 2 * sum;
}

Blocks block_values(std::span<const double> series, Statistic statistic) {
  Blocks blocks;
  const double reach = correlation_length(series);
  blocks.length = std::max(kShortestBlock, static_cast<std::size_t>(std::ceil(2 * reach)));
  blocks.length = std::max(blocks.length, (series.size() + kMostBlocks - 1) / kMostBlocks);
  const std::size_t count = series.size() / blocks.length;
  if (count < kFewestBlocks) return blocks;
  // The remainder is spread over the blocks, so that no value is left out.
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = series.size() * i / count;
    const std::size_t last = series.size() * (i + 1) / count;
    blocks.values.push_back(statistic_of(series.subspan(first, last - first), statistic));
  }
  return blocks;
}

double rank_sum_p(std::span<const double> a, std::span<const double> b) {
  const std::size_t n = a.size();
  const std::size_t m = b.size();
  if (n == 0 || m == 0) return 1;
  std::vector<double> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  double ties = 0;
  const auto ranks = ranks_of(all, &ties);
  const double sum =
      std::accumulate(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(n), 0.0);
  const auto nd = static_cast<double>(n);
  const auto md = static_cast<double>(m);
  const double u = sum - nd * (nd + 1) / 2;
  const double smaller = std::min(u, nd * md - u);
  if (ties == 0 && n <= kMostExact && m <= kMostExact) {
    return std::min(1.0, 2 * exact_tail(n, m, static_cast<std::size_t>(smaller)));
  }
  const double total = nd + md;
  const double variance = nd * md / 12 * (total + 1 - ties / (total * (total - 1)));
  if (!(variance > 0)) return 1;
  return std::min(
      1.0, normal_two_sided(std::max(0.0, nd * md / 2 - smaller - 0.5) / std::sqrt(variance)));
}

Shift shift_between(std::span<const double> a, std::span<const double> b) {
  Shift shift;
  if (a.empty() || b.empty()) return shift;
  shift.p = rank_sum_p(a, b);
  std::vector<double> differences;
  differences.reserve(a.size() * b.size());
  for (const double x : a) {
    for (const double y : b) differences.push_back(y - x);
  }
  std::sort(differences.begin(), differences.end());
  const auto n = static_cast<double>(a.size());
  const auto m = static_cast<double>(b.size());
  const double rank = n * m / 2 - kNormal99 * std::sqrt(n * m * (n + m + 1) / 12);
  const std::size_t cut = rank > 1 ? static_cast<std::size_t>(rank) - 1 : 0;
  shift.low = differences[cut];
  shift.high = differences[differences.size() - 1 - cut];
  shift.estimate =
      differences.size() % 2 == 1
          ? differences[differences.size() / 2]
          : (differences[differences.size() / 2 - 1] + differences[differences.size() / 2]) / 2;
  return shift;
}

}  // namespace bedplate::doctor
