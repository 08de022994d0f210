#include "repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/crc32c.h"
#include "data/packed_layout.h"
#include "data/tar_format.h"

namespace bedplate::fuzz {
namespace {

template <typename T>
T read(std::string_view bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <typename T>
void write(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// `size` bytes from `at` on, or what there is of them.
std::string_view piece(std::string_view bytes, std::size_t at, std::size_t size) {
  return at > bytes.size() ? std::string_view() : bytes.substr(at, size);
}

}  // namespace

void repair_packed(std::string& shard) {
  using namespace data::packed;
  if (shard.size() < sizeof(Header)) return;
  auto header = read<Header>(shard, 0);
  header.crc = crc32c(piece(shard, sizeof header, header.schema_bytes), crc_of(header));
  write(shard, 0, header);
  for (std::size_t at = kPage; at + sizeof(BlockHeader) <= shard.size(); at += kPage) {
    auto block = read<BlockHeader>(shard, at);
    if (std::memcmp(block.magic, kBlockMagic, sizeof block.magic) != 0) continue;
    const std::size_t table = std::size_t{block.records} * sizeof(Entry);
    block.table_crc = crc32c(piece(shard, at + sizeof block, table));
    block.crc = crc_of(block);
    write(shard, at, block);
  }
  if (shard.size() < sizeof(Header) + sizeof(Trailer)) return;
  const std::size_t end = shard.size() - sizeof(Trailer);
  auto trailer = read<Trailer>(shard, end);
  trailer.file_bytes = shard.size();
  if (trailer.index_offset <= end)
    trailer.index_crc =
        crc32c(std::string_view(shard).substr(trailer.index_offset, end - trailer.index_offset));
  trailer.crc = crc_of(trailer);
  write(shard, end, trailer);
}

void repair_tar(std::string& archive) {
  constexpr std::size_t kBlock = data::kTarBlock;
  constexpr std::size_t kChecksum = 148;
  for (std::size_t at = 0; at + kBlock <= archive.size(); at += kBlock) {
    if (archive.compare(at + 257, 5, "ustar") != 0) continue;
    std::uint32_t sum = 8 * ' ';
    for (std::size_t i = 0; i < kBlock; ++i) {
      if (i < kChecksum || i >= kChecksum + 8) sum += static_cast<unsigned char>(archive[at + i]);
    }
    archive.replace(at + kChecksum, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  }
}

void repair_tfrecord(std::string& file) {
  const auto masked = [](std::string_view text) {
    return std::rotr(crc32c(text), 15) + 0xa282ead8U;
  };
  for (std::size_t at = 0; at + 12 <= file.size();) {
    const auto bytes = read<std::uint64_t>(file, at);
    write(file, at + 8, masked(std::string_view(file).substr(at, 8)));
    const std::size_t left = file.size() - at - 12;
    if (left < 4 || bytes > left - 4) return;
    write(file, at + 12 + bytes, masked(std::string_view(file).substr(at + 12, bytes)));
    at += 16 + bytes;
  }
}

void repair_sidecar_or_table(std::string& bytes) {
  if (bytes.size() < 32) return;
  const std::string_view all = bytes;
  write(bytes, 28, crc32c(all.substr(32), crc32c(all.substr(0, 28))));
}

}  // namespace bedplate::fuzz
