// TFRecord files: records with masked checksums, one after the other.
//
// A record (tensorflow/core/lib/io/record_writer.h): u64 bytes of the data, u32 masked CRC32C of
// those eight bytes, the data, u32 masked CRC32C of the data. The mask is a rotation and a sum, so
// that the checksum of text that holds checksums stays good.
#include <bit>
#include <cstring>
#include <vector>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/text.h"
#include "data/example.h"
#include "data/format.h"
#include "data/internal/scan_window.h"
#include "data/scanned_index.h"

namespace bedplate::data {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kSidecarMagic = "BPTFRIX1";
constexpr std::int64_t kHead = 12;
constexpr std::int64_t kTail = 4;

std::uint32_t unmasked(std::uint32_t masked) { return std::rotl(masked - 0xa282ead8U, 15); }

class TfRecordIndex : public ScannedIndex {
 public:
  TfRecordIndex(store::ObjectInfo file, std::vector<ScannedSample> samples)
      : ScannedIndex(std::move(file), std::move(samples), kSidecarMagic) {}

  void unpack(std::int64_t, std::span<const std::byte> raw, Sample& out) const override {
    out.clear();
    if (!unpack_example(raw, out))
      out.fields.push_back({"record", Dtype::kBytes, {std::ssize(raw)}, raw});
  }
};

// A file whose heads are read once from begin to end. The data's checksums go into the index: a
// damaged record is found when it is read, and is one bad sample, no bad file.
class Scan {
 public:
  Scan(store::Store& store, const store::ObjectInfo& info, Deadline deadline)
      : store_(store), info_(info), window_(store, info, deadline) {}

  std::shared_ptr<const ScannedIndex> run(CutOff cut_off) {
    if (!records() && cut_off == CutOff::kRefuse) {
      throw error(
          Code::kCorrupt,
          fmt::format("the last record is cut off: a copy that broke off? {} records before "
                      "it are there, which can be recovered",
                      samples_.size()));
    }
    samples_.shrink_to_fit();
    return std::make_shared<TfRecordIndex>(info_, std::move(samples_));
  }

 private:
  // For files of large records: only their heads are read.
  static constexpr std::int64_t kLargeRecord = kMiB;
  static constexpr std::int64_t kAheadOfLarge = 4 * kKiB;

  Error error(Code code, std::string_view what) const {
    return {code, "{} in {}, at byte {}: {}", to_utf8(info_.key), store_.url(), at_, what};
  }

  // False when the file ends within a record.
  bool records() {
    std::int64_t ahead = ScanWindow::kBytes;
    while (at_ < info_.size) {
      if (info_.size - at_ < kHead) return false;
      const std::uint64_t bytes = length_at(ahead);
      const std::int64_t data = at_ + kHead;
      if (bytes > static_cast<std::uint64_t>(info_.size - data) ||
          info_.size - data - static_cast<std::int64_t>(bytes) < kTail)
        return false;
      if (bytes > UINT32_MAX)
        throw error(Code::kUnsupported,
                    fmt::format("a record of {} bytes; samples are smaller than 4 GiB", bytes));
      const auto size = static_cast<std::int64_t>(bytes);
      ahead = size < kLargeRecord ? ScanWindow::kBytes : kAheadOfLarge;
      samples_.push_back({static_cast<std::uint64_t>(data), static_cast<std::uint32_t>(bytes),
                          unmasked(number_at<std::uint32_t>(data + size, ahead))});
      at_ = data + size + kTail;
    }
    return true;
  }

  std::uint64_t length_at(std::int64_t ahead) {
    const auto head = window_.at(at_, kHead, at_, ahead);
    std::uint32_t masked = 0;
    std::memcpy(&masked, head.data() + 8, sizeof masked);
    if (crc32c(head.first(8)) == unmasked(masked)) return number_at<std::uint64_t>(at_, ahead);
    if (head[0] == std::byte{0x1f} && head[1] == std::byte{0x8b})
      throw error(Code::kUnsupported, "it is compressed; unpack it first: gunzip");
    if (at_ == 0)
      throw error(Code::kCorrupt, "this is no TFRecord file, or a compressed or damaged one");
    throw error(Code::kCorrupt,
                fmt::format("the head of record {} is damaged, what follows cannot be found",
                            samples_.size()));
  }

  template <typename T>
  T number_at(std::int64_t offset, std::int64_t ahead) {
    T value{};
    std::memcpy(&value, window_.at(offset, sizeof value, offset, ahead).data(), sizeof value);
    return value;
  }

  store::Store& store_;
  const store::ObjectInfo& info_;
  ScanWindow window_;
  std::int64_t at_ = 0;
  std::vector<ScannedSample> samples_;
};

// "a.tfrecord", "a.tfrecords", "a.tfrecord-00003-of-00100", and those with .gz, to be told about.
bool is_shard(std::string_view key) {
  constexpr std::string_view kExtension = ".tfrecord";
  const std::size_t at = key.rfind(kExtension);
  if (at == std::string_view::npos) return false;
  std::string_view rest = key.substr(at + kExtension.size());
  if (rest.ends_with(".gz")) rest.remove_suffix(3);
  if (rest.starts_with('s')) rest.remove_prefix(1);
  if (rest.empty()) return true;
  const auto parts = split(rest.substr(1), '-');
  const auto is_number = [](std::string_view text) { return to_int(text).value_or(-1) >= 0; };
  return rest.front() == '-' && parts.size() == 3 && parts[1] == "of" && is_number(parts[0]) &&
         is_number(parts[2]);
}

std::shared_ptr<const ScannedIndex> scan(const std::shared_ptr<store::Store>& store,
                                         const store::ObjectInfo& shard,
                                         const ShardOptions& options) {
  return Scan(*store, shard, Deadline::after(options.timeout)).run(options.cut_off);
}

std::shared_ptr<const ShardIndex> open(const std::shared_ptr<store::Store>& store,
                                       const store::ObjectInfo& shard,
                                       const ShardOptions& options) {
  const Deadline deadline = Deadline::after(options.timeout);
  if (auto samples = find_sidecar(*store, kSidecarMagic, shard, deadline))
    return std::make_shared<TfRecordIndex>(shard, *std::move(samples));
  return Scan(*store, shard, deadline).run(options.cut_off);
}

}  // namespace

extern const Format kTfRecord = {
    .name = "tfrecord",
    .summary = "TFRecord files; features of a tf.train.Example are fields, other records are one",
    .is_shard = is_shard,
    .open = open,
    .scan = scan,
    .sidecar_magic = kSidecarMagic,
};

}  // namespace bedplate::data
