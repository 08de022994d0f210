// A folder with sources and destinations: for tests of packing.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/pack.h"
#include "data/test_bytes.h"
#include "os/test_folder.h"

namespace bedplate::data {

class PackTest : public ::testing::Test {
 protected:
  std::string path(std::string_view name) const { return (folder_.path() / name).string(); }

  void write(const std::string& name, std::string_view bytes) {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << bytes;
  }

  // `count` pairs 000.jpg, 000.cls in a folder; no two are alike.
  void write_pictures(const std::string& folder, int count) {
    for (int i = 0; i < count; ++i) {
      const std::string picture(static_cast<std::size_t>(i * 37 % 5000), static_cast<char>(i));
      write(fmt::format("{}/{:03}.jpg", folder, i), picture);
      write(fmt::format("{}/{:03}.cls", folder, i), fmt::format("{}", i % 10));
    }
  }

  PackReport pack_all(std::vector<std::string> sources, const std::string& to,
                      PackOptions options = {}) {
    if (options.source.threads == 1) options.source.threads = 3;
    for (std::string& one : sources) one = path(one);
    return pack(sources, path(to), options, watch_);
  }
  // The message of the error that it ends with, "" when there is none.
  std::string refusal(std::vector<std::string> sources, const std::string& to,
                      PackOptions options = {}) {
    try {
      pack_all(std::move(sources), to, std::move(options));
    } catch (const Error& error) {
      code_ = error.code();
      return error.what();
    }
    return "";
  }

  std::shared_ptr<const Dataset> open(const std::string& folder) {
    const std::vector<std::string> urls{path(folder) + "/"};
    return Dataset::open(urls);
  }

  // Every file in a folder, temporaries too, with its bytes.
  std::map<std::string, std::string> files(const std::string& folder) const {
    std::map<std::string, std::string> out;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path(folder), error)) {
      std::ifstream in(entry.path(), std::ios::binary);
      out[entry.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
    }
    return out;
  }
  // The same without pack.json.
  std::map<std::string, std::string> shards(const std::string& folder) const {
    auto out = files(folder);
    out.erase("pack.json");
    return out;
  }

  os::TestFolder folder_;
  Watch watch_;
  Code code_ = Code::kInternal;
};

}  // namespace bedplate::data
