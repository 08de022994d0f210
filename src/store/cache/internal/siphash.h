// SipHash-2-4 with 128 bits (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, and
// its reference implementation's 128-bit form): names that nobody can make collide without the key.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace bedplate::store::cache {

using Hash128 = std::array<std::uint64_t, 2>;

Hash128 siphash(const Hash128& key, std::string_view bytes);

}  // namespace bedplate::store::cache
