#include "data/mix.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "data/permutation.h"

namespace bedplate::data {
namespace {

void check(const std::vector<MixSource>& sources) {
  if (sources.empty() || sources.size() > Mix::kMostSources) {
    throw Error(Code::kInvalid, "a mix has 1 to {} sources, not {}", Mix::kMostSources,
                sources.size());
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto& [samples, weight] = sources[i];
    if (!(weight >= 0) || !std::isfinite(weight))
      throw Error(Code::kInvalid, "source {} of the mix has the weight {}", i, weight);
    if (weight > 0 && samples < 1)
      throw Error(Code::kInvalid, "source {} of the mix has no samples, but the weight {}", i,
                  weight);
  }
}

// Whole numbers in the proportion of the weights that add up to kChunk: the largest remainders are
// rounded up (Hamilton's method).
std::vector<std::int64_t> apportion(const std::vector<MixSource>& sources) {
  double sum = 0;
  for (const MixSource& one : sources) sum += one.weight;
  if (!(sum > 0) || !std::isfinite(sum))
    throw Error(Code::kInvalid, "the weights of the mix add up to {}", sum);
  std::vector<std::int64_t> counts;
  std::vector<double> remainders;
  for (const MixSource& one : sources) {
    const double exact = one.weight / sum * static_cast<double>(Mix::kChunk);
    counts.push_back(static_cast<std::int64_t>(exact));
    remainders.push_back(exact - std::floor(exact));
  }
  std::vector<std::size_t> by_remainder(sources.size());
  std::iota(by_remainder.begin(), by_remainder.end(), std::size_t{0});
  std::ranges::stable_sort(by_remainder, std::ranges::greater(),
                           [&](std::size_t i) { return remainders[i]; });
  std::int64_t missing =
      Mix::kChunk - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  for (const std::size_t i : by_remainder) {
    if (missing-- <= 0) break;
    ++counts[i];
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].weight > 0 && counts[i] == 0) {
      throw Error(
          Code::kInvalid,
          "source {} of the mix has a share of {:.2g}: it would never come, since less than "
          "one in {} is not drawn",
          i, sources[i].weight / sum, Mix::kChunk);
    }
  }
  return counts;
}

}  // namespace

Mix::Mix(std::vector<MixSource> sources, std::uint64_t seed) : sources_(std::move(sources)) {
  check(sources_);
  a_chunk_ = apportion(sources_);
  const Permutation shuffled(kChunk, key_of({seed, 0x6d6978}));
  std::int64_t place = 0;
  for (std::size_t source = 0; source < sources_.size(); ++source) {
    for (std::int64_t i = 0; i < a_chunk_[source]; ++i)
      order_[static_cast<std::size_t>(shuffled.at(place++))] = static_cast<std::uint8_t>(source);
  }
  std::vector<std::int16_t> seen(sources_.size(), 0);
  for (std::size_t i = 0; i < order_.size(); ++i) before_[i] = seen[order_[i]]++;
}

Mix::Draw Mix::at(std::int64_t position) const {
  const auto in_chunk = static_cast<std::size_t>(position % kChunk);
  const std::size_t source = order_[in_chunk];
  const std::int64_t draw = position / kChunk * a_chunk_[source] + before_[in_chunk];
  const std::int64_t samples = sources_[source].samples;
  return {source, draw / samples, draw % samples};
}

std::int64_t Mix::drawn(std::size_t source, std::int64_t positions) const {
  const auto rest = static_cast<std::size_t>(positions % kChunk);
  return positions / kChunk * a_chunk_[source] +
         std::count(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(rest),
                    static_cast<std::uint8_t>(source));
}

}  // namespace bedplate::data
