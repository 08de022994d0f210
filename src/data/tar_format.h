// The members of a tar archive: POSIX ustar and pax (IEEE Std 1003.1-2017, "pax"), and GNU's long
// names and large numbers (GNU tar manual, "Basic Tar Format"). Sparse members are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace bedplate::data {

constexpr std::int64_t kTarBlock = 512;

struct TarMember {
  std::string name;
  std::int64_t begin = 0;  // of its first header, those that go before it included
  std::int64_t data = 0;   // of its content
  std::int64_t size = 0;   // bytes of its content
  bool regular = false;    // else a folder, a link, a device
};

// One header, or what it says of those behind it.
struct TarHeader {
  enum class Kind { kEnd, kMember, kPax, kGlobalPax, kLongName, kLongLink } kind = Kind::kEnd;
  std::string name;
  std::int64_t size = 0;
  bool regular = false;
};
// Of 512 bytes. Error{kCorrupt} for a wrong checksum or impossible numbers, kUnsupported for sparse
// members.
TarHeader parse_tar_header(std::span<const std::byte> block);

// What the extended headers before a member say; empty when they say nothing.
struct TarExtended {
  std::optional<std::string> name;
  std::optional<std::int64_t> size;
};
// Adds the content of a pax header ("27 path=…\n" …). Error{kCorrupt} when it is none.
void parse_pax(std::string_view content, TarExtended& extended);

// Of a header with this content; does nothing for those that say nothing of the next member.
void take_extended(const TarHeader& header, std::string_view content, TarExtended& extended);

// The headers of a regular file: one block, or three with a pax header for long names and sizes.
// Owner 0, mode 0644, time 0: equal samples make equal archives.
std::string make_tar_header(std::string_view name, std::int64_t size);

// A member's name as WebDataset splits it: "a/b.seg.png" → {"a/b", "seg.png"}. nullopt for names
// without a dot and for those between two double underscores, which belong to no sample.
struct TarName {
  std::string_view key;
  std::string_view field;
};
std::optional<TarName> split_tar_name(std::string_view name);

constexpr std::int64_t padded_to_block(std::int64_t size) {
  return (size + kTarBlock - 1) / kTarBlock * kTarBlock;
}

}  // namespace bedplate::data
