#include "data/permutation.h"

#include <algorithm>
#include <bit>

#include "base/crc32c.h"
#include "base/error.h"

namespace bedplate::data {
namespace {

// Stafford's variant 13 of the MurmurHash3 finalizer, as in splitmix64.
constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

// One round: `bits` bits that depend on all of `half` and of the key.
constexpr std::uint64_t scramble(std::uint64_t half, std::uint64_t key, int bits) {
  std::uint64_t x = half * 0xd6e8feb86659fd93 + key;
  x = (x ^ (x >> 32)) * 0xbf58476d1ce4e5b9;
  return x >> (64 - bits);
}

constexpr std::uint64_t mask(int bits) { return (std::uint64_t{1} << bits) - 1; }

}  // namespace

std::uint64_t key_of(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t key = 0;
  for (const std::uint64_t part : parts) key = mix(key + kGolden + mix(part + kGolden));
  return key;
}

// Two CRCs that begin differently.
std::uint64_t hash_of(std::string_view text) {
  return crc32c(text) | static_cast<std::uint64_t>(crc32c(text, 0x9E3779B9U)) << 32;
}

Permutation::Permutation(std::int64_t n, std::uint64_t key) : n_(n), key_(key) {
  if (n < 0 || n > std::int64_t{1} << 62)
    throw Error(Code::kInvalid, "a permutation of {} numbers cannot be made", n);
  if (n < 2) return;
  const int bits = std::max(2, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(n - 1))));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
  // Narrow halves take little of a round's key: they need more rounds until all orders are equally
  // likely (AllOrdersOfAFewAreEquallyLikely fails with 12 at three bits).
  rounds_ = bits <= 8 ? 24 : bits <= 14 ? 12 : 8;
}

std::uint64_t Permutation::forward(std::uint64_t x) const {
  std::uint64_t low = x & mask(low_bits_);
  std::uint64_t high = x >> low_bits_;
  std::uint64_t key = key_;
  for (int i = 0; i < rounds_; i += 2) {
    low ^= scramble(high, key += kGolden, low_bits_);
    high ^= scramble(low, key += kGolden, high_bits_);
  }
  return high << low_bits_ | low;
}

std::uint64_t Permutation::backward(std::uint64_t x) const {
  std::uint64_t low = x & mask(low_bits_);
  std::uint64_t high = x >> low_bits_;
  std::uint64_t key = key_ + static_cast<std::uint64_t>(rounds_) * kGolden;
  for (int i = 0; i < rounds_; i += 2) {
    high ^= scramble(low, key, high_bits_);
    low ^= scramble(high, key -= kGolden, low_bits_);
    key -= kGolden;
  }
  return high << low_bits_ | low;
}

std::int64_t Permutation::at(std::int64_t place) const {
  if (rounds_ == 0) return place;
  const auto n = static_cast<std::uint64_t>(n_);
  auto x = forward(static_cast<std::uint64_t>(place));
  while (x >= n) x = forward(x);
  return static_cast<std::int64_t>(x);
}

std::int64_t Permutation::place_of(std::int64_t number) const {
  if (rounds_ == 0) return number;
  const auto n = static_cast<std::uint64_t>(n_);
  auto x = backward(static_cast<std::uint64_t>(number));
  while (x >= n) x = backward(x);
  return static_cast<std::int64_t>(x);
}

}  // namespace bedplate::data
