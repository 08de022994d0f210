// MosaicML Streaming's sets (MDS): index.json names shard files; a sample lies in one of them.
//
// index.json: {"version": 2, "shards": [{"format": "mds", "version": 2, "samples": N,
// "column_names": […], "column_encodings": […], "column_sizes": [bytes or null, …], "raw_data":
// {"basename": …, "bytes": …}, "zip_data": null or {…}, "compression": null or "zstd:3", …}, …]}.
// A shard file: u32 samples, (samples + 1) × u32 places from the file's begin, the columns as JSON,
// the samples. A sample: u32 bytes of each column that has no size of its own, then the values.
// (mosaicml-streaming 0.13, streaming/base/format/mds/writer.py and reader.py.) All of it
// little-endian and unaligned. A shard's hash, if it has one, is of the whole file: samples have no
// checksums.
#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "data/format.h"
#include "data/internal/look_up.h"
#include "data/internal/mds_column.h"
#include "data/json_text.h"

namespace bedplate::data {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kIndexName = "index.json";
constexpr std::int64_t kMostIndexBytes = kGiB;
constexpr int kLookUpsAtOnce = 16;

// A file with samples.
struct File {
  store::ObjectInfo object;
  std::int64_t first = 0;             // sample of the set
  std::vector<std::uint32_t> places;  // of its samples, and of the end
};

// Four bytes of memory a sample.
class MdsIndex : public ShardIndex {
 public:
  MdsIndex(store::ObjectInfo index, std::vector<MdsColumn> columns, std::vector<File> files,
           std::int64_t samples)
      : ShardIndex(std::move(index)),
        columns_(std::move(columns)),
        files_(std::move(files)),
        samples_(samples),
        variable_(static_cast<std::size_t>(std::ranges::count_if(
            columns_, [](const MdsColumn& column) { return !column.size(); }))) {}

  std::int64_t samples() const override { return samples_; }
  Extent extent(std::int64_t sample) const override {
    const File& file = file_of(sample);
    const auto at = static_cast<std::size_t>(sample - file.first);
    return {file.places[at], file.places[at + 1] - file.places[at], {}};
  }
  const store::ObjectInfo& object(std::int64_t sample, store::ObjectInfo&) const override {
    return file_of(sample).object;
  }

  void unpack(std::int64_t, std::span<const std::byte> raw, Sample& out) const override {
    out.clear();
    std::size_t head = 0;
    std::size_t at = variable_ * sizeof(std::uint32_t);
    const auto refuse = [&](const MdsColumn& column) {
      throw Error(Code::kCorrupt, "a sample of {} bytes has no room for its column {}", raw.size(),
                  column.name());
    };
    for (const MdsColumn& column : columns_) {
      if (raw.size() < at) refuse(column);
      auto bytes = static_cast<std::size_t>(column.size().value_or(0));
      if (!column.size()) {
        std::uint32_t said = 0;
        std::memcpy(&said, raw.data() + head, sizeof said);
        head += sizeof said;
        bytes = said;
      }
      if (bytes > raw.size() - at) refuse(column);
      out.fields.push_back(column.field(raw.subspan(at, bytes)));
      at += bytes;
    }
    if (at != raw.size())
      throw Error(Code::kCorrupt, "a sample has {} bytes where its columns have {}", raw.size(),
                  at);
  }

  std::optional<FixedPlace> fixed_place(std::string_view field) const override {
    auto at = static_cast<std::int64_t>(variable_ * sizeof(std::uint32_t));
    for (const MdsColumn& column : columns_) {
      if (!column.size()) return std::nullopt;
      if (column.name() == field)
        return FixedPlace{at, *column.size(), column.dtype(), column.shape()};
      at += *column.size();
    }
    return std::nullopt;
  }

  std::int64_t memory_bytes() const override {
    std::size_t bytes = files_.capacity() * sizeof(File);
    for (const File& file : files_)
      bytes += file.places.capacity() * sizeof(std::uint32_t) + file.object.key.capacity() +
               file.object.version.capacity();
    return static_cast<std::int64_t>(bytes);
  }

 private:
  const File& file_of(std::int64_t sample) const {
    return *(std::ranges::upper_bound(files_, sample, {}, &File::first) - 1);
  }

