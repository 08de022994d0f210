#include "data/packed_index.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/text.h"
#include "data/packed_layout.h"

namespace bedplate::data {
namespace {

using namespace packed;

// What is read of a shard's two ends, both at once: of most all that opening needs, so that one
// that is far away is open after one round trip.
constexpr std::uint64_t kHead = kPage;
constexpr std::uint64_t kTail = 32 * kKiB;  // an index of 2,000 samples

class PackedIndex : public ShardIndex {
 public:
  PackedIndex(store::ObjectInfo shard, Schema schema, std::span<const std::uint64_t> places,
              std::span<const Entry> entries)
      : ShardIndex(std::move(shard)), schema_(std::move(schema)) {
    records_.reserve(places.size());
    for (std::size_t i = 0; i < places.size(); ++i) records_.push_back({places[i], entries[i]});
  }

  std::int64_t samples() const override { return std::ssize(records_); }

  Extent extent(std::int64_t sample) const override {
    const Record& record = records_[static_cast<std::size_t>(sample)];
    return {static_cast<std::int64_t>(record.place), record.entry.bytes, record.entry.crc};
  }

  void unpack(std::int64_t, std::span<const std::byte> raw, Sample& out) const override {
    Schema::Values values;
    schema_.parse(raw, values);
    out.clear();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Column& column = schema_.columns()[i];
      out.fields.push_back(
          {column.name, column.dtype, Schema::shape_of(column, values[i].size()), values[i]});
    }
  }

  std::optional<FixedPlace> fixed_place(std::string_view field) const override {
    return schema_.fixed_place(field);
  }

  const Schema* schema() const override { return &schema_; }

  std::int64_t memory_bytes() const override {
    return static_cast<std::int64_t>(records_.capacity() * sizeof records_[0]);
  }

