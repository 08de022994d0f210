#include "data/tar_format.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::data {
namespace {

struct Place {
  std::size_t at;
  std::size_t length;
};
constexpr Place kName = {0, 100};
constexpr Place kMode = {100, 8};
constexpr Place kUid = {108, 8};
constexpr Place kGid = {116, 8};
constexpr Place kSize = {124, 12};
constexpr Place kTime = {136, 12};
constexpr Place kChecksum = {148, 8};
constexpr std::size_t kType = 156;
constexpr Place kMagic = {257, 6};
constexpr Place kVersion = {263, 2};
constexpr Place kPrefix = {345, 155};
constexpr std::int64_t kMostExtended = 1 << 20;  // of a pax header or a long name
constexpr std::int64_t kMostOctal = 077777777777;

std::string_view text_at(std::string_view block, Place place) {
  const std::string_view field = block.substr(place.at, place.length);
  return field.substr(0, std::min(field.find('\0'), field.size()));
}

// Octal digits, or GNU's base 256 when the first bit is set.
std::int64_t number_at(std::string_view block, Place place) {
  const std::string_view field = block.substr(place.at, place.length);
  const auto first = static_cast<unsigned char>(field[0]);
  if ((first & 0x80) != 0) {
    std::uint64_t value = first & 0x7f;
    for (const char c : field.substr(1)) {
      if (value > (std::numeric_limits<std::int64_t>::max() >> 8))
        throw Error(Code::kCorrupt, "a member of the archive has an impossible size");
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return static_cast<std::int64_t>(value);
  }
  const std::string_view digits = trim(text_at(block, place));
  if (digits.empty()) return 0;
  const auto value = to_int(digits, 8);
  if (!value || *value < 0)
    throw Error(Code::kCorrupt, "a header of the archive has a number that is none: '{}'",
                to_utf8(digits));
  return *value;
}

// The checksum's own field counts as spaces. Old writers summed signed bytes.
bool has_right_checksum(std::string_view block) {
  std::int64_t unsigned_sum = 0;
  std::int64_t signed_sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const bool own = i >= kChecksum.at && i < kChecksum.at + kChecksum.length;
    const char c = own ? ' ' : block[i];
    unsigned_sum += static_cast<unsigned char>(c);
    signed_sum += static_cast<signed char>(c);
  }
  const std::int64_t said = number_at(block, kChecksum);
  return said == unsigned_sum || said == signed_sum;
}

std::string name_of(std::string_view block) {
  std::string name(text_at(block, kName));
  const bool posix = block.substr(kMagic.at, 6) == std::string_view("ustar\0", 6);
  const std::string_view prefix = posix ? text_at(block, kPrefix) : std::string_view();
  return prefix.empty() ? name : fmt::format("{}/{}", prefix, name);
}

TarHeader::Kind kind_of(char type) {
  switch (type) {
    case 'x':
    case 'X':
      return TarHeader::Kind::kPax;
    case 'g':
      return TarHeader::Kind::kGlobalPax;
    case 'L':
      return TarHeader::Kind::kLongName;
    case 'K':
      return TarHeader::Kind::kLongLink;
    default:
      return TarHeader::Kind::kMember;
  }
}

void put(std::string& block, Place place, std::string_view text) {
  block.replace(place.at, text.size(), text);
}

std::string one_header(std::string_view name, std::int64_t size, char type) {
  std::string block(static_cast<std::size_t>(kTarBlock), '\0');
  put(block, kName, name.substr(0, kName.length));
  put(block, kMode, "0000644");
  put(block, kUid, "0000000");
  put(block, kGid, "0000000");
  put(block, kSize, fmt::format("{:011o}", size));
  put(block, kTime, "00000000000");
  block[kType] = type;
  put(block, kMagic, std::string_view("ustar\0", 6));
  put(block, kVersion, "00");
  put(block, kChecksum, "        ");
  std::uint32_t sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(block, kChecksum, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return block;
}

// "LENGTH KEY=VALUE\n", where the length counts itself.
std::string pax_record(std::string_view key, std::string_view value) {
  const std::size_t rest = key.size() + value.size() + 3;
  std::size_t length = rest + 1;
  while (rest + fmt::formatted_size("{}", length) != length) ++length;
  return fmt::format("{} {}={}\n", length, key, value);
}

}  // namespace

TarHeader parse_tar_header(std::span<const std::byte> bytes) {
  const std::string_view block(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  BEDPLATE_CHECK(std::ssize(block) == kTarBlock);
  if (std::ranges::all_of(block, [](char c) { return c == '\0'; })) return {};
  if (!has_right_checksum(block))
    throw Error(Code::kCorrupt, "a header of the archive has a wrong checksum");
  const char type = block[kType];
  if (type == 'S' || type == 'D' || type == 'M' || type == 'V')
    throw Error(Code::kUnsupported,
                "{} is of a kind of GNU tar's own (type {}: sparse, incremental or in several "
                "volumes); pack it with plain tar",
                to_utf8(name_of(block)), type);
  TarHeader header{kind_of(type), name_of(block), number_at(block, kSize)};
  header.regular = type == '0' || type == '\0' || type == '7';
  if (header.regular && header.name.ends_with('/')) header.regular = false;  // as V7 wrote folders
  if (header.kind == TarHeader::Kind::kMember) {
    // Links and devices have no content, whatever their size says.
    if (type >= '1' && type <= '6') header.size = 0;
  } else if (header.size > kMostExtended) {
    throw Error(Code::kCorrupt, "an extended header of the archive has {} bytes", header.size);
  }
  return header;
}

void parse_pax(std::string_view content, TarExtended& extended) {
  const auto corrupt = [] {
    return Error(Code::kCorrupt, "a pax header of the archive is damaged");
  };
  while (!content.empty()) {
    const auto space = content.find(' ');
    const auto length = to_int(content.substr(0, std::min(space, content.size())));
    if (space == std::string_view::npos || !length || *length < 5 ||
        *length > std::ssize(content) || static_cast<std::size_t>(*length) < space + 3 ||
        content[static_cast<std::size_t>(*length) - 1] != '\n')
      throw corrupt();
    const auto record = content.substr(space + 1, static_cast<std::size_t>(*length) - space - 2);
    const auto equals = record.find('=');
    if (equals == std::string_view::npos) throw corrupt();
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    if (key == "path") extended.name = value;
    if (key == "size") {
      extended.size = to_int(value);
      if (!extended.size || *extended.size < 0) throw corrupt();
    }
    if (key.starts_with("GNU.sparse."))
      throw Error(Code::kUnsupported, "a member of the archive is sparse; pack it with plain tar");
    content.remove_prefix(static_cast<std::size_t>(*length));
  }
}

void take_extended(const TarHeader& header, std::string_view content, TarExtended& extended) {
  if (header.kind == TarHeader::Kind::kPax) parse_pax(content, extended);
  if (header.kind == TarHeader::Kind::kLongName)
    extended.name = content.substr(0, std::min(content.find('\0'), content.size()));
}

std::string make_tar_header(std::string_view name, std::int64_t size) {
  if (name.size() <= kName.length && size <= kMostOctal) return one_header(name, size, '0');
  std::string pax;
  if (name.size() > kName.length) pax += pax_record("path", name);
  if (size > kMostOctal) pax += pax_record("size", fmt::format("{}", size));
  std::string out = one_header("pax", std::ssize(pax), 'x') + pax;
  out.resize(static_cast<std::size_t>(padded_to_block(std::ssize(out))), '\0');
  return out + one_header(name, std::min(size, kMostOctal), '0');
}

std::optional<TarName> split_tar_name(std::string_view name) {
  const auto slash = name.rfind('/');
  const std::size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const std::string_view file = name.substr(base);
  if (file.starts_with("__") && file.ends_with("__")) return std::nullopt;
  const auto dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return std::nullopt;
  return TarName{name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace bedplate::data