  std::vector<MdsColumn> columns_;
  std::vector<File> files_;  // those that hold samples
  std::int64_t samples_;
  std::size_t variable_;  // columns
};

// One set while it is opened.
class Opening {
 public:
  Opening(store::Store& store, const store::ObjectInfo& index, Deadline deadline)
      : store_(store),
        index_(index),
        deadline_(deadline),
        folder_(index.key.substr(0, index.key.rfind('/') + 1)) {}

  std::shared_ptr<const ShardIndex> open() {
    try {
      read_index();
    } catch (const nlohmann::ordered_json::exception& error) {
      throw corrupt(error.what());
    }
    find_files();
    read_places();
    return std::make_shared<MdsIndex>(index_, std::move(columns_), std::move(files_), samples_);
  }

 private:
  using Json = nlohmann::ordered_json;

  // What the index says of a shard.
  struct Said {
    std::string name;
    std::int64_t bytes = 0;
    std::int64_t samples = 0;
    std::string zip_name;  // empty: there is no compressed one
    std::string compression;
  };

  Error corrupt(std::string_view what) const {
    return {Code::kCorrupt, "{} in {} is no index of an MDS set, or a damaged one: {}",
            to_utf8(index_.key), store_.url(), to_utf8(what)};
  }
  Error unsupported(std::string_view what) const {
    return {Code::kUnsupported, "{} in {}: {}", to_utf8(index_.key), store_.url(), what};
  }

  void read_index() {
    const std::string text = store::get(store_, index_.key, kMostIndexBytes, deadline_);
    const Json document = parse_json(
        text,
        fmt::format("{} in {} is no index of an MDS set: it", to_utf8(index_.key), store_.url()),
        Code::kCorrupt);
    if (document.at("version") != 2) throw unsupported("it is of a version other than 2");
    for (const Json& shard : document.at("shards")) {
      if (shard.at("format") != "mds" || shard.at("version") != 2)
        throw unsupported("it names shards that are not of the format mds, version 2");
      take_columns(shard);
      said_.push_back(said_of(shard));
    }
  }

  Said said_of(const Json& shard) const {
    const Json& raw = shard.at("raw_data");
    Said said{.name = key_of(raw),
              .bytes = raw.at("bytes").get<std::int64_t>(),
              .samples = shard.at("samples").get<std::int64_t>()};
    // More does not fit between u32 places.
    if (said.samples < 0 || said.samples >= UINT32_MAX)
      throw corrupt(fmt::format("{} is to have {} samples", said.name, said.samples));
    if (const auto zip = shard.find("zip_data"); zip != shard.end() && !zip->is_null()) {
      said.zip_name = key_of(*zip);
      said.compression = shard.at("compression").get<std::string>();
    }
    return said;
  }

  std::string key_of(const Json& file) const {
    std::string key = folder_ + file.at("basename").get<std::string>();
    try {
      store::check_key(key);
    } catch (const Error& error) {
      throw corrupt(error.what());
    }
    return key;
  }

  void take_columns(const Json& shard) {
    Json columns = Json::array(
        {shard.at("column_names"), shard.at("column_encodings"), shard.at("column_sizes")});
    if (columns == columns_json_) return;
    if (!columns_json_.is_null()) throw unsupported("its shards have different columns");
    const auto names = columns[0].get<std::vector<std::string>>();
    const auto encodings = columns[1].get<std::vector<std::string>>();
    if (names.empty() || names.size() != encodings.size() || columns[2].size() != names.size())
      throw corrupt("its lists of columns are not of one length");
    if (std::set<std::string>(names.begin(), names.end()).size() != names.size())
      throw corrupt("two columns have one name");
    for (std::size_t i = 0; i < names.size(); ++i) {
      columns_.push_back(column(names[i], encodings[i]));
      const auto size = columns_.back().size();
      if (size ? columns[2][i] != *size : !columns[2][i].is_null()) {
        throw corrupt(fmt::format("column {} of encoding {} is to have {} bytes", names[i],
                                  encodings[i], columns[2][i].dump()));
      }
    }
    columns_json_ = std::move(columns);
  }

