#include "data/tar_index.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/text.h"
#include "data/tar_format.h"

namespace bedplate::data {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Entry {
  std::uint64_t offset;
  std::uint32_t bytes;
  std::uint32_t crc;
};
static_assert(sizeof(Entry) == 16);

// The version's bytes follow, then the samples.
struct SidecarHeader {
  char magic[8];
  std::uint64_t archive_bytes;
  std::uint64_t samples;
  std::uint32_t version_bytes;
  std::uint32_t crc;  // of the 28 bytes before and of all that follows
};
static_assert(sizeof(SidecarHeader) == 32);
constexpr char kMagic[8] = {'B', 'P', 'T', 'A', 'R', 'I', 'X', '1'};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Index : public TarIndex {
 public:
  Index(std::vector<Entry> samples, store::ObjectInfo archive)
      : TarIndex(std::move(archive)), samples_(std::move(samples)) {}

  std::int64_t samples() const override { return std::ssize(samples_); }
  Extent extent(std::int64_t sample) const override {
    const Entry& one = samples_[static_cast<std::size_t>(sample)];
    return {static_cast<std::int64_t>(one.offset), one.bytes, one.crc};
  }
  void unpack(std::int64_t sample, std::span<const std::byte> raw, Sample& out) const override;
  std::int64_t memory_bytes() const override {
    return static_cast<std::int64_t>(samples_.capacity() * sizeof(Entry));
  }

  std::string sidecar() const override {
    SidecarHeader header{};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.archive_bytes = static_cast<std::uint64_t>(object_.size);
    header.samples = samples_.size();
    header.version_bytes = static_cast<std::uint32_t>(object_.version.size());
    std::string rest = object_.version;
    rest += text_of(std::as_bytes(std::span(samples_)));
    const std::string_view head(reinterpret_cast<const char*>(&header), sizeof header);
    header.crc = crc32c(rest, crc32c(head.substr(0, offsetof(SidecarHeader, crc))));
    return std::string(head) + rest;
  }

 private:
  std::vector<Entry> samples_;
};

// The members in a piece of an archive, one after the other.
class Members {
 public:
  explicit Members(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // False at the end of the bytes.
  bool next(TarMember& member) {
    TarExtended extended;
    member.begin = at_;
    while (at_ < std::ssize(bytes_)) {
      const TarHeader header = parse_tar_header(take(kTarBlock));
      const std::span<const std::byte> content =
          take(header.kind == TarHeader::Kind::kMember ? extended.size.value_or(header.size)
                                                       : header.size);
      const std::int64_t size = std::ssize(content);
      const std::int64_t data = at_ - size;
      at_ = std::min(data + padded_to_block(size), std::ssize(bytes_));
      take_extended(header, text_of(content), extended);
      if (header.kind != TarHeader::Kind::kMember) continue;
      member = {extended.name.value_or(header.name), member.begin, data, size, header.regular};
      return true;
    }
    return false;
  }

 private:
  std::span<const std::byte> take(std::int64_t size) {
    if (size > std::ssize(bytes_) - at_)
      throw Error(Code::kCorrupt, "a member of the archive reaches beyond its sample");
    at_ += size;
    return bytes_.subspan(static_cast<std::size_t>(at_ - size), static_cast<std::size_t>(size));
  }

  std::span<const std::byte> bytes_;
  std::int64_t at_ = 0;
};

void Index::unpack(std::int64_t, std::span<const std::byte> raw, Sample& out) const {
  out.clear();
  Members members(raw);
  TarMember member;
  while (members.next(member)) {
    if (!member.regular || !split_tar_name(member.name)) continue;
    const auto content =
        raw.subspan(static_cast<std::size_t>(member.data), static_cast<std::size_t>(member.size));
    const auto [key, field] = *split_tar_name(member.name);
    out.key = key;
    out.fields.push_back({std::string(field), Dtype::kBytes, {member.size}, content});
  }
}

// An archive read once from begin to end.
class Scan {
 public:
  Scan(store::Store& store, const store::ObjectInfo& info, Deadline deadline)
      : store_(store), info_(info), deadline_(deadline) {}

  std::shared_ptr<const TarIndex> run(CutOff cut_off) {
    try {
      if (!members() && cut_off == CutOff::kRefuse) {
        throw Error(Code::kCorrupt,
                    "its end is missing: a copy that broke off? {} samples are there, which can be "
                    "recovered",
                    samples_.size());
      }
    } catch (const Error& error) {
      throw Error(error.code(), "{} in {}, near byte {}: {}", to_utf8(info_.key), store_.url(), at_,
                  error.what());
    }
    return std::make_shared<Index>(std::move(samples_), info_);
  }

 private:
  static constexpr std::int64_t kWindow = 4 * kMiB;

