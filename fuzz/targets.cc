#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "data/dataset.h"
#include "data/decode/npy.h"
#include "data/example.h"
#include "data/listing.h"
#include "data/loader.h"
#include "data/manifest.h"
#include "data/object_table.h"
#include "data/scanned_index.h"
#include "data/schema.h"
#include "data/tar_index.h"
#include "data/test_shards.h"
#include "repair.h"
#include "store/driver.h"
#include "target.h"

namespace bedplate::fuzz {
namespace {

using Bytes = std::span<const std::byte>;
using Seeds = std::vector<std::string>;

constexpr std::int64_t kMostSamples = 200;       // read of one shard
constexpr std::int64_t kMostSampleBytes = kMiB;  // read of one sample

std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

store::Store& memory() {
  static const std::shared_ptr<store::Store> store = store::locate("memory://fuzz").store;
  return *store;
}

// What a store of foreign bytes may lead to; everything else is ours.
void check_is_refusal(const Error& error) { BEDPLATE_CHECK(error.code() != Code::kInternal); }

void read_some(const data::ShardIndex& index) {
  std::string raw;
  data::Sample sample;
  BEDPLATE_CHECK(index.samples() >= 0);
  for (std::int64_t i = 0; i < std::min(index.samples(), kMostSamples); ++i) {
    try {
      data::read_sample(memory(), index, i, kMostSampleBytes, raw, sample);
    } catch (const Error& error) {
      check_is_refusal(error);
    }
  }
}

// Opens the object as a shard of the format, as it is and with what is cut off recovered.
void open_as(std::string_view format, const std::string& key) {
  const store::Place place = store::locate("memory://fuzz/" + key);
  for (const data::CutOff cut_off : {data::CutOff::kRefuse, data::CutOff::kRecover}) {
    try {
      const auto index = data::format_of_name(format).open(
          place.store, store::info(*place.store, key), {.cut_off = cut_off});
      read_some(*index);
    } catch (const Error& error) {
      check_is_refusal(error);
    }
  }
}

// One object, before and after its checksums are made right.
void run_format(std::string_view format, const std::string& key, Bytes bytes,
                void (*repair)(std::string&)) {
  std::string text = text_of(bytes);
  store::put(memory(), key, text);
  open_as(format, key);
  repair(text);
  store::put(memory(), key, text);
  open_as(format, key);
}

void run_packed(Bytes bytes) { run_format("packed", "a.shard", bytes, repair_packed); }
void run_tar(Bytes bytes) { run_format("webdataset", "a.tar", bytes, repair_tar); }
void run_tfrecord(Bytes bytes) { run_format("tfrecord", "a.tfrecord", bytes, repair_tfrecord); }

void run_example(Bytes bytes) {
  // A copy of its own size, so that a sanitizer sees its ends.
  const std::vector<std::byte> copy(bytes.begin(), bytes.end());
  data::Sample sample;
  if (!data::unpack_example(copy, sample)) {
    BEDPLATE_CHECK(sample.fields.empty());
    return;
  }
  for (const data::Field& field : sample.fields) {
    BEDPLATE_CHECK(static_cast<std::size_t>(field.shape.at(0)) * data::size_of(field.dtype) ==
                   field.bytes.size());
  }
}

// Two objects in one input: u32 bytes of the first one, the first one, the second one.
std::pair<std::string, std::string> two_of(Bytes bytes) {
  std::uint32_t first = 0;
  if (bytes.size() < sizeof first) return {};
  std::memcpy(&first, bytes.data(), sizeof first);
  const Bytes rest = bytes.subspan(sizeof first);
  const std::size_t size = std::min<std::size_t>(first, rest.size());
  return {text_of(rest.first(size)), text_of(rest.subspan(size))};
}
std::string one_of(std::string_view first, std::string_view second) {
  const auto size = static_cast<std::uint32_t>(first.size());
  std::string out(reinterpret_cast<const char*>(&size), sizeof size);
  return out.append(first).append(second);
}

void run_mds(Bytes bytes) {
  const auto [index, shard] = two_of(bytes);
  store::put(memory(), "mds/index.json", index);
  store::put(memory(), "mds/shard.00000.mds", shard);
  open_as("mds", "mds/index.json");
}

void run_megatron(Bytes bytes) {
  const auto [index, bin] = two_of(bytes);
  store::put(memory(), "a.idx", index);
  store::put(memory(), "a.bin", bin);
  open_as("megatron", "a.idx");
}

// The sidecar of an archive of 5,000 bytes whose version is "v".
void run_sidecar(Bytes bytes) {
  const store::ObjectInfo archive{"b.tar", 5000, "v"};
  std::string text = text_of(bytes);
  for (int round = 0; round < 2; ++round, repair_sidecar_or_table(text)) {
    try {
      const auto index = data::open_tar_sidecar(text, archive);
      for (std::int64_t i = 0; index && i < index->samples(); ++i) {
        const data::Extent extent = index->extent(i);
        BEDPLATE_CHECK(extent.offset >= 0 && extent.bytes >= 0 &&
                       extent.offset + extent.bytes <= archive.size);
      }
    } catch (const Error& error) {
      check_is_refusal(error);
    }
  }
}

void run_listing(Bytes bytes) {
  run_format("files", "f/bedplate.files", bytes, repair_sidecar_or_table);
}

void run_manifest(Bytes bytes) {
  std::string text = text_of(bytes);
  for (int round = 0; round < 2; ++round, repair_sidecar_or_table(text)) {
    try {
      const data::ObjectTable table(text, data::kManifestMagic);
      for (std::int64_t i = 0; i < table.rows(); ++i) {
        const data::ObjectRow row = table.row(i);
        BEDPLATE_CHECK(row.size >= 0 && row.number >= 0 && table.find(row.name) == row);
        store::check_key(row.name);
      }
    } catch (const Error& error) {
      check_is_refusal(error);
    }
  }
}

// A schema, and a record of it.
void run_schema(Bytes bytes) {
  const auto [json, record] = two_of(bytes);
  try {
    const auto schema = data::Schema::from_json(json);
    BEDPLATE_CHECK(data::Schema::from_json(schema.to_json()) == schema);
    for (const data::Column& column : schema.columns()) schema.fixed_place(column.name);
    data::Schema::Values values;
    schema.parse(std::as_bytes(std::span(record)), values);
    std::string again;
    schema.append(values, again);
    BEDPLATE_CHECK(again.size() == record.size());
  } catch (const Error& error) {
    check_is_refusal(error);
  }
}

void run_npy(Bytes bytes) {
  // A copy of its own size, so that a sanitizer sees its ends.
  const std::vector<std::byte> file(bytes.begin(), bytes.end());
  try {
    const data::NpyArray array = data::parse_npy(file);
    std::string again = *data::make_npy_head(array.dtype, array.shape);
    again.append(text_of(array.bytes));
    const data::NpyArray same = data::parse_npy(std::as_bytes(std::span(again)));
    BEDPLATE_CHECK(same.dtype == array.dtype && same.shape == array.shape &&
                   same.bytes.size() == array.bytes.size());
  } catch (const Error& error) {
    check_is_refusal(error);
  }
}

void run_state(Bytes bytes) {
  try {
    const auto state = data::LoaderState::from_json(text_of(bytes));
    BEDPLATE_CHECK(state.epoch >= 0 && state.consumed >= 0);
    BEDPLATE_CHECK(data::LoaderState::from_json(state.to_json()).to_json() == state.to_json());
  } catch (const Error& error) {
    check_is_refusal(error);
  }
}

void run_braces(Bytes bytes) {
  try {
    BEDPLATE_CHECK(
        !data::expand_braces(text_of(bytes.first(std::min<std::size_t>(bytes.size(), 40))))
             .empty());
  } catch (const Error& error) {
    check_is_refusal(error);
  }
}

// --- seeds ----------------------------------------------------------------------------------

// The objects of shards with these texts.
std::vector<Seeds> shards_of(std::string_view format) {
  const auto tests = data::test_formats();
  const auto test = std::ranges::find(tests, format, &data::TestFormat::name);
  const std::string long_text(700, 'x');
  std::vector<Seeds> out;
  for (const Seeds& texts : {Seeds(), Seeds{"a"}, Seeds{"first", "", "ünï", long_text}}) {
    out.emplace_back();
    for (const std::string& key : test->write(memory(), "seeds/", texts))
      out.back().push_back(store::get(memory(), key));
  }
  return out;
}

Seeds seeds_of(std::string_view format) {
  Seeds out;
  for (const Seeds& objects : shards_of(format)) out.push_back(objects.front());
  return out;
}
Seeds pairs_of(std::string_view format) {
  Seeds out;
  for (const Seeds& objects : shards_of(format))
    out.push_back(one_of(objects.at(0), objects.at(1)));
  return out;
}

Seeds mds_seeds() {
  Seeds out = pairs_of("mds");
  const std::string array(
      "\x11\x08\x02\x03"
      "abcdefghijkl",
      16);
  const std::string shard =
      data::mds_shard(Seeds{std::string("\x10\0\0\0", 4) + "\x07" + "abcdefgh" + array});
  const data::MdsTestColumn columns[] = {
      {"u", "uint8", 1}, {"s", "ndarray:int16:2,2", 8}, {"v", "ndarray"}};
  out.push_back(one_of(data::mds_index(columns, "shard.00000.mds", std::ssize(shard), 1), shard));
  return out;
}

// Of the archive that run_sidecar() has.
Seeds sidecar_seeds() {
  const std::uint64_t head[] = {5000, 2, 1};  // its bytes and samples; bytes of its version
  const data::ScannedSample samples[] = {{0, 1024, 17}, {1024, 3976, 18}};
  std::string out(data::kTarSidecarMagic);
  out += text_of(std::as_bytes(std::span(head)));
  out += 'v' + text_of(std::as_bytes(std::span(samples)));
  repair_sidecar_or_table(out);
  return {out};
}

Seeds manifest_seeds() {
  const data::ObjectRow rows[] = {{"0.tar", 100, 5, "v1"}, {"sub/1.tar", 200, 0, ""}};
  return {data::ObjectTable::write(data::kManifestMagic, "webdataset", rows),
          data::ObjectTable::write(data::kManifestMagic, "", {})};
}

Seeds npy_seeds() {
  const std::int64_t shape[] = {2, 3};
  return {*data::make_npy_head(data::Dtype::kI16, shape) + "abcdefghijkl",
          *data::make_npy_head(data::Dtype::kF64, {}) + "abcdefgh"};
}

Seeds schema_seeds() {
  return {
      one_of(R"({"columns":[{"name":"tokens","dtype":"u16","shape":[4]}]})", "abcdefgh"),
      one_of(
          R"({"columns":[{"name":"t","dtype":"utf8"},{"name":"b","dtype":"f32","shape":[-1,2]}]})",
          std::string("\x01\0\0\0\x08\0\0\0"
                      "a\0\0\0"
                      "12345678",
                      20))};
}

constexpr std::array kTargets = {
    Target{"packed", run_packed, [] { return seeds_of("packed"); }},
    Target{"tar", run_tar, [] { return seeds_of("webdataset"); }},
    Target{"tar_sidecar", run_sidecar, sidecar_seeds},
    Target{"tfrecord", run_tfrecord, [] { return seeds_of("tfrecord"); }},
    Target{"example", run_example, [] { return Seeds{data::example_of("text", -1, 0.5F)}; }},
    Target{"mds", run_mds, mds_seeds},
    Target{"megatron", run_megatron, [] { return pairs_of("megatron"); }},
    Target{"listing", run_listing, [] { return seeds_of("files"); }},
    Target{"manifest", run_manifest, manifest_seeds},
    Target{"schema", run_schema, schema_seeds},
    Target{"npy", run_npy, npy_seeds},
    Target{"state", run_state,
           [] {
             return Seeds{data::LoaderState{3, 1'000, 7}.to_json()};
           }},
    Target{"braces", run_braces,
           [] {
             return Seeds{"a{08..11}.tar", "{x,y}\\{1}"};
           }},
};

}  // namespace

std::span<const Target> all_targets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> targets(kTargets.begin(), kTargets.end());
    targets.insert(targets.end(), picture_targets().begin(), picture_targets().end());
    return targets;
  }();
  return all;
}

const Target& target_of_name(std::string_view name) {
  const auto found = std::ranges::find(all_targets(), name, &Target::name);
  BEDPLATE_CHECK(found != all_targets().end());
  return *found;
}

}  // namespace bedplate::fuzz