  MdsColumn column(const std::string& name, const std::string& encoding) const {
    try {
      return {name, encoding};
    } catch (const Error& error) {
      throw Error(error.code(), "{} in {}: {}", to_utf8(index_.key), store_.url(), error.what());
    }
  }

  void find_files() {
    std::vector<std::string> keys;
    for (const Said& said : said_) keys.push_back(said.name);
    const auto found = look_up(store_, keys, kLookUpsAtOnce, deadline_);
    for (std::size_t i = 0; i < said_.size(); ++i) {
      const Said& said = said_[i];
      if (!found[i]) throw missing(said);
      if (found[i]->size != said.bytes) {
        throw Error(
            Code::kCorrupt, "{} in {} has {} bytes, where {} says {}: a copy that broke off?",
            to_utf8(said.name), store_.url(), found[i]->size, to_utf8(index_.key), said.bytes);
      }
      if (said.samples == 0) continue;
      const std::int64_t table = (said.samples + 1) * std::int64_t{sizeof(std::uint32_t)};
      if (said.bytes < table + std::int64_t{sizeof(std::uint32_t)})
        throw damaged(said.name, "it is too small for its samples");
      files_.push_back({*found[i], samples_, {}});
      files_.back().places.resize(static_cast<std::size_t>(said.samples) + 1);
      samples_ += said.samples;
    }
  }

  Error missing(const Said& said) const {
    if (said.zip_name.empty())
      return {Code::kNotFound, "{} in {} is not there, although {} names it", to_utf8(said.name),
              store_.url(), to_utf8(index_.key)};
    return {
        Code::kUnsupported,
        "{} in {} is compressed ({}); unpack the shards beside it, index.json can stay: for zstd, "
        "zstd -d --rm FOLDER/*.zstd",
        to_utf8(said.zip_name), store_.url(), to_utf8(said.compression)};
  }
  Error damaged(std::string_view file, std::string_view what) const {
    return {Code::kCorrupt, "{} in {} is a damaged MDS shard: {}", to_utf8(file), store_.url(),
            what};
  }

  // The tables of all files.
  void read_places() {
    std::vector<std::uint32_t> counts(files_.size());
    std::vector<store::Read> reads;
    for (std::size_t i = 0; i < files_.size(); ++i) {
      File& file = files_[i];
      reads.push_back({.key = file.object.key,
                       .offset = 0,
                       .into = std::as_writable_bytes(std::span(&counts[i], 1)),
                       .version = file.object.version});
      reads.push_back({.key = file.object.key,
                       .offset = sizeof counts[i],
                       .into = std::as_writable_bytes(std::span(file.places)),
                       .version = file.object.version});
    }
    store_.read(reads, deadline_);
    for (const store::Read& read : reads) {
      if (read.error) throw *read.error;
    }
    for (std::size_t i = 0; i < files_.size(); ++i) {
      const File& file = files_[i];
      if (counts[i] != file.places.size() - 1) {
        throw damaged(file.object.key,
                      fmt::format("it says {} samples, where {} says {}", counts[i],
                                  to_utf8(index_.key), file.places.size() - 1));
      }
      const std::size_t begin = (file.places.size() + 1) * sizeof(std::uint32_t);
      if (file.places.front() < begin || file.places.back() > file.object.size ||
          !std::ranges::is_sorted(file.places))
        throw damaged(file.object.key, "its samples have impossible places");
    }
  }

  store::Store& store_;
  const store::ObjectInfo& index_;
  Deadline deadline_;
  std::string folder_;
  std::vector<Said> said_;
  Json columns_json_;
  std::vector<MdsColumn> columns_;
  std::vector<File> files_;
  std::int64_t samples_ = 0;
};

std::shared_ptr<const ShardIndex> open(const std::shared_ptr<store::Store>& store,
                                       const store::ObjectInfo& shard,
                                       const ShardOptions& options) {
  return Opening(*store, shard, Deadline::after(options.timeout)).open();
}

}  // namespace

extern const Format kMds = {
    .name = "mds",
    .summary = "MosaicML Streaming's sets, named by their index.json; shards unpacked",
    .is_shard = [](std::string_view key) { return key.substr(key.rfind('/') + 1) == kIndexName; },
    .open = open,
    .samples = Format::Samples::kElsewhere,
    .folder_object = kIndexName,
};

}  // namespace bedplate::data
