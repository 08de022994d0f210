#include "doctor/compare_stats.h"

#include <gmock/gmock.h>

#include "doctor/compare_samples.h"

namespace bedplate::doctor {
namespace {

using ::testing::DoubleNear;

std::vector<double> autoregressive(Noise& noise, std::size_t n, double phi, double level) {
  std::vector<double> series;
  double x = 0;
  for (std::size_t i = 0; i < n; ++i) series.push_back(level + (x = phi * x + noise.normal()));
  return series;
}

TEST(RankSum, AgreesWithTheTables) {
  // Every value of b above every value of a: 2 / C(n+m, n).
  EXPECT_NEAR(rank_sum_p(std::vector<double>{1, 2, 3}, std::vector<double>{4, 5, 6}), 2.0 / 20,
              1e-12);
  EXPECT_NEAR(rank_sum_p(std::vector<double>{1, 2, 3, 4}, std::vector<double>{5, 6, 7, 8}),
              2.0 / 70, 1e-12);
  // U = 2 of 4 and 5 values: P(U <= 2) = 4/126 (Hollander & Wolfe, table A.6).
  EXPECT_NEAR(rank_sum_p(std::vector<double>{1, 2, 3, 6.5}, std::vector<double>{4, 6, 7, 8, 9}),
              2 * 4.0 / 126, 1e-12);
  EXPECT_EQ(rank_sum_p(std::vector<double>{5, 5, 5}, std::vector<double>{5, 5, 5}), 1);
  EXPECT_EQ(rank_sum_p(std::vector<double>{}, std::vector<double>{1}), 1);
}

TEST(RankSum, ExactAndNormalAgreeWhereTheyMeet) {
  Noise noise(3);
  std::vector<double> a;
  std::vector<double> b;
  for (int i = 0; i < 30; ++i) a.push_back(noise.normal());
  for (int i = 0; i < 30; ++i) b.push_back(noise.normal() + 0.5);
  const double exact = rank_sum_p(a, b);
  b.push_back(b.back() + 1e-9);  // one more: the normal distribution is used
  EXPECT_THAT(rank_sum_p(a, b), DoubleNear(exact, 0.02));
}

TEST(CorrelationLength, IsOneForIndependentValuesAndGrowsWithMemory) {
  Noise noise(1);
  EXPECT_LT(correlation_length(autoregressive(noise, 2000, 0, 50)), 1.5);
  EXPECT_THAT(correlation_length(autoregressive(noise, 4000, 0.8, 50)),
              DoubleNear(9, 3));  // (1 + φ) / (1 - φ)
  EXPECT_EQ(correlation_length(std::vector<double>(100, 7.0)), 1);
  EXPECT_EQ(correlation_length(std::vector<double>{}), 1);
}

TEST(BlockValues, UseEveryValueOnceAndRefuseWhatIsTooShort) {
  std::vector<double> series;
  for (int i = 0; i < 1003; ++i) series.push_back(i % 7);
  const Blocks blocks = block_values(series, Statistic::kMean);
  EXPECT_GE(blocks.values.size(), kFewestBlocks);
  EXPECT_LE(blocks.values.size(), kMostBlocks);
  EXPECT_TRUE(block_values(std::vector<double>(10, 1.0), Statistic::kMean).values.empty());
  std::vector<double> drift;
  for (int i = 0; i < 200; ++i) drift.push_back(i);
  EXPECT_TRUE(block_values(drift, Statistic::kMedian)
                  .values.empty());  // one long drift: nothing in it is independent
}

TEST(ShiftBetween, FindsTheShiftAndItsInterval) {
  Noise noise(9);
  const auto a = block_values(autoregressive(noise, 2000, 0.6, 100), Statistic::kMedian);
  const auto b = block_values(autoregressive(noise, 2000, 0.6, 103), Statistic::kMedian);
  const Shift shift = shift_between(a.values, b.values);
  EXPECT_LT(shift.p, 1e-6);
  EXPECT_THAT(shift.estimate, DoubleNear(3, 0.4));
  EXPECT_LT(shift.low, 3);
  EXPECT_GT(shift.high, 3);
}

// The point of the blocks: with memory in the series, a test over single values would call a third
// of all equal pairs changed.
TEST(ShiftBetween, SeldomCallsNoiseAChangeHoweverLongItsMemory) {
  for (const double phi : {0.0, 0.5, 0.9}) {
    Noise noise(17);
    int called = 0;
    constexpr int kPairs = 400;
    for (int i = 0; i < kPairs; ++i) {
      const auto a = block_values(autoregressive(noise, 800, phi, 100), Statistic::kMedian);
      const auto b = block_values(autoregressive(noise, 800, phi, 100), Statistic::kMedian);
      if (!a.values.empty() && !b.values.empty() && rank_sum_p(a.values, b.values) < 0.01) ++called;
    }
    EXPECT_LE(called, kPairs * 3 / 100) << "memory " << phi;
  }
}

}  // namespace
}  // namespace bedplate::doctor
