// The bytes of a packed shard, as docs/formats.md specifies them. All numbers little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/crc32c.h"

namespace bedplate::data::packed {

static_assert(std::endian::native == std::endian::little);

constexpr std::int64_t kPage = 4096;  // header, blocks, their data and the index begin at multiples
constexpr std::int64_t kRecordAlign = 8;

constexpr char kHeaderMagic[8] = {'B', 'P', 'S', 'H', 'A', 'R', 'D', '1'};
constexpr char kBlockMagic[8] = {'B', 'P', 'B', 'L', 'O', 'C', 'K', '1'};
constexpr char kTrailerMagic[8] = {'B', 'P', 'I', 'N', 'D', 'E', 'X', '1'};

// At byte 0; the schema's JSON follows, then zeros up to header_bytes.
struct Header {
  char magic[8];
  std::uint32_t header_bytes;
  std::uint32_t schema_bytes;
  std::uint32_t flags;  // 0; a reader refuses others
  std::uint32_t crc;    // of the 20 bytes before and of the schema
};
static_assert(sizeof(Header) == 24);

// Records × Entry follow, then zeros up to the data, which begins at the next page.
struct BlockHeader {
  char magic[8];
  std::uint64_t number;        // 0, 1, …
  std::uint64_t first_record;  // of the shard
  std::uint64_t data_bytes;
  std::uint32_t records;
  std::uint32_t table_crc;  // of the entries
  std::uint32_t flags;      // 0; a reader refuses others
  std::uint32_t crc;        // of the 44 bytes before
};
static_assert(sizeof(BlockHeader) == 48);

struct Entry {
  std::uint32_t bytes;
  std::uint32_t crc;  // of the record's bytes
};

// The file's last bytes. The index lies before it: records × u64 with the place of each record in
// the file, then records × Entry.
struct Trailer {
  std::uint64_t index_offset;
  std::uint64_t records;
  std::uint64_t blocks;
  std::uint64_t file_bytes;
  std::uint32_t index_crc;
  std::uint32_t flags;  // 0; a reader refuses others
  std::uint32_t zero;
  std::uint32_t crc;  // of the 44 bytes before
  char magic[8];
};
static_assert(sizeof(Trailer) == 56);

// What a head's own checksum has to be: that of the bytes before it.
template <typename Head>
std::uint32_t crc_of(const Head& head) {
  return crc32c(std::string_view(reinterpret_cast<const char*>(&head), offsetof(Head, crc)));
}

constexpr std::uint64_t rounded_up(std::uint64_t at, std::uint64_t to) {
  return (at + to - 1) / to * to;
}

}  // namespace bedplate::data::packed
