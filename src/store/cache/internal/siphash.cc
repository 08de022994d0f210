#include "store/cache/internal/siphash.h"

#include <bit>
#include <cstddef>
#include <cstring>

namespace bedplate::store::cache {
namespace {

static_assert(std::endian::native == std::endian::little);

struct State {
  std::uint64_t v0, v1, v2, v3;

  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1;
      v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  }
  void take(std::uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
  std::uint64_t sum() const { return v0 ^ v1 ^ v2 ^ v3; }
};

}  // namespace

Hash128 siphash(const Hash128& key, std::string_view bytes) {
  State state{0x736f6d6570736575U ^ key[0], 0x646f72616e646f6dU ^ key[1] ^ 0xee,
              0x6c7967656e657261U ^ key[0], 0x7465646279746573U ^ key[1]};
  const std::size_t length = bytes.size();
  std::uint64_t word = 0;
  for (; bytes.size() >= sizeof word; bytes.remove_prefix(sizeof word)) {
    std::memcpy(&word, bytes.data(), sizeof word);
    state.take(word);
  }
  word = 0;
  if (!bytes.empty()) std::memcpy(&word, bytes.data(), bytes.size());
  state.take(word | static_cast<std::uint64_t>(length) << 56);
  state.v2 ^= 0xee;
  state.rounds(4);
  const std::uint64_t first = state.sum();
  state.v1 ^= 0xdd;
  state.rounds(4);
  return {first, state.sum()};
}

}  // namespace bedplate::store::cache
