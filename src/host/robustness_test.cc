// Whatever stands in the files: no crash, valid JSON and UTF-8, a drawing that keeps its width. Run
// under the sanitizers, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "base/text.h"
#include "host/draw.h"
#include "host/host.h"
#include "host/host_json.h"
#include "os/test_folder.h"

namespace bedplate::host {
namespace {

namespace fs = std::filesystem;

const fs::path kTrees = fs::path(BEDPLATE_SOURCE_DIR) / "tests/hosts";

struct Bad {
  const char* name;
  std::string content;
};

const std::vector<Bad>& bad_contents() {
  static const std::vector<Bad> kBad = [] {
    std::string lists, digits(1 << 20, '9'), lines(1 << 20, '\n'), colons;
    while (lists.size() < (1 << 20)) lists += "0-65535,";
    while (colons.size() < (1 << 20)) colons += "processor : 1\n";
    std::string bytes;
    std::mt19937 random(7);
    for (int i = 0; i < 4096; ++i) bytes += static_cast<char>(random());
    return std::vector<Bad>{{"empty", ""},
                            {"garbage", bytes},
                            {"long list", lists},
                            {"long number", digits},
                            {"many lines", lines},
                            {"many processors", colons},
                            {"negative", "-1\n"},
                            {"largest", "9223372036854775807 kB"},
                            {"escape",
                             "\x1b[2J\xc2\x9b"
                             "31m\xe2\x80\xae"}};
  }();
  return kBad;
}

std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && !entry.is_symlink() && entry.path().filename() != "README.md") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string slurp(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spill(const fs::path& file, const std::string& content) {
  std::ofstream(file, std::ios::binary) << content;
}

void expect_sound(const fs::path& folder, const std::string& what) {
  const Host host = describe(os::HostRoot(folder));
  const std::string json = to_json(host);
  EXPECT_EQ(to_json(from_json(json)), json) << what;
  const std::string text = draw_text(host);
  EXPECT_EQ(to_utf8(text), text) << what;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    ASSERT_EQ(display_width(std::string_view(text).substr(begin, end - begin)), 100u) << what;
  }
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << what;
  EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos) << what;
  EXPECT_EQ(draw_svg(host).find('\x1b'), std::string::npos) << what;
}

class Robustness : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    fs::copy(kTrees / GetParam(), copy_,
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }

  os::TestFolder folder_;
  fs::path copy_ = folder_.path() / "machine";
};

// The small machines: every file, one at a time.
class EachFile : public Robustness {};

TEST_P(EachFile, MayHoldAnything) {
  for (const auto& file : files_of(copy_)) {
    const std::string kept = slurp(file);
    for (const auto& bad : bad_contents()) {
      spill(file, bad.content);
      expect_sound(copy_, file.string() + ": " + bad.name);
    }
    fs::remove(file);
    expect_sound(copy_, file.string() + ": absent");
    spill(file, kept);
  }
}
INSTANTIATE_TEST_SUITE_P(Small, EachFile, ::testing::Values("broken", "container", "vm-2cpu"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The large ones: all files at once, then a tenth of them, drawn by lot.
class ManyFiles : public Robustness {};

TEST_P(ManyFiles, MayHoldAnything) {
  const auto files = files_of(copy_);
  std::vector<std::string> kept;
  for (const auto& file : files) kept.push_back(slurp(file));
  for (const auto& bad : bad_contents()) {
    const std::string content = bad.content.substr(0, 64 << 10);
    for (const auto& file : files) spill(file, content);
    expect_sound(copy_, bad.name);
  }
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < files.size(); ++i) {
      const auto& bad = bad_contents()[random() % bad_contents().size()];
      spill(files[i], random() % 10 == 0 ? bad.content.substr(0, 64 << 10) : kept[i]);
    }
    expect_sound(copy_, "seed " + std::to_string(seed) + " round " + std::to_string(round));
  }
}
INSTANTIATE_TEST_SUITE_P(Large, ManyFiles, ::testing::Values("dgx-h100", "epyc-nps4", "roce"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Robustness, FilesMayBeFoldersAndFoldersFiles) {
  const os::TestFolder folder;
  for (const auto* path :
       {"proc/cpuinfo", "proc/meminfo", "proc/self/mountinfo", "sys/devices/system/cpu/online"}) {
    fs::create_directories(folder.path() / path / "inside");
  }
  for (const auto* path :
       {"sys/class/net", "sys/block", "sys/bus/pci/devices", "sys/devices/system/node"}) {
    fs::create_directories((folder.path() / path).parent_path());
    spill(folder.path() / path, "a file");
  }
  expect_sound(folder.path(), "folders and files exchanged");
}

}  // namespace
}  // namespace bedplate::host
