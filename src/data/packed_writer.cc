#include "data/packed_writer.h"

#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"

namespace bedplate::data {
namespace {

using namespace packed;

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <typename T>
std::string_view bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

PackedWriter::PackedWriter(std::unique_ptr<store::ObjectWriter> out, Schema schema,
                           PackedOptions options)
    : out_(std::move(out)), schema_(std::move(schema)), options_(options) {
  if (options_.block_bytes < kPage || options_.block_bytes > std::int64_t{1} << 30)
    throw Error(Code::kInvalid, "blocks of {} bytes cannot be written: 4 KiB to 1 GiB",
                options_.block_bytes);
  const std::string json = schema_.to_json();
  Header header{};
  std::memcpy(header.magic, kHeaderMagic, sizeof header.magic);
  header.schema_bytes = static_cast<std::uint32_t>(json.size());
  header.header_bytes = static_cast<std::uint32_t>(rounded_up(sizeof header + json.size(), kPage));
  header.crc = crc32c(json, crc_of(header));
  write(bytes_of(header));
  write(json);
  pad_to_page();
}

void PackedWriter::add(std::span<const std::span<const std::byte>> values) {
  const std::size_t begin = rounded_up(data_.size(), kRecordAlign);
  std::string record;
  schema_.append(values, record);
  if (record.size() > UINT32_MAX)
    throw Error(Code::kInvalid, "a sample of {} bytes is too large: at most 4 GiB", record.size());
  if (!data_.empty() && begin + record.size() > static_cast<std::size_t>(options_.block_bytes)) {
    flush_block();
    return add(values);
  }
  data_.resize(begin, '\0');
  data_ += record;
  places_.push_back(begin);
  entries_.push_back({static_cast<std::uint32_t>(record.size()), crc32c(record)});
}

void PackedWriter::flush_block() {
  const std::span<const Entry> table = std::span(entries_).subspan(flushed_);
  if (table.empty()) return;
  BlockHeader header{};
  std::memcpy(header.magic, kBlockMagic, sizeof header.magic);
  header.number = blocks_++;
  header.first_record = flushed_;
  header.data_bytes = data_.size();
  header.records = static_cast<std::uint32_t>(table.size());
  header.table_crc = crc32c(bytes_of(table));
  header.crc = crc_of(header);
  write(bytes_of(header));
  write(bytes_of(table));
  pad_to_page();
  for (std::size_t i = flushed_; i < places_.size(); ++i)
    places_[i] += static_cast<std::uint64_t>(written_);
  write(data_);
  pad_to_page();
  data_.clear();
  flushed_ = entries_.size();
}

std::int64_t PackedWriter::bytes() const {
  const std::size_t open = entries_.size() - flushed_;
  std::uint64_t all = static_cast<std::uint64_t>(written_);
  if (open > 0) {
    all += rounded_up(sizeof(BlockHeader) + open * sizeof(Entry), kPage) +
           rounded_up(data_.size(), kPage);
  }
  return static_cast<std::int64_t>(all + entries_.size() * (sizeof(std::uint64_t) + sizeof(Entry)) +
                                   sizeof(Trailer));
}

store::ObjectInfo PackedWriter::finish() {
  flush_block();
  Trailer trailer{};
  trailer.index_offset = static_cast<std::uint64_t>(written_);
  trailer.records = entries_.size();
  trailer.blocks = blocks_;
  const std::string_view places = bytes_of(std::span<const std::uint64_t>(places_));
  const std::string_view entries = bytes_of(std::span<const Entry>(entries_));
  trailer.file_bytes = trailer.index_offset + places.size() + entries.size() + sizeof trailer;
  trailer.index_crc = crc32c(entries, crc32c(places));
  std::memcpy(trailer.magic, kTrailerMagic, sizeof trailer.magic);
  trailer.crc = crc_of(trailer);
  write(places);
  write(entries);
  write(bytes_of(trailer));
  return out_->commit();
}

void PackedWriter::write(std::string_view bytes) {
  out_->write(std::as_bytes(std::span(bytes)));
  written_ += std::ssize(bytes);
}

void PackedWriter::pad_to_page() {
  static constexpr char kZeros[kPage] = {};
  const auto over = static_cast<std::size_t>(written_ % kPage);
  if (over > 0) write({kZeros, kPage - over});
}

}  // namespace bedplate::data
