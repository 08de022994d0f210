// A permutation of 0 … n-1 that is computed, not stored: any element and any place in O(1) memory.
//
//   const Permutation shuffled(1'000'000'000, key_of({seed, epoch}));
//   shuffled.at(0)          // the number that comes first
//   shuffled.place_of(17)   // where 17 comes: at(place_of(x)) == x
//
// A Feistel network over the smallest power of two that holds n, walked on until the result is
// below n (Black and Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002): fewer than two
// walks on average. Its round function is a mixer for statistics, not for secrets. Equal keys give
// equal permutations on every machine, for ever: resuming stands on it. A value; thread-safe to
// read.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace bedplate::data {

// 64 well-mixed bits from any numbers, in this order.
std::uint64_t key_of(std::initializer_list<std::uint64_t> parts);
// 64 bits of a text, the same on every machine.
std::uint64_t hash_of(std::string_view text);

class Permutation {
 public:
  // 0 <= n <= 2^62, else Error{kInvalid}.
  Permutation(std::int64_t n, std::uint64_t key);

  std::int64_t size() const { return n_; }
  // 0 <= place < size(), else undefined.
  std::int64_t at(std::int64_t place) const;
  std::int64_t place_of(std::int64_t number) const;

 private:
  std::uint64_t forward(std::uint64_t x) const;
  std::uint64_t backward(std::uint64_t x) const;

  std::int64_t n_;
  std::uint64_t key_;
  int low_bits_ = 1;  // of the two halves
  int high_bits_ = 1;
  int rounds_ = 0;  // even: each turns both halves
};

}  // namespace bedplate::data
