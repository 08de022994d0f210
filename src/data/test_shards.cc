#include "data/test_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/crc32c.h"
#include "base/error.h"
#include "data/listing.h"
#include "data/object_table.h"
#include "data/packed_writer.h"
#include "data/tar_writer.h"

namespace bedplate::data {
namespace {

using Texts = std::span<const std::string>;
using Keys = std::vector<std::string>;

template <typename T>
std::string raw_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
template <typename T>
std::string raw_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}
std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

Keys write_packed(store::Store& store, const std::string& folder, Texts texts) {
  const std::string key = folder + "0.shard";
  PackedWriter writer(store.create(key, store::IfExists::kReplace, kSecond),
                      Schema({{.name = "text", .dtype = Dtype::kUtf8},
                              {.name = "pairs", .dtype = Dtype::kI16, .shape = {kAny, 2}}}),
                      {.block_bytes = 4096});
  for (const std::string& text : texts) {
    const std::span<const std::byte> values[] = {bytes_of(text), bytes_of("abcdefgh")};
    writer.add(values);
  }
  writer.finish();
  return {key};
}

Keys write_tar(store::Store& store, const std::string& folder, Texts texts) {
  const std::string key = folder + "0.tar";
  TarWriter writer(store.create(key, store::IfExists::kReplace, kSecond));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const TarWriter::Part parts[] = {{"txt", bytes_of(texts[i])}, {"cls", bytes_of("7")}};
    writer.add(fmt::format("{:06}", i), parts);
  }
  writer.finish();
  return {key};
}

Keys write_tfrecord(store::Store& store, const std::string& folder, Texts texts) {
  std::string file;
  for (std::size_t i = 0; i < texts.size(); ++i)
    file += tfrecord_of(example_of(texts[i], static_cast<std::int64_t>(i) - 1, 0.5F));
  store::put(store, folder + "0.tfrecord", file);
  return {folder + "0.tfrecord"};
}

Keys write_mds(store::Store& store, const std::string& folder, Texts texts) {
  std::vector<std::string> samples;
  for (const std::string& text : texts) {
    samples.push_back(raw_of(static_cast<std::uint32_t>(text.size())) + raw_of(std::int64_t{-5}) +
                      text);
  }
  const std::string shard = mds_shard(samples);
  const std::string basename = "shard.00000.mds";
  const MdsTestColumn columns[] = {{"n", "int", 8}, {"text", "str"}};
  store::put(store, folder + basename, shard);
  store::put(store, folder + "index.json",
             mds_index(columns, basename, std::ssize(shard), std::ssize(samples)));
  return {folder + "index.json", folder + basename};
}

Keys write_megatron(store::Store& store, const std::string& folder, Texts texts) {
  std::string bin;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> places;
  for (const std::string& text : texts) {
    lengths.push_back(static_cast<std::int32_t>(text.size()));
    places.push_back(std::ssize(bin));
    bin += text;
  }
  store::put(store, folder + "0.bin", bin);
  store::put(store, folder + "0.idx", megatron_index(1, lengths, places));
  return {folder + "0.idx", folder + "0.bin"};
}

Keys write_files(store::Store& store, const std::string& folder, Texts texts) {
  Keys keys = {folder + std::string(kListingName)};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    keys.push_back(fmt::format("{}class/{:06}.TXT", folder, i));
    store::put(store, keys.back(), texts[i]);
  }
  if (texts.empty()) {
    store::put(store, keys[0], ObjectTable::write(kListingMagic, "", {}));
  } else {
    write_listing(store, folder);
  }
  return keys;
}

constexpr TestFormat kTestFormats[] = {
    {"packed", "text", write_packed},       {"webdataset", "txt", write_tar},
    {"tfrecord", "text", write_tfrecord},   {"mds", "text", write_mds},
    {"megatron", "tokens", write_megatron}, {"files", "txt", write_files}};

bool lies_in(std::span<const std::byte> part, std::string_view whole) {
  const auto* const begin = reinterpret_cast<const std::byte*>(whole.data());
  const std::less_equal<const std::byte*> before_or_at;
  return part.empty() || (before_or_at(begin, part.data()) &&
                          before_or_at(part.data() + part.size(), begin + whole.size()));
}

void check_sample(std::string_view raw, const Sample& sample, const ShardIndex& index) {
  for (const Field& field : sample.fields) {
    std::int64_t bytes = static_cast<std::int64_t>(size_of(field.dtype));
    for (const std::int64_t n : field.shape) bytes *= n;
    BEDPLATE_CHECK(bytes == std::ssize(field.bytes));
    // A value that lies in the index itself is small.
    const bool read = lies_in(field.bytes, raw);
    const bool owned = std::ranges::any_of(
        sample.owned, [&](const std::string& one) { return lies_in(field.bytes, one); });
    BEDPLATE_CHECK(read || owned || (field.bytes.size() == 1 && index.memory_bytes() > 0));
  }
}

}  // namespace

