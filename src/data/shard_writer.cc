#include "data/shard_writer.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "data/decode/npy.h"
#include "data/packed_writer.h"
#include "data/tar_format.h"
#include "data/tar_writer.h"

namespace bedplate::data {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class PackedShardWriter : public ShardWriter {
 public:
  PackedShardWriter(const Schema& schema, std::unique_ptr<store::ObjectWriter> out)
      : columns_(schema.columns().begin(), schema.columns().end()),
        writer_(std::move(out), schema) {}

  void add(const Sample& sample, std::int64_t) override {
    values_.clear();
    std::size_t taken = 0;
    for (const Column& column : columns_) {
      const auto field = std::ranges::find(sample.fields, column.name, &Field::name);
      if (field != sample.fields.end()) {
        check(*field, column);
        values_.push_back(field->bytes);
        ++taken;
      } else if (column.name == kKeyColumn) {
        if (column.dtype == Dtype::kUtf8 && !is_utf8(sample.key)) {
          throw Error(Code::kInvalid, "its key '{}' is no UTF-8 text; --keys bytes keeps it",
                      to_utf8(sample.key));
        }
        values_.push_back(bytes_of(sample.key));
      } else {
        throw Error(Code::kInvalid, "it has no {}; others have {}", to_utf8(column.name), names());
      }
    }
    if (taken < sample.fields.size()) {
      for (const Field& field : sample.fields) {
        if (std::ranges::find(columns_, field.name, &Column::name) == columns_.end())
          throw Error(Code::kInvalid, "it has a {}; others have only {}", to_utf8(field.name),
                      names());
      }
    }
    writer_.add(values_);
  }

  std::int64_t samples() const override { return writer_.records(); }
  store::ObjectInfo finish() override { return writer_.finish(); }

 private:
  std::string names() const {
    std::vector<std::string_view> all;
    for (const Column& column : columns_) all.push_back(column.name);
    return fmt::format("{}", fmt::join(all, ", "));
  }

  static void check(const Field& field, const Column& column) {
    const bool text_as_bytes = column.dtype == Dtype::kBytes && field.dtype == Dtype::kUtf8;
    const bool text_of_bytes = column.dtype == Dtype::kUtf8 && field.dtype == Dtype::kBytes;
    if (text_of_bytes) {
      if (!is_utf8({reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size()}))
        throw Error(Code::kInvalid, "its {} is no UTF-8 text", to_utf8(field.name));
      return;
    }
    const auto as_wanted = [&] {
      if (column.dtype == Dtype::kBytes || column.dtype == Dtype::kUtf8) return true;
      if (field.shape.size() != column.shape.size()) return false;
      for (std::size_t i = 0; i < column.shape.size(); ++i) {
        if (column.shape[i] != field.shape[i] && !(i == 0 && column.shape[i] == kAny)) return false;
      }
      return true;
    };
    if ((field.dtype == column.dtype || text_as_bytes) && as_wanted()) return;
    throw Error(Code::kInvalid, "its {} is {}[{}], its column holds {}[{}]", to_utf8(field.name),
                name(field.dtype), fmt::join(field.shape, ", "), name(column.dtype),
                fmt::join(column.shape, ", "));
  }

  const std::vector<Column> columns_;
  PackedWriter writer_;
  std::vector<std::span<const std::byte>> values_;
};

class TarShardWriter : public ShardWriter {
 public:
  explicit TarShardWriter(std::unique_ptr<store::ObjectWriter> out) : writer_(std::move(out)) {}

  void add(const Sample& sample, std::int64_t number) override {
    std::string key = sample.key;
    std::deque<std::string> made;  // names and arrays, which stay where they are
    std::vector<TarWriter::Part> parts;
    for (const Field& field : sample.fields) {
      if (field.name == kKeyColumn) {
        key.assign(reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size());
      } else if (field.dtype == Dtype::kBytes || field.dtype == Dtype::kUtf8) {
        parts.push_back({field.name, field.bytes});
      } else {
        auto array = make_npy_head(field.dtype, field.shape);
        if (!array) {
          throw Error(Code::kInvalid,
                      "its {} is {}, which NumPy's arrays cannot hold: pack it as "
                      "packed shards",
                      to_utf8(field.name), name(field.dtype));
        }
        array->append(reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size());
        const std::string& name = made.emplace_back(field.name + ".npy");
        parts.push_back({name, bytes_of(made.emplace_back(*std::move(array)))});
      }
    }
    if (key.empty()) key = fmt::format("{:09}", number);
    writer_.add(key, parts);
  }

  std::int64_t samples() const override { return writer_.samples(); }
  store::ObjectInfo finish() override { return writer_.finish(); }

 private:
  TarWriter writer_;
};

}  // namespace

std::unique_ptr<ShardWriter> make_shard_writer(Target target, const Schema* schema,
                                               std::unique_ptr<store::ObjectWriter> out) {
  if (target == Target::kPacked)
    return std::make_unique<PackedShardWriter>(*schema, std::move(out));
  return std::make_unique<TarShardWriter>(std::move(out));
}

std::int64_t bytes_in_shard(Target target, PackSource::Cost cost) {
  if (target == Target::kWebDataset)
    return cost.bytes + cost.fields * (kTarBlock + kTarBlock / 2);  // half a block is padding
  constexpr std::int64_t kOfARecord = 24;  // of the index and its block's table
  return (cost.bytes + 7) / 8 * 8 + kOfARecord;
}

}  // namespace bedplate::data
