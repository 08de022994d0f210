#include "data/tar_index.h"

#include <algorithm>
#include <vector>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/text.h"
#include "data/internal/scan_window.h"
#include "data/tar_format.h"

namespace bedplate::data {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Index : public TarIndex {
 public:
  Index(store::ObjectInfo archive, std::vector<ScannedSample> samples)
      : TarIndex(std::move(archive), std::move(samples), kTarSidecarMagic) {}
  void unpack(std::int64_t sample, std::span<const std::byte> raw, Sample& out) const override;
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
      : store_(store), info_(info), window_(store, info, deadline) {}

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
    return std::make_shared<Index>(info_, std::move(samples_));
  }

 private:
  static constexpr std::int64_t kWindow = ScanWindow::kBytes / 2;

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
    // From the open sample's begin on, if that leaves room: its checksum is still to be made.
    const bool all = open_ && begin_ < offset && offset + size - begin_ <= kWindow;
    return window_.at(offset, size, all ? begin_ : offset, ScanWindow::kBytes);
  }

  store::Store& store_;
  const store::ObjectInfo& info_;
  ScanWindow window_;
  std::int64_t at_ = 0;
  std::vector<ScannedSample> samples_;
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
  auto samples = read_sidecar(sidecar, kTarSidecarMagic, info);
  return samples ? std::make_shared<Index>(info, *std::move(samples)) : nullptr;
}

std::shared_ptr<const TarIndex> open_tar(store::Store& store, const store::ObjectInfo& info,
                                         CutOff cut_off, Deadline deadline) {
  if (auto samples = find_sidecar(store, kTarSidecarMagic, info, deadline))
    return std::make_shared<Index>(info, *std::move(samples));
  return scan_tar(store, info, cut_off, deadline);
}

}  // namespace bedplate::data