std::span<const TestFormat> test_formats() { return kTestFormats; }

std::vector<std::string> some_texts(std::size_t count) {
  const std::string some[] = {
      "first", "", "ünï", std::string(3, '\0'), std::string(5000, 'x'), "\n{\"a\": 1}"};
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) {
    texts.push_back(some[i % std::size(some)]);
    if (i >= std::size(some)) texts.back() += fmt::format(" {}", i);
  }
  return texts;
}

std::string tfrecord_of(std::string_view data) {
  const auto masked = [](std::string_view text) {
    return raw_of(std::rotr(crc32c(text), 15) + 0xa282ead8U);
  };
  const std::string length = raw_of(static_cast<std::uint64_t>(data.size()));
  return length + masked(length) + std::string(data) + masked(data);
}

std::string protobuf_field(int number, std::string_view bytes) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) +
         std::string(bytes);
}

std::string example_of(std::string_view text, std::int64_t number, float real) {
  const auto feature = [](std::string_view name, int kind, std::string_view value) {
    const std::string list = protobuf_field(kind, protobuf_field(1, value));
    return protobuf_field(1, protobuf_field(1, name) + protobuf_field(2, list));
  };
  return protobuf_field(1, feature("text", 1, text) +
                               feature("number", 3, varint(static_cast<std::uint64_t>(number))) +
                               feature("real", 2, raw_of(real)));
}

std::string megatron_index(int dtype_code, std::span<const std::int32_t> lengths,
                           std::span<const std::int64_t> places) {
  const std::int64_t documents[] = {0, std::ssize(lengths)};
  return std::string("MMIDIDX\0\0", 9) + raw_of(std::uint64_t{1}) + static_cast<char>(dtype_code) +
         raw_of(static_cast<std::uint64_t>(lengths.size())) + raw_of(std::uint64_t{2}) +
         raw_of(lengths) + raw_of(places) + raw_of(std::span<const std::int64_t>(documents));
}

std::string mds_shard(std::span<const std::string> samples) {
  const std::string config = "{}";
  std::vector<std::uint32_t> places;
  std::size_t at = sizeof(std::uint32_t) * (samples.size() + 2) + config.size();
  std::string data;
  for (const std::string& sample : samples) {
    places.push_back(static_cast<std::uint32_t>(at));
    at += sample.size();
    data += sample;
  }
  places.push_back(static_cast<std::uint32_t>(at));
  return raw_of(static_cast<std::uint32_t>(samples.size())) +
         raw_of(std::span<const std::uint32_t>(places)) + config + data;
}

std::string mds_index(std::span<const MdsTestColumn> columns, std::string_view basename,
                      std::int64_t bytes, std::int64_t samples) {
  std::vector<std::string> names;
  std::vector<std::string> encodings;
  std::vector<std::string> sizes;
  for (const MdsTestColumn& column : columns) {
    names.push_back('"' + column.name + '"');
    encodings.push_back('"' + column.encoding + '"');
    sizes.push_back(column.size < 0 ? "null" : fmt::format("{}", column.size));
  }
  return fmt::format(
      R"({{"shards": [{{"column_encodings": [{}], "column_names": [{}], "column_sizes": [{}], )"
      R"("compression": null, "format": "mds", "hashes": [], "raw_data": {{"basename": "{}", )"
      R"("bytes": {}, "hashes": {{}}}}, "samples": {}, "size_limit": 67108864, "version": 2, )"
      R"("zip_data": null}}], "version": 2}})",
      fmt::join(encodings, ", "), fmt::join(names, ", "), fmt::join(sizes, ", "), basename, bytes,
      samples);
}

bool read_sample(store::Store& store, const ShardIndex& index, std::int64_t number,
                 std::int64_t most_bytes, std::string& raw, Sample& sample) {
  store::ObjectInfo scratch;
  const store::ObjectInfo& object = index.object(number, scratch);
  const Extent extent = index.extent(number);
  BEDPLATE_CHECK(extent.offset >= 0 && extent.bytes >= 0);
  if (extent.bytes > most_bytes) return false;
  raw.resize(static_cast<std::size_t>(extent.bytes));
  const auto bytes = std::as_writable_bytes(std::span(raw));
  store::read_exactly(
      store,
      {.key = object.key, .offset = extent.offset, .into = bytes, .version = object.version});
  if (extent.crc && crc32c(bytes) != *extent.crc) return false;
  index.unpack(number, bytes, sample);
  check_sample(raw, sample, index);
  return true;
}

}  // namespace bedplate::data
