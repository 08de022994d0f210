#include "data/object_table.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <ranges>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/text.h"
#include "store/store.h"

namespace bedplate::data {
namespace {

static_assert(std::endian::native == std::endian::little);

// The text follows, then the rows, each with its name and its version.
struct Header {
  char magic[ObjectTable::kMagicBytes];
  std::uint64_t rows;
  std::uint32_t text_bytes;
  std::uint32_t flags;  // 0; a reader refuses others
  std::uint32_t zero;
  std::uint32_t crc;  // of the 28 bytes before and of all that follows
};
static_assert(sizeof(Header) == 32);

struct Row {
  std::uint64_t size;
  std::uint64_t number;
  std::uint32_t name_bytes;
  std::uint32_t version_bytes;
};
static_assert(sizeof(Row) == 24);

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <typename T>
T read(std::string_view bytes, std::uint64_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

std::uint32_t crc_of(const Header& header, std::string_view rest) {
  return crc32c(rest, crc32c(bytes_of(header).substr(0, offsetof(Header, crc))));
}

}  // namespace

std::string ObjectTable::write(std::string_view magic, std::string_view text,
                               std::span<const ObjectRow> rows) {
  BEDPLATE_CHECK(magic.size() == kMagicBytes);
  std::string rest(text);
  std::string_view before;
  for (const ObjectRow& one : rows) {
    store::check_key(one.name);
    if (one.name <= before)
      throw Error(Code::kInvalid, "{} does not come behind {}", to_utf8(one.name), to_utf8(before));
    before = one.name;
    rest +=
        bytes_of(Row{static_cast<std::uint64_t>(one.size), static_cast<std::uint64_t>(one.number),
                     static_cast<std::uint32_t>(one.name.size()),
                     static_cast<std::uint32_t>(one.version.size())});
    rest += one.name;
    rest += one.version;
  }
  Header header{};
  std::memcpy(header.magic, magic.data(), sizeof header.magic);
  header.rows = rows.size();
  header.text_bytes = static_cast<std::uint32_t>(text.size());
  header.crc = crc_of(header, rest);
  return std::string(bytes_of(header)) + rest;
}

ObjectTable::ObjectTable(std::string bytes, std::string_view magic) : bytes_(std::move(bytes)) {
  const auto header = bytes_.size() < kHeader ? Header{} : read<Header>(bytes_, 0);
  if (std::string_view(header.magic, sizeof header.magic) != magic)
    throw Error(Code::kCorrupt, "it begins otherwise");
  const std::string_view rest = std::string_view(bytes_).substr(kHeader);
  if (header.crc != crc_of(header, rest)) throw Error(Code::kCorrupt, "its checksum is wrong");
  if (header.flags != 0)
    throw Error(Code::kUnsupported, "it was written by a newer Bedplate: update this one");
  if (header.text_bytes > rest.size() || header.rows > rest.size() / sizeof(Row))
    throw Error(Code::kCorrupt, "its header has impossible sizes");
  text_bytes_ = header.text_bytes;
  places_.reserve(header.rows);
  std::uint64_t at = kHeader + text_bytes_;
  for (std::uint64_t i = 0; i < header.rows; ++i) {
    places_.push_back(at);
    at = check_row(at);
    if (i > 0 && row_at(places_[i]).name <= row_at(places_[i - 1]).name)
      throw Error(Code::kCorrupt, "its names are not in order");
  }
  if (at != bytes_.size()) throw Error(Code::kCorrupt, "it does not end with its last row");
}

std::uint64_t ObjectTable::check_row(std::uint64_t place) const {
  const auto impossible = [] { return Error(Code::kCorrupt, "one of its rows is impossible"); };
  if (bytes_.size() - place < sizeof(Row)) throw impossible();
  const auto row = read<Row>(bytes_, place);
  const std::uint64_t left = bytes_.size() - place - sizeof row;
  if (row.name_bytes > left || row.version_bytes > left - row.name_bytes || row.size > kMost ||
      row.number > kMost)
    throw impossible();
  try {
    store::check_key(row_at(place).name);
  } catch (const Error& error) {
    throw Error(Code::kCorrupt, "{}", error.what());
  }
  return place + sizeof row + row.name_bytes + row.version_bytes;
}

ObjectRow ObjectTable::row_at(std::uint64_t place) const {
  const auto row = read<Row>(bytes_, place);
  const std::string_view rest = std::string_view(bytes_).substr(place + sizeof row);
  return {rest.substr(0, row.name_bytes), static_cast<std::int64_t>(row.size),
          static_cast<std::int64_t>(row.number), rest.substr(row.name_bytes, row.version_bytes)};
}

std::optional<ObjectRow> ObjectTable::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(places_, name, {},
                                           [&](std::uint64_t place) { return row_at(place).name; });
  if (at == places_.end() || row_at(*at).name != name) return std::nullopt;
  return row_at(*at);
}

std::int64_t ObjectTable::memory_bytes() const {
  return static_cast<std::int64_t>(bytes_.capacity() + places_.capacity() * sizeof places_[0]);
}

}  // namespace bedplate::data
