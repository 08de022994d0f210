#include "data/scanned_index.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/text.h"

namespace bedplate::data {
namespace {

static_assert(std::endian::native == std::endian::little);

// The version's bytes follow, then the samples.
struct SidecarHeader {
  char magic[8];
  std::uint64_t shard_bytes;
  std::uint64_t samples;
  std::uint32_t version_bytes;
  std::uint32_t crc;  // of the 28 bytes before and of all that follows
};
static_assert(sizeof(SidecarHeader) == 32);

}  // namespace

std::string ScannedIndex::sidecar() const {
  SidecarHeader header{};
  BEDPLATE_CHECK(magic_.size() == sizeof header.magic);
  std::memcpy(header.magic, magic_.data(), sizeof header.magic);
  header.shard_bytes = static_cast<std::uint64_t>(object_.size);
  header.samples = samples_.size();
  header.version_bytes = static_cast<std::uint32_t>(object_.version.size());
  std::string rest = object_.version;
  rest.append(reinterpret_cast<const char*>(samples_.data()),
              samples_.size() * sizeof(ScannedSample));
  const std::string_view head(reinterpret_cast<const char*>(&header), sizeof header);
  header.crc = crc32c(rest, crc32c(head.substr(0, offsetof(SidecarHeader, crc))));
  return std::string(head) + rest;
}

std::optional<std::vector<ScannedSample>> read_sidecar(std::string_view sidecar,
                                                       std::string_view magic,
                                                       const store::ObjectInfo& shard) {
  const auto corrupt = [&] {
    return Error(Code::kCorrupt, "the index of {} is damaged; it can be made again",
                 to_utf8(shard.key));
  };
  SidecarHeader header{};
  if (sidecar.size() < sizeof header) throw corrupt();
  std::memcpy(&header, sidecar.data(), sizeof header);
  const std::string_view rest = sidecar.substr(sizeof header);
  const std::string_view head = sidecar.substr(0, offsetof(SidecarHeader, crc));
  if (std::string_view(header.magic, sizeof header.magic) != magic ||
      header.crc != crc32c(rest, crc32c(head)) || header.version_bytes > rest.size() ||
      (rest.size() - header.version_bytes) % sizeof(ScannedSample) != 0 ||
      (rest.size() - header.version_bytes) / sizeof(ScannedSample) != header.samples)
    throw corrupt();
  if (header.shard_bytes != static_cast<std::uint64_t>(shard.size) ||
      rest.substr(0, header.version_bytes) != shard.version)
    return std::nullopt;
  std::vector<ScannedSample> samples(header.samples);
  if (!samples.empty()) {
    std::memcpy(samples.data(), rest.data() + header.version_bytes,
                samples.size() * sizeof(ScannedSample));
  }
  for (const ScannedSample& one : samples) {
    if (one.offset > header.shard_bytes || one.bytes > header.shard_bytes - one.offset)
      throw corrupt();
  }
  return samples;
}

std::optional<std::vector<ScannedSample>> find_sidecar(store::Store& store, std::string_view magic,
                                                       const store::ObjectInfo& shard,
                                                       Deadline deadline) {
  const std::string key = shard.key + std::string(kSidecarSuffix);
  if (!store.find(key, deadline)) return std::nullopt;
  return read_sidecar(store::get(store, key, kMostSidecarBytes, deadline), magic, shard);
}

}  // namespace bedplate::data
