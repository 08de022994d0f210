// Several data sets drawn from in fixed shares, resumable at any position by arithmetic.
//
//   const Mix mix({{.samples = 1'000'000, .weight = 0.7}, {.samples = 50'000, .weight = 0.3}},
//   seed); const Mix::Draw draw = mix.at(position);   // {source 1, its 12,345th draw} sample =
//   orders[draw.source].at(draw.epoch, draw.position)
//
// Positions come in chunks of kChunk; each holds every source as often as its weight says, to the
// nearest whole number, in an order that is drawn once from the seed. A source that has been drawn
// as often as it has samples begins its next epoch. Weights are relative; a source with weight 0 is
// never drawn. Pure; a value; thread-safe to read.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace bedplate::data {

struct MixSource {
  std::int64_t samples = 0;
  double weight = 1;
};

class Mix {
 public:
  static constexpr std::int64_t kChunk = 1024;
  static constexpr std::size_t kMostSources = 256;

  // Error{kInvalid} for no source, too many, weights that are negative or not finite, all zero, or
  // too small to come in a chunk, and for a source without samples that has a weight.
  Mix(std::vector<MixSource> sources, std::uint64_t seed);

  struct Draw {
    std::size_t source = 0;
    std::int64_t epoch = 0;     // of the source
    std::int64_t position = 0;  // in that epoch
  };
  Draw at(std::int64_t position) const;

  // How often the source is among the first `positions`.
  std::int64_t drawn(std::size_t source, std::int64_t positions) const;
  std::span<const MixSource> sources() const { return sources_; }

 private:
  std::vector<MixSource> sources_;
  std::vector<std::int64_t> a_chunk_;        // draws of each source in a chunk
  std::array<std::uint8_t, kChunk> order_;   // the sources of a chunk
  std::array<std::int16_t, kChunk> before_;  // earlier draws of the same source in the chunk
};

}  // namespace bedplate::data
