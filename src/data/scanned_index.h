// The index of a shard that has none of its own: made by one scan, kept in a sidecar beside it.
//
//   const std::string sidecar = index->sidecar();               // to be put as NAME.bpidx
//   auto samples = read_sidecar(sidecar, kTarSidecarMagic, info);   // nullopt: of another shard
//
// 16 bytes of memory a sample. The layout of a sidecar: docs/formats.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "data/format.h"
#include "data/shard_index.h"
#include "store/store.h"

namespace bedplate::data {

constexpr std::string_view kSidecarSuffix = ".bpidx";
constexpr std::int64_t kMostSidecarBytes = 4 * kGiB;

struct ScannedSample {
  std::uint64_t offset;
  std::uint32_t bytes;
  std::uint32_t crc;  // CRC32C of them
};
static_assert(sizeof(ScannedSample) == 16);

class ScannedIndex : public ShardIndex {
 public:
  // `magic`: eight bytes that name the format in its sidecars; static.
  ScannedIndex(store::ObjectInfo shard, std::vector<ScannedSample> samples, std::string_view magic)
      : ShardIndex(std::move(shard)), samples_(std::move(samples)), magic_(magic) {}

  std::int64_t samples() const override { return std::ssize(samples_); }
  Extent extent(std::int64_t sample) const override {
    const ScannedSample& one = samples_[static_cast<std::size_t>(sample)];
    return {static_cast<std::int64_t>(one.offset), one.bytes, one.crc};
  }
  std::int64_t memory_bytes() const override {
    return static_cast<std::int64_t>(samples_.capacity() * sizeof(ScannedSample));
  }
  std::string sidecar() const;

 private:
  std::vector<ScannedSample> samples_;
  std::string_view magic_;
};

// The samples as they were kept; nullopt when the sidecar is not of a shard of this size and
// version. Error{kCorrupt} when it is damaged.
std::optional<std::vector<ScannedSample>> read_sidecar(std::string_view sidecar,
                                                       std::string_view magic,
                                                       const store::ObjectInfo& shard);

// The sidecar beside the shard, if it is there and of this very shard.
std::optional<std::vector<ScannedSample>> find_sidecar(store::Store& store, std::string_view magic,
                                                       const store::ObjectInfo& shard,
                                                       Deadline deadline);

}  // namespace bedplate::data
