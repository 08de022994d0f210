#include "data/permutation.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <vector>

#include "base/error.h"

namespace bedplate::data {
namespace {

TEST(Permutation, HasEachNumberOnceAndKnowsItsPlace) {
  for (const std::int64_t n : {0, 1, 2, 3, 4, 5, 7, 8, 9, 64, 100, 1000, 4097, 100'000}) {
    for (const std::uint64_t key : {0ULL, 1ULL, ~0ULL}) {
      const Permutation permutation(n, key);
      std::vector<bool> seen(static_cast<std::size_t>(n));
      for (std::int64_t place = 0; place < n; ++place) {
        const std::int64_t number = permutation.at(place);
        ASSERT_TRUE(number >= 0 && number < n);
        ASSERT_FALSE(seen[static_cast<std::size_t>(number)]) << n << " " << place;
        seen[static_cast<std::size_t>(number)] = true;
        ASSERT_EQ(permutation.place_of(number), place);
      }
    }
  }
}

TEST(Permutation, IsTheSameForEver) {
  // Runs that are resumed with a newer Bedplate depend on these.
  const Permutation small(10, key_of({7, 0}));
  std::vector<std::int64_t> order;
  for (int i = 0; i < 10; ++i) order.push_back(small.at(i));
  const std::string text = fmt::format("{}", fmt::join(order, " "));
  const Permutation large(1'000'000'000'000, key_of({7, 1}));
  EXPECT_EQ(fmt::format("{} | {} {} {}", text, large.at(0), large.at(1), large.at(999'999'999'999)),
            "0 5 7 2 6 3 4 8 1 9 | 54292639418 553626435298 71130202553");
}

TEST(Permutation, HugeOnesWork) {
  const std::int64_t n = std::int64_t{1} << 62;
  const Permutation permutation(n, 3);
  for (const std::int64_t place : {std::int64_t{0}, n / 3, n - 1})
    EXPECT_EQ(permutation.place_of(permutation.at(place)), place);
  EXPECT_THROW(Permutation(-1, 0), Error);
  EXPECT_THROW(Permutation(n + 1, 0), Error);
}

// χ² of counts against equal ones, in standard deviations from its mean.
double surprise(const std::vector<double>& counts) {
  double sum = 0;
  for (const double count : counts) sum += count;
  const double expected = sum / static_cast<double>(counts.size());
  double chi2 = 0;
  for (const double count : counts) chi2 += (count - expected) * (count - expected) / expected;
  const auto freedom = static_cast<double>(counts.size() - 1);
  return (chi2 - freedom) / std::sqrt(2 * freedom);
}

TEST(Permutation, AllOrdersOfAFewAreEquallyLikely) {
  for (const std::int64_t n : {3, 4, 5, 6, 7}) {
    std::map<std::vector<std::int64_t>, double> orders;
    for (std::uint64_t seed = 0; seed < 200'000; ++seed) {
      const Permutation permutation(n, key_of({seed}));
      std::vector<std::int64_t> order;
      for (std::int64_t i = 0; i < n; ++i) order.push_back(permutation.at(i));
      orders[order] += 1;
    }
    std::vector<double> counts;
    for (const auto& [order, count] : orders) counts.push_back(count);
    EXPECT_EQ(counts.size(), static_cast<std::size_t>(std::tgamma(n + 1))) << n;
    EXPECT_LT(std::fabs(surprise(counts)), 5) << n;
  }
}

TEST(Permutation, WhereANumberComesSaysNothingOfItsNeighbours) {
  constexpr std::int64_t kNumbers = 100'000;
  constexpr std::size_t kBins = 16;
  std::vector<double> places(kBins * kBins);      // place against number
  std::vector<double> neighbours(kBins * kBins);  // a number against the one before
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Permutation permutation(kNumbers, key_of({seed, 99}));
    std::size_t before = 0;
    for (std::int64_t place = 0; place < kNumbers; ++place) {
      const auto bin = static_cast<std::size_t>(permutation.at(place)) * kBins / kNumbers;
      places[static_cast<std::size_t>(place) * kBins / kNumbers * kBins + bin] += 1;
      if (place > 0) neighbours[before * kBins + bin] += 1;
      before = bin;
    }
  }
  // A permutation has each row and column equally often: less than independent draws vary.
  EXPECT_LT(surprise(places), 5);
  EXPECT_LT(std::fabs(surprise(neighbours)), 5);
}

}  // namespace
}  // namespace bedplate::data
