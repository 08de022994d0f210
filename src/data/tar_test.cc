// WebDataset tars: written, indexed, read by GNU tar, written by it, cut off, damaged.
#include <gmock/gmock.h>

#include <fstream>
#include <random>

#include "base/crc32c.h"
#include "base/error.h"
#include "data/tar_format.h"
#include "data/tar_index.h"
#include "data/tar_writer.h"
#include "data/test_bytes.h"
#include "os/durable_file.h"
#include "os/test_folder.h"
#include "store/driver.h"

namespace bedplate::data {
namespace {

using store::ObjectInfo;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Fields = std::vector<std::pair<std::string, std::string>>;

class Tar : public ::testing::Test {
 protected:
  ObjectInfo write(const std::vector<std::pair<std::string, Fields>>& samples) {
    TarWriter writer(place_.store->create(place_.key, store::IfExists::kReplace, kSecond));
    for (const auto& [key, fields] : samples) {
      std::vector<TarWriter::Part> parts;
      for (const auto& [field, content] : fields) parts.push_back({field, bytes_of(content)});
      writer.add(key, parts);
    }
    return writer.finish();
  }
  ObjectInfo put(std::string_view bytes) { return store::put(*place_.store, place_.key, bytes); }
  std::string whole() { return store::get(*place_.store, place_.key); }