 private:
  struct Record {  // one cache line is touched for a sample, not two
    std::uint64_t place;
    Entry entry;
  };
  Schema schema_;
  std::vector<Record> records_;
};

template <typename T>
std::span<std::byte> writable(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

// One shard while it is opened.
class Opening {
 public:
  Opening(store::Store& store, const store::ObjectInfo& info, Deadline deadline)
      : store_(store), info_(info), deadline_(deadline) {}

  std::shared_ptr<const ShardIndex> open(CutOff cut_off) {
    read_ends();
    read_header();
    if (const auto trailer = read_trailer()) return from_trailer(*trailer);
    const std::int64_t end = scan_blocks();
    if (cut_off == CutOff::kRefuse) {
      throw corrupt(
          fmt::format("its end is missing; of {} bytes, {} hold {} whole samples, which can be "
                      "recovered",
                      info_.size, end, entries_.size()));
    }
    return make();
  }

 private:
  Error corrupt(std::string_view what) const {
    return {Code::kCorrupt, "{} in {} is a damaged shard: {}", to_utf8(info_.key), store_.url(),
            what};
  }
  Error too_new() const {
    return {Code::kUnsupported, "{} in {} was written by a newer Bedplate: update this one",
            to_utf8(info_.key), store_.url()};
  }

  struct Part {
    std::uint64_t offset = 0;
    std::span<std::byte> into;
  };
  std::vector<store::Read> read_at_once(std::span<const Part> parts) {
    std::vector<store::Read> reads;
    for (const Part& part : parts) {
      reads.push_back({.key = info_.key,
                       .offset = static_cast<std::int64_t>(part.offset),
                       .into = part.into,
                       .version = info_.version,
                       .object_size = info_.size});
    }
    store_.read(reads, deadline_);
    return reads;
  }

  void read_ends() {
    const auto size = static_cast<std::uint64_t>(info_.size);
    head_.resize(std::min(size, kHead));
    tail_.resize(std::min(size - head_.size(), kTail));
    const Part ends[] = {{0, head_}, {size - tail_.size(), tail_}};
    const auto reads = read_at_once(ends);
    for (const std::size_t i : {0u, 1u}) {
      if (!reads[i].error) continue;
      if (reads[i].error->code() != Code::kIo) throw *reads[i].error;
      (i == 0 ? head_ : tail_).clear();  // a bad sector is perhaps in what is not needed
    }
  }
  // False when they are not among what was read of the ends.
  bool take_of_ends(const Part& part) {
    const auto size = static_cast<std::uint64_t>(info_.size);
    for (const Part& end : {Part{0, head_}, Part{size - tail_.size(), tail_}}) {
      if (part.offset < end.offset || part.offset - end.offset > end.into.size() ||
          part.into.size() > end.into.size() - (part.offset - end.offset))
        continue;
      std::ranges::copy(end.into.subspan(part.offset - end.offset, part.into.size()),
                        part.into.begin());
      return true;
    }
    return false;
  }
  void read(std::span<const Part> parts) {
    std::vector<Part> left;
    for (const Part& part : parts) {
      if (!take_of_ends(part)) left.push_back(part);
    }
    if (left.empty()) return;
    for (const store::Read& read : read_at_once(left)) {
      if (read.error) throw *read.error;
    }
  }
  void read(std::uint64_t offset, std::span<std::byte> into) {
    const Part part{offset, into};
    read({&part, 1});
  }
  template <typename T>
  T read_head(std::uint64_t offset) {
    T head{};
    read(offset, std::as_writable_bytes(std::span(&head, 1)));
    return head;
  }
  // A head of so many bytes lies inside the file.
  bool holds(std::uint64_t offset, std::uint64_t bytes) const {
    const auto size = static_cast<std::uint64_t>(info_.size);
    return offset <= size && bytes <= size - offset;
  }

  void read_header() {
    if (!holds(0, sizeof(Header)))
      throw Error(Code::kCorrupt, "{} in {} is no packed shard: it has {} bytes",
                  to_utf8(info_.key), store_.url(), info_.size);
    const auto header = read_head<Header>(0);
    if (std::memcmp(header.magic, kHeaderMagic, sizeof header.magic) != 0) {
      throw Error(Code::kCorrupt, "{} in {} is no packed shard: it begins otherwise",
                  to_utf8(info_.key), store_.url());
    }
    if (header.header_bytes % kPage != 0 || !holds(0, header.header_bytes) ||
        header.schema_bytes > header.header_bytes - sizeof header || header.header_bytes == 0)
      throw corrupt("its header has impossible sizes");
    std::string json(header.schema_bytes, '\0');
    read(sizeof header, std::as_writable_bytes(std::span(json)));
    if (header.crc != crc32c(json, crc_of(header))) throw corrupt("its header's checksum is wrong");
    if (header.flags != 0) throw too_new();
    schema_ = Schema::from_json(json);
    header_bytes_ = header.header_bytes;
  }

  std::optional<Trailer> read_trailer() {
    const auto size = static_cast<std::uint64_t>(info_.size);
    if (size < header_bytes_ + sizeof(Trailer)) return std::nullopt;
    const auto trailer = read_head<Trailer>(size - sizeof(Trailer));
    if (std::memcmp(trailer.magic, kTrailerMagic, sizeof trailer.magic) != 0 ||
        trailer.crc != crc_of(trailer) || trailer.file_bytes != size)
      return std::nullopt;
    if (trailer.flags != 0) throw too_new();
    return trailer;
  }

  std::shared_ptr<const ShardIndex> from_trailer(const Trailer& trailer) {
    constexpr std::uint64_t kEach = sizeof(std::uint64_t) + sizeof(Entry);
    const std::uint64_t end = static_cast<std::uint64_t>(info_.size) - sizeof(Trailer);
    if (trailer.index_offset > end || trailer.index_offset < header_bytes_ ||
        trailer.records > end / kEach || trailer.records * kEach != end - trailer.index_offset)
      throw corrupt("its index has an impossible size");
    places_.resize(trailer.records);
    entries_.resize(trailer.records);
    const Part index[] = {
        {trailer.index_offset, writable(places_)},
        {trailer.index_offset + trailer.records * sizeof(std::uint64_t), writable(entries_)}};
    read(index);
    if (crc32c(writable(entries_), crc32c(writable(places_))) != trailer.index_crc)
      throw corrupt("its index's checksum is wrong");
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (places_[i] > trailer.index_offset ||
          entries_[i].bytes > trailer.index_offset - places_[i])
        throw corrupt(fmt::format("sample {} lies outside of it", i));
    }
    return make();
  }

  // Takes the samples of all whole blocks; where they end.
  std::int64_t scan_blocks() {
    std::uint64_t at = header_bytes_;
    for (std::uint64_t number = 0; holds(at, sizeof(BlockHeader)); ++number) {
      const auto header = read_head<BlockHeader>(at);
      if (std::memcmp(header.magic, kBlockMagic, sizeof header.magic) != 0 ||
          header.crc != crc_of(header) || header.number != number ||
          header.first_record != entries_.size() || header.flags != 0)
        break;
      const std::uint64_t table_bytes = std::uint64_t{header.records} * sizeof(Entry);
      const std::uint64_t data = rounded_up(at + sizeof header + table_bytes, kPage);
      if (!holds(data, header.data_bytes)) break;
      std::vector<Entry> table(header.records);
      read(at + sizeof header, writable(table));
      if (crc32c(writable(table)) != header.table_crc || !take(table, data, header.data_bytes))
        break;
      at = rounded_up(data + header.data_bytes, kPage);
    }
    return static_cast<std::int64_t>(std::min(at, static_cast<std::uint64_t>(info_.size)));
  }

  bool take(const std::vector<Entry>& table, std::uint64_t data, std::uint64_t data_bytes) {
    std::vector<std::uint64_t> places;
    std::uint64_t in_block = 0;
    for (const Entry& entry : table) {
      in_block = rounded_up(in_block, kRecordAlign);
      places.push_back(data + in_block);
      in_block += entry.bytes;
    }
    if (in_block != data_bytes) return false;
    places_.insert(places_.end(), places.begin(), places.end());
    entries_.insert(entries_.end(), table.begin(), table.end());
    return true;
  }

  std::shared_ptr<const ShardIndex> make() {
    return std::make_shared<PackedIndex>(info_, std::move(schema_), places_, entries_);
  }

  store::Store& store_;
  const store::ObjectInfo& info_;
  Deadline deadline_;
  std::vector<std::byte> head_;
  std::vector<std::byte> tail_;  // what the head does not hold
  std::uint64_t header_bytes_ = 0;
  Schema schema_;
  std::vector<std::uint64_t> places_;
  std::vector<Entry> entries_;
};

}  // namespace

std::shared_ptr<const ShardIndex> open_packed(store::Store& store, const store::ObjectInfo& info,
                                              CutOff cut_off, Deadline deadline) {
  return Opening(store, info, deadline).open(cut_off);
}

}  // namespace bedplate::data