  // False when the archive has no end.
  bool members() {
    TarExtended extended;
    std::int64_t begin = 0;
    while (at_ + kTarBlock <= info_.size) {
      const TarHeader header = parse_tar_header(bytes_at(at_, kTarBlock));
      if (header.kind == TarHeader::Kind::kEnd) {
        close_sample();
        return true;
      }
      const bool is_member = header.kind == TarHeader::Kind::kMember;
      const std::int64_t size = is_member ? extended.size.value_or(header.size) : header.size;
      const std::int64_t data = at_ + kTarBlock;
      if (size > info_.size - data) break;
      if (!is_member && header.kind != TarHeader::Kind::kLongLink)
        take_extended(header, text_of(bytes_at(data, size)), extended);
      if (is_member) {
        take({extended.name.value_or(header.name), begin, data, size, header.regular});
        extended = {};
        begin = data + padded_to_block(size);
      }
      at_ = data + padded_to_block(size);
    }
    // The last sample may have lost members: it is not counted as whole.
    return false;
  }

  void take(const TarMember& member) {
    const auto name = split_tar_name(member.name);
    if (!member.regular || !name) return;
    if (open_ && name->key == key_) {
      if (std::ranges::find(field_names_, name->field) != field_names_.end())
        throw Error(Code::kCorrupt, "sample {} has two members {}", to_utf8(key_),
                    to_utf8(name->field));
    } else {
      close_sample();
      open_ = true;
      key_ = name->key;
      begin_ = member.begin;
      field_names_.clear();
    }
    field_names_.emplace_back(name->field);
    end_ = member.data + member.size;
  }

  void close_sample() {
    if (!open_) return;
    open_ = false;
    const std::int64_t bytes = end_ - begin_;
    if (bytes > UINT32_MAX)
      throw Error(Code::kUnsupported, "sample {} has {} bytes; a sample must be smaller than 4 GiB",
                  to_utf8(key_), bytes);
    std::uint32_t crc = 0;
    for (std::int64_t done = 0; done < bytes;) {
      const std::int64_t piece = std::min(bytes - done, kWindow);
      crc = crc32c(bytes_at(begin_ + done, piece), crc);
      done += piece;
    }
    samples_.push_back(
        {static_cast<std::uint64_t>(begin_), static_cast<std::uint32_t>(bytes), crc});
  }

  // At most kWindow bytes, which lie in the archive; valid until the next call.
  std::span<const std::byte> bytes_at(std::int64_t offset, std::int64_t size) {
    if (offset < window_begin_ || offset + size > window_begin_ + std::ssize(window_)) {
      // From the open sample's begin on, if that leaves room: its checksum is still to be made.
      std::int64_t begin = offset;
      if (open_ && begin_ < offset && offset + size - begin_ <= kWindow) begin = begin_;
      window_.resize(static_cast<std::size_t>(std::min(2 * kWindow, info_.size - begin)));
      window_begin_ = begin;
      store::read_exactly(
          store_, {.key = info_.key, .offset = begin, .into = window_, .version = info_.version},
          deadline_);
    }
    return std::span<const std::byte>(window_).subspan(
        static_cast<std::size_t>(offset - window_begin_), static_cast<std::size_t>(size));
  }

  store::Store& store_;
  const store::ObjectInfo& info_;
  Deadline deadline_;
  std::int64_t at_ = 0;
  std::vector<std::byte> window_;
  std::int64_t window_begin_ = 0;
  std::vector<Entry> samples_;
  // The sample whose members are coming.
  bool open_ = false;
  std::string key_;
  std::int64_t begin_ = 0;
  std::int64_t end_ = 0;
  std::vector<std::string> field_names_;
};

}  // namespace

std::shared_ptr<const TarIndex> scan_tar(store::Store& store, const store::ObjectInfo& info,
                                         CutOff cut_off, Deadline deadline) {
  return Scan(store, info, deadline).run(cut_off);
}

std::shared_ptr<const TarIndex> open_tar_sidecar(std::string_view sidecar,
                                                 const store::ObjectInfo& info) {
  const auto corrupt = [&] {
    return Error(Code::kCorrupt, "the index of {} is damaged; it can be made again",
                 to_utf8(info.key));
  };
  SidecarHeader header{};
  if (sidecar.size() < sizeof header) throw corrupt();
  std::memcpy(&header, sidecar.data(), sizeof header);
  const std::string_view rest = sidecar.substr(sizeof header);
  const std::string_view head = sidecar.substr(0, offsetof(SidecarHeader, crc));
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 ||
      header.crc != crc32c(rest, crc32c(head)) || header.version_bytes > rest.size() ||
      (rest.size() - header.version_bytes) % sizeof(Entry) != 0 ||
      (rest.size() - header.version_bytes) / sizeof(Entry) != header.samples)
    throw corrupt();
  if (header.archive_bytes != static_cast<std::uint64_t>(info.size) ||
      rest.substr(0, header.version_bytes) != info.version)
    return nullptr;
  std::vector<Entry> samples(header.samples);
  if (!samples.empty())
    std::memcpy(samples.data(), rest.data() + header.version_bytes, samples.size() * sizeof(Entry));
  for (const Entry& one : samples) {
    if (one.offset > header.archive_bytes || one.bytes > header.archive_bytes - one.offset)
      throw corrupt();
  }
  return std::make_shared<Index>(std::move(samples), info);
}

}  // namespace bedplate::data