  // Each sample's fields, every extent checked.
  std::vector<Fields> read(const ObjectInfo& info, const ShardIndex& index) {
    std::vector<Fields> out;
    for (std::int64_t i = 0; i < index.samples(); ++i) {
      const Extent extent = index.extent(i);
      std::vector<std::byte> raw(static_cast<std::size_t>(extent.bytes));
      store::read_exactly(*place_.store, {.key = info.key, .offset = extent.offset, .into = raw});
      EXPECT_EQ(crc32c(raw), extent.crc);
      Sample sample;
      index.unpack(i, raw, sample);
      out.emplace_back();
      for (const Field& field : sample.fields)
        out.back().emplace_back(field.name, text_of(field.bytes));
    }
    return out;
  }
  std::vector<Fields> scanned(const ObjectInfo& info, CutOff cut_off = CutOff::kRefuse) {
    return read(info, *scan_tar(*place_.store, info, cut_off));
  }
  std::string refusal(const ObjectInfo& info) {
    try {
      scan_tar(*place_.store, info);
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  }

  os::TestFolder folder_;
  store::Place place_ = store::locate((folder_.path() / "shard.tar").string());
  const std::string path_ = (folder_.path() / "shard.tar").string();
};

TEST_F(Tar, WhatWasWrittenIsReadHereAndByGnuTar) {
  const std::string long_key = std::string(90, 'd') + "/" + std::string(120, 'k');
  const std::vector<std::pair<std::string, Fields>> samples = {
      {"000000", {{"cls", "3"}, {"seg.png", std::string(100'000, 'p')}}},
      {"a/000001", {{"jpg", ""}, {"json", "{}"}}},
      {long_key, {{"txt", "long"}}},
      {"ünïcode", {{"txt", std::string(512, 'x')}}}};
  const ObjectInfo info = write(samples);
  const auto back = scanned(info);
  ASSERT_EQ(back.size(), samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) EXPECT_EQ(back[i], samples[i].second) << i;
  EXPECT_EQ(output_of("tar --quoting-style=literal -tf " + path_),
            "000000.cls\n000000.seg.png\na/000001.jpg\na/000001.json\n" + long_key +
                ".txt\nünïcode.txt\n");
  EXPECT_EQ(output_of("tar -xOf " + path_ + " 000000.cls"), "3");
}

TEST_F(Tar, WhatGnuTarWroteIsRead) {
  const auto root = folder_.path() / "files";
  std::filesystem::create_directories(root / "sub");
  const std::string long_name = std::string(200, 'n');
  for (const std::string name :
       {"a.txt", "a.cls", "sub/b.txt", "noextension", ".hidden", "__info__"})
    os::write_durably(root / name, "content of " + name);
  os::write_durably(root / (long_name + ".txt"), "long");
  std::filesystem::create_symlink("a.txt", root / "c.txt");
  for (const std::string format : {"gnu", "pax", "ustar", "v7", "oldgnu"}) {
    const bool has_long_names = format == "gnu" || format == "pax" || format == "oldgnu";
    output_of("cd " + root.string() + " && tar --format=" + format + " -cf " + path_ +
              " __info__ a.cls a.txt c.txt noextension .hidden sub" +
              (has_long_names ? " " + long_name + ".txt" : ""));
    const auto back = scanned(store::info(*place_.store, place_.key));
    ASSERT_EQ(back.size(), has_long_names ? 3u : 2u) << format;
    EXPECT_THAT(back[0], ElementsAre(std::pair("cls", "content of a.cls"),
                                     std::pair("txt", "content of a.txt")));
    EXPECT_THAT(back[1], ElementsAre(std::pair("txt", "content of sub/b.txt")));
  }
}

TEST_F(Tar, SparseMembersAreRefused) {
  const auto sparse = folder_.path() / "sparse.bin";
  std::ofstream(sparse).close();
  std::filesystem::resize_file(sparse, 1 << 20);
  for (const std::string format : {"gnu", "pax"}) {
    output_of("cd " + folder_.path().string() + " && tar --sparse --format=" + format + " -cf " +
              path_ + " sparse.bin");
    EXPECT_THAT(refusal(store::info(*place_.store, place_.key)),
                HasSubstr("pack it with plain tar"))
        << format;
  }
}

TEST_F(Tar, ALostEndIsNoShorterEpoch) {
  std::vector<std::pair<std::string, Fields>> samples;
  for (int i = 0; i < 20; ++i)
    samples.push_back({fmt::format("{:06}", i), {{"a", std::string(300, 'a')}, {"b", "b"}}});
  write(samples);
  const std::string bytes = whole();
  const std::size_t end = bytes.size() - 1024;
  for (std::size_t size = 0; size <= end; size += 509) {
    const ObjectInfo info = put(bytes.substr(0, size));
    EXPECT_THAT(refusal(info), HasSubstr("its end is missing")) << size;
    const auto recovered = scanned(info, CutOff::kRecover);
    ASSERT_LE(recovered.size(), size / 2048) << size;
    for (const Fields& one : recovered) ASSERT_EQ(one, samples[0].second);
  }
  EXPECT_EQ(scanned(put(bytes.substr(0, end + 512))).size(), samples.size());
}

TEST_F(Tar, DamageIsNamedWithItsPlace) {
  write({{"000000", {{"a", "1"}}}, {"000001", {{"a", "2"}}}});
  std::string bytes = whole();
  bytes[1024 + 3] ^= 1;
  EXPECT_THAT(refusal(put(bytes)),
              HasSubstr("near byte 1024: a header of the archive has a wrong checksum"));
  EXPECT_THAT(refusal(put(std::string(2048, 'x'))),
              HasSubstr("near byte 0: a header of the archive"));
  EXPECT_THAT(refusal(put("")), HasSubstr("its end is missing"));
}

TEST_F(Tar, AnythingIsReadOrRefused) {
  write({{"000000", {{"a", std::string(1000, 'a')}}}, {std::string(150, 'k'), {{"b", "2"}}}});
  const std::string bytes = whole();
  place_ = store::locate("memory://tar-test/000000.tar");  // 3000 durable files would take minutes
  std::mt19937 random(17);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = bytes;
    for (int i = 0; i < 3; ++i) damaged[random() % bytes.size()] = static_cast<char>(random());
    const ObjectInfo info = put(damaged);
    try {
      scanned(info, round % 2 == 0 ? CutOff::kRefuse : CutOff::kRecover);
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Code::kCorrupt || error.code() == Code::kUnsupported)
          << error.what();
    }
  }
}

TEST_F(Tar, TheSidecarIsOfThisArchiveOrOfNone) {
  const ObjectInfo info = write({{"000000", {{"a", "1"}}}, {"000001", {{"a", "2"}, {"b", ""}}}});
  const auto index = scan_tar(*place_.store, info);
  const std::string sidecar = index->sidecar();
  const auto again = open_tar_sidecar(sidecar, info);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(read(info, *again), read(info, *index));
  EXPECT_EQ(again->memory_bytes(), 2 * 16);
  EXPECT_EQ(open_tar_sidecar(sidecar, {info.key, info.size, "another"}), nullptr);
  EXPECT_EQ(open_tar_sidecar(sidecar, {info.key, info.size + 1, info.version}), nullptr);
  for (std::size_t i = 0; i < sidecar.size(); ++i) {
    std::string damaged = sidecar;
    damaged[i] ^= 1;
    EXPECT_THROW(open_tar_sidecar(damaged, info), Error) << i;
    EXPECT_THROW(open_tar_sidecar(sidecar.substr(0, i), info), Error) << i;
  }
}

TEST_F(Tar, AKeyThatWouldNotComeBackIsRefused) {
  TarWriter writer(place_.store->create(place_.key, store::IfExists::kReplace, kSecond));
  const auto refused = [&](std::string_view key, std::vector<TarWriter::Part> parts) {
    EXPECT_THROW(writer.add(key, parts), Error) << key;
  };
  refused("a.b", {{"c", {}}});
  refused("", {{"c", {}}});
  refused("/a", {{"c", {}}});
  refused("a/", {{"c", {}}});
  refused("a", {{"", {}}});
  refused("a", {{"c/d", {}}});
  refused("a", {});
  refused("a", {{"c", {}}, {"c", {}}});
  const TarWriter::Part part{"c", {}};
  writer.add("a", {&part, 1});
  refused("a", {{"d", {}}});
  EXPECT_EQ(scanned(writer.finish()).size(), 1u);
}

TEST(TarFormat, LargeSizesHaveAPaxHeader) {
  const std::string headers = make_tar_header("big.bin", std::int64_t{1} << 40);
  ASSERT_EQ(headers.size(), 3u * kTarBlock);
  const auto block = [&](std::size_t i) {
    return bytes_of(headers).subspan(i * kTarBlock, kTarBlock);
  };
  const TarHeader pax = parse_tar_header(block(0));
  EXPECT_EQ(pax.kind, TarHeader::Kind::kPax);
  TarExtended extended;
  parse_pax(headers.substr(kTarBlock, static_cast<std::size_t>(pax.size)), extended);
  EXPECT_EQ(extended.size, std::int64_t{1} << 40);
  EXPECT_EQ(parse_tar_header(block(2)).name, "big.bin");
}

TEST(TarFormat, NamesAreSplitAsWebDatasetDoes) {
  const auto split = [](std::string_view name) {
    const auto parts = split_tar_name(name);
    return parts ? fmt::format("{}|{}", parts->key, parts->field) : "none";
  };
  EXPECT_EQ(split("a.txt"), "a|txt");
  EXPECT_EQ(split("d.x/a.seg.png"), "d.x/a|seg.png");
  EXPECT_EQ(split("a"), "none");
  EXPECT_EQ(split(".hidden"), "none");
  EXPECT_EQ(split("d/.hidden.txt"), "none");
  EXPECT_EQ(split("__meta__"), "none");
  EXPECT_EQ(split("a."), "a|");
}

}  // namespace
}  // namespace bedplate::data
